// Bodies that are forms with files, which are read while they are sent.

package payload

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/llmhttp/llmhttp/internal/headertext"
	"github.com/llmhttp/llmhttp/llm"
)

// A Form is the body of a request with files, which are not copied: they are read while it is sent. The files
// come last, so that a server that reads the parts in their order knows the model before them.
type Form struct {
	head  bytes.Buffer // what w has written
	w     *multipart.Writer
	names map[string]bool // of the fields and files that the Backend has added, also empty ones, without "[]"
	files []formFile
	err   error // the first one
}

// A formFile is a file of a Form.
type formFile struct {
	field, name string
	offset      int // in head, of the content
	file        *llm.File
}

// NewForm returns an empty form.
func NewForm() *Form {
	f := &Form{names: make(map[string]bool)}
	f.w = multipart.NewWriter(&f.head)
	return f
}

// Add adds a field, unless it is empty.
func (f *Form) Add(name, value string) {
	f.names[baseField(name)] = true
	f.write(name, value)
}

// AddList adds a field for each of the values.
func (f *Form) AddList(name string, values []string) {
	f.names[baseField(name)] = true
	for _, v := range values {
		f.write(name, v)
	}
}

// AddExtra adds a field for which the request has no Go field. It must come after all calls of Add and AddFile:
// as in JSON, a member that has a field is not encoded from Extra.
func (f *Form) AddExtra(name string, values []string) {
	if f.names[baseField(name)] {
		return
	}
	if !headertext.IsSafe(name) {
		f.fail("", "The name of a parameter has a control character.")
		return
	}
	for _, v := range values {
		f.write(name, v)
	}
}

// write writes a field, unless it is empty. A Buffer returns no error.
func (f *Form) write(name, value string) {
	if value != "" {
		_ = f.w.WriteField(name, value)
	}
}

// AddFile adds a file. fallback is its name if it has none. The Handler has checked the names and media types
// of the files of its clients; a host may have made others.
func (f *Form) AddFile(field string, file *llm.File, fallback string) {
	base := baseField(field)
	f.names[base] = true
	name := fileName(file, fallback)
	switch {
	case !headertext.IsSafe(name):
		f.fail(base, "Invalid '"+base+"': the name of the file has a control character.")
	case !headertext.IsSafe(file.ContentType):
		f.fail(base, "Invalid '"+base+"': its content type is not a media type, such as 'image/png'.")
	}
	f.files = append(f.files, formFile{field: field, name: name, file: file})
}

func (f *Form) fail(param, message string) {
	if f.err == nil {
		f.err = &llm.Error{Status: http.StatusBadRequest, Code: "invalid_value", Param: param, Message: message}
	}
}

// Payload ends the form and returns it, or an *llm.Error.
func (f *Form) Payload() (Payload, error) {
	if f.err != nil {
		return Payload{}, f.err
	}
	size := int64(0)
	for i := range f.files {
		file := &f.files[i]
		header := textproto.MIMEHeader{"Content-Disposition": {multipart.FileContentDisposition(file.field, file.name)}}
		if file.file.ContentType != "" {
			header.Set("Content-Type", file.file.ContentType)
		}
		_, _ = f.w.CreatePart(header)
		file.offset = f.head.Len()
		size += file.file.Size
	}
	_ = f.w.Close()
	b := f.head.Bytes()
	return Payload{f.w.FormDataContentType(), size + int64(len(b)), func() (io.ReadCloser, error) {
		var parts []io.Reader
		from := 0
		for _, file := range f.files {
			parts = append(parts, bytes.NewReader(b[from:file.offset]), file.file.Open())
			from = file.offset
		}
		return io.NopCloser(io.MultiReader(append(parts, bytes.NewReader(b[from:]))...)), nil
	}}, nil
}

// baseField returns the name of a field without the "[]" of lists.
func baseField(name string) string { return strings.TrimSuffix(name, "[]") }

// fileName returns a name for the file with an extension, by which servers know what it is.
func fileName(f *llm.File, fallback string) string {
	name := f.Name
	if name == "" {
		name = fallback
	}
	if ext := f.Extension(); ext != "" && !f.HasExtension() {
		return name + "." + ext
	}
	return name
}
