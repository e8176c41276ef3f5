// Package payload has the bodies of requests to a server. Each can be read several times, as a transport needs that sends a
// request again.
package payload

import (
	"bytes"
	"io"
)

const mediaJSON = "application/json"

// A Payload is the body of a request. The zero Payload is no body.
type Payload struct {
	ContentType string
	Size        int64                         // in bytes
	Open        func() (io.ReadCloser, error) // returns a new reader of the body
}

// JSON returns the payload with a body, which must not be changed any more.
func JSON(body []byte) Payload {
	return Payload{mediaJSON, int64(len(body)), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }}
}
