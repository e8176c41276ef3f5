package endpointtest

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// formFiles are the names of files by those of their fields.
var formFiles = map[string]string{"file": "speech.mp3", "image": "photo.png", "image[]": "photo.png", "mask": "mask.png"}

const formBoundary = "FORM-BOUNDARY"

// FormType is the Content-Type of a [Form].
const FormType = "multipart/form-data; boundary=" + formBoundary

// Form returns a form with the members of a JSON object as its fields, in their order. "file",
// "image", "image[]" and "mask" are the contents of files. An array has a field for each element.
func Form(t testing.TB, object string) string {
	t.Helper()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	require.NoError(t, w.SetBoundary(formBoundary))
	d := json.NewDecoder(strings.NewReader(object))
	_, err := d.Token()
	require.NoError(t, err)
	for d.More() {
		name, err := d.Token()
		require.NoError(t, err)
		var values []json.RawMessage
		var raw json.RawMessage
		require.NoError(t, d.Decode(&raw))
		if json.Unmarshal(raw, &values) != nil {
			values = []json.RawMessage{raw}
		}
		for _, v := range values {
			var text string
			if json.Unmarshal(v, &text) != nil {
				text = string(v)
			}
			if filename := formFiles[name.(string)]; filename != "" {
				part, err := w.CreateFormFile(name.(string), filename)
				require.NoError(t, err)
				_, err = io.WriteString(part, text)
				require.NoError(t, err)
				continue
			}
			require.NoError(t, w.WriteField(name.(string), text))
		}
	}
	require.NoError(t, w.Close())
	return form.String()
}
