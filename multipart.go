package llmhttp

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/internal/bounded"
	"github.com/llmhttp/llmhttp/internal/headertext"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/llm"
)

// A Form is the body of a request that is multipart/form-data
// (https://www.rfc-editor.org/rfc/rfc7578). Its parts may have come in any order. See "Protocols"
// in the package documentation.
type Form struct {
	Values map[string][]string    // of the fields that are no files, in the order in which they came; valid UTF-8
	Files  map[string][]*llm.File // of the fields that are files, the same

	// JSON is the body of a request of [BindImageEdits] that is JSON, in which files are data: URLs.
	// Then Values and Files are nil. It is nil if the body is a form.
	JSON []byte

	opts   formOptions
	bytes  int64         // of stored
	stored []*storedFile // of files
}

// The bounds of a form, besides that of its files.
const (
	maxFormParts = 64       // fields and files
	maxFormValue = 64 << 10 // bytes of a field
	maxFormName  = 256      // bytes of the name of a field or a file

	// maxFormRest bounds all bytes of a form that do not belong to a file. It is more than
	// mime/multipart reads ahead.
	maxFormRest = 1 << 20
)

// formOptions are how a form is read.
type formOptions struct {
	files    []string // the names of the fields that are files
	maxFiles int64    // the size of all files together, in bytes
	dir      string   // for temporary files; empty for memory
}

// formBoundary returns the boundary of the form that r has as its body.
func formBoundary(r *http.Request) (string, error) {
	if err := checkEncoding(r); err != nil {
		return "", err
	}
	t := r.Header.Get("Content-Type")
	media, params, err := mime.ParseMediaType(t)
	switch {
	case media != "multipart/form-data":
		return "", llm.Errorf(http.StatusUnsupportedMediaType, "unsupported_media_type",
			"Unsupported content type: '%s'. This endpoint only accepts 'multipart/form-data'.", param.Echo(t))
	case err != nil || params["boundary"] == "":
		return "", invalid.Param("", "", "The content type of your request has no valid boundary.")
	}
	return params["boundary"], nil
}

// read reads the form from body, to its end. The error is bounded.ErrTooLarge if a bound of a
// size is exceeded, an *Error if the form is not valid, or an error of body or of the directory
// for files. The caller must close the form, also after an error.
func (f *Form) read(body io.Reader, boundary string) error {
	f.Values, f.Files = make(map[string][]string), make(map[string][]*llm.File)
	p := formReader{form: f, body: boundedBody{body, maxFormRest}}
	parts := multipart.NewReader(&p.body, boundary)
	for n := 0; ; n++ {
		part, err := parts.NextPart()
		switch {
		case err == io.EOF:
			_, err = io.Copy(io.Discard, &p.body)
			return err
		case err != nil:
			return formError(err)
		case n == maxFormParts:
			return invalid.Param("", "", "The form of your request has too many parts. Expected at most %d.", maxFormParts)
		}
		if err := p.readPart(part); err != nil {
			return err
		}
	}
}

// close gives up the files.
func (f *Form) close() {
	if f == nil {
		return
	}
	for _, file := range f.stored {
		file.close()
	}
}

// A formReader reads the parts of a form.
type formReader struct {
	form *Form
	body boundedBody
}

// A boundedBody reads a body, of which left bytes may be read.
type boundedBody struct {
	r    io.Reader
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, bounded.ErrTooLarge
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// readPart adds a part to the form.
func (p *formReader) readPart(part *multipart.Part) error {
	name := part.FormName()
	switch {
	case name == "":
		return invalid.Param("", "", "A part of the form of your request has no name.")
	case !utf8.ValidString(name):
		return invalid.Param("", "", "The name of a part of the form of your request is not valid UTF-8.")
	case !headertext.IsSafe(name):
		return invalid.Param("", "", "The name of a part of the form of your request has a control character.")
	case len(name) > maxFormName:
		return invalid.Param("", "", "The name of a part of the form of your request is too long. Expected at most %d bytes.", maxFormName)
	}
	if slices.Contains(p.form.opts.files, name) {
		return p.readFile(name, part)
	}
	value, err := io.ReadAll(io.LimitReader(part, maxFormValue+1))
	switch {
	case err != nil:
		return formError(err)
	case len(value) > maxFormValue:
		return invalid.Param(
			"string_above_max_length",
			name,
			"Invalid '%s': string too long. Expected at most %d bytes.",
			param.Echo(name),
			maxFormValue,
		)
	case !utf8.Valid(value):
		return invalid.Param("invalid_value", name, "Invalid '%s': it is not valid UTF-8.", param.Echo(name))
	}
	p.form.Values[name] = append(p.form.Values[name], string(value))
	return nil
}

// readFile adds the file that part has as its content.
func (p *formReader) readFile(name string, part *multipart.Part) error {
	file, err := newFile(name, baseName(part.FileName()), part.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	if err := p.form.store(file, part, func(n int) { p.body.left += int64(n) }); err != nil {
		return formError(err)
	}
	p.form.Files[name] = append(p.form.Files[name], file)
	return nil
}

// newFile returns a file without content, for one that the client has sent as param. Its name and its media
// type, which may be empty, can be written into a header.
func newFile(param, name, mediaType string) (*llm.File, error) {
	file := &llm.File{Name: name}
	switch {
	case len(name) > maxFormName:
		return nil, invalid.Param(
			"string_above_max_length",
			param,
			"Invalid '%s': the name of the file is too long. Expected at most %d bytes.",
			param,
			maxFormName,
		)
	case !headertext.IsSafe(name):
		return nil, invalid.Param("invalid_value", param, "Invalid '%s': the name of the file has a control character.", param)
	case mediaType == "":
		return file, nil
	}
	var ok bool
	if file.ContentType, ok = headertext.MediaType(mediaType); !ok {
		return nil, invalid.Param("invalid_value", param, "Invalid '%s': its content type is not a media type, such as 'image/png'.", param)
	}
	return file, nil
}

// store sets the content of file to that of r. It calls read for each read with the number of bytes.
// The error is as that of storedFile.readFrom.
func (f *Form) store(file *llm.File, r io.Reader, read func(n int)) error {
	stored, err := newStoredFile(f.opts.dir)
	if err != nil {
		return err
	}
	f.stored = append(f.stored, stored)
	if err := stored.readFrom(r, f.opts.maxFiles-f.bytes, read); err != nil {
		return err
	}
	f.bytes += stored.size
	file.Size, file.Content = stored.size, stored
	return nil
}

// baseName returns the last element of the path of a file, of any system, in UTF-8.
func baseName(path string) string {
	return validText(path[strings.LastIndexAny(path, `/\`)+1:])
}

// validText returns s with U+FFFD in place of what is not UTF-8.
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// formError returns the error of a form that could not be read because of err. That of a body which
// cannot be read is replaced by who reads it.
func formError(err error) error {
	switch {
	case errors.Is(err, bounded.ErrTooLarge), errors.Is(err, multipart.ErrMessageTooLarge):
		return bounded.ErrTooLarge
	case errors.Is(err, errFileNotStored):
		return err
	}
	return invalid.Param(
		"",
		"",
		"We could not parse the form of your request. (HINT: It must be 'multipart/form-data' and end with its boundary.)",
	)
}
