// What a server is told of compression.

package reply

import "net/http"

// AskIdentity asks in the header of a request for a body that is not compressed. Compression would delay the events of
// streams, and a server without it needs less time.
func AskIdentity(h http.Header) { h.Set("Accept-Encoding", "identity") }
