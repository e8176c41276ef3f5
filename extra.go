package llmhttp

import (
	"encoding/json"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// Extra holds the JSON members of an object that its Go type does not name.
// They are kept when the object is encoded again, so that new and
// vendor-specific parameters reach a Backend without a release of this
// package. A member whose name the type does have is not encoded from Extra.
type Extra map[string]json.RawMessage

// keep reads the member of the given name into e.
func (e *Extra) keep(d *jsonwire.Decoder, name []byte) {
	d.Keep((*map[string]json.RawMessage)(e), name)
}

type decoder interface{ decode(d *jsonwire.Decoder) }

type encoder interface{ encode(e *jsonwire.Encoder) }

// unmarshal replaces *v by what data holds. As is usual, null changes nothing.
func unmarshal[T any, P interface {
	*T
	decoder
}](data []byte, v P) error {
	if string(data) == "null" {
		return nil
	}
	var fresh T
	d := jsonwire.NewDecoder(data)
	P(&fresh).decode(d)
	if err := d.Finish(); err != nil {
		return err
	}
	*v = fresh
	return nil
}

func marshal(v encoder) ([]byte, error) {
	var e jsonwire.Encoder
	v.encode(&e)
	return e.Buf, e.Err
}
