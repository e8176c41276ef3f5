package upstream

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/textproto"

	"github.com/llmhttp/llmhttp"
)

// A form is the body of a request with files, which are not copied: they are read while it is sent.
type form struct {
	head  bytes.Buffer // what w has written
	w     *multipart.Writer
	files []formFile
}

// A formFile is a file of a form.
type formFile struct {
	offset int // in head
	file   *llmhttp.File
}

func newForm() *form {
	f := new(form)
	f.w = multipart.NewWriter(&f.head)
	return f
}

// add adds a field, unless it is empty. A Buffer returns no error.
func (f *form) add(name, value string) {
	if value != "" {
		_ = f.w.WriteField(name, value)
	}
}

// addFile adds a file. fallback is its name if it has none.
func (f *form) addFile(name string, file *llmhttp.File, fallback string) {
	header := textproto.MIMEHeader{"Content-Disposition": {multipart.FileContentDisposition(name, fileName(file, fallback))}}
	if file.ContentType != "" {
		header.Set("Content-Type", file.ContentType)
	}
	_, _ = f.w.CreatePart(header)
	f.files = append(f.files, formFile{f.head.Len(), file})
}

// payload ends the form and returns it.
func (f *form) payload() payload {
	_ = f.w.Close()
	b := f.head.Bytes()
	size := int64(len(b))
	for _, file := range f.files {
		size += file.file.Size
	}
	return payload{f.w.FormDataContentType(), size, func() (io.ReadCloser, error) {
		var parts []io.Reader
		from := 0
		for _, file := range f.files {
			parts = append(parts, bytes.NewReader(b[from:file.offset]), file.file.Open())
			from = file.offset
		}
		return io.NopCloser(io.MultiReader(append(parts, bytes.NewReader(b[from:]))...)), nil
	}}
}

// fileName returns a name for the file with an extension, by which servers know what it is.
func fileName(f *llmhttp.File, fallback string) string {
	name := f.Name
	if name == "" {
		name = fallback
	}
	if ext := f.Extension(); ext != "" && !f.HasExtension() {
		return name + "." + ext
	}
	return name
}
