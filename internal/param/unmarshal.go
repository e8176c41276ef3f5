package param

import "github.com/llmhttp/llmhttp/internal/jsonwire"

// UnmarshalRequest decodes data strictly and replaces *v, unless there is an error. As is usual, null
// changes nothing.
func UnmarshalRequest[T any](data []byte, t jsonwire.Type[T], v *T) error {
	return jsonwire.Replace(data, v, func() error {
		if err := jsonwire.Unmarshal(data, t, v); err != nil {
			return FromJSON(err)
		}
		return nil
	})
}

// UnmarshalReply decodes data leniently and replaces *v, unless there is an error. As is usual, null
// changes nothing.
func UnmarshalReply[T any](data []byte, t jsonwire.Type[T], v *T) error {
	return jsonwire.Replace(data, v, func() error {
		if err := jsonwire.UnmarshalLenient(data, t, v); err != nil {
			return err
		}
		return nil
	})
}
