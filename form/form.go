// Package form reads the bodies of requests that are forms (multipart/form-data), and keeps their files
// while the requests are served. It is for the functions of routes that [llmhttp.NewRoute] makes:
//
//	store := &form.Store{Dir: "/var/tmp/uploads"}
//	serve := func(c *llmhttp.Call) error {
//		var scan *llm.File
//		err := store.Read(c, []string{"scan"}, func(f *form.Form) (err error) {
//			scan, err = f.File("scan")
//			return err
//		})
//		...
//	}
//
// One Store serves all routes, and bounds what their requests hold together.
package form

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/bounded"
	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/headertext"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/saturating"
	"github.com/llmhttp/llmhttp/llm"
)

// A Form is the body of a request that is multipart/form-data
// (https://www.rfc-editor.org/rfc/rfc7578). Its parts may have come in any order.
type Form struct {
	Values map[string][]string    // of the fields that are no files, in the order in which they came; valid UTF-8
	Files  map[string][]*llm.File // of the fields that are files, the same

	store  *Store
	bytes  int64         // of stored
	taken  int64         // of Store.MaxTotal
	stored []*storedFile // of files
}

// The bounds of a form, besides that of its files and bounds.FormParts.
const (
	maxValue = 64 << 10 // bytes of a field
	maxName  = 256      // bytes of the name of a field or a file

	// maxRest bounds all bytes of a form that do not belong to a file. It is more than
	// mime/multipart reads ahead.
	maxRest = 1 << 20
)

// Read reads the body of the request of c, which must be a form, in place of [llmhttp.Call.Body], and
// calls decode with it. fields are the names of those of its fields that are files. Files, and names and
// values that are too large get an [*llm.Error] of status 413 or 400, and another Content-Type a 415. An
// error of decode fails the request.
//
// The files are there until the request has ended; reads of them fail after that.
func (s *Store) Read(c *llmhttp.Call, fields []string, decode func(f *Form) error) error {
	boundary, err := boundaryOf(c.Request())
	if err != nil {
		return err
	}
	f := s.NewForm(c)
	most := saturating.Add(s.maxFiles(), maxRest)
	return c.ReadBody(most, func(body io.Reader) error {
		if err := f.read(body, boundary, fields); err != nil {
			return err
		}
		return decode(f)
	})
}

// NewForm returns a Form without fields, for the files of a request whose body is no form: see
// [Form.Add]. Files of it are there until the request of c has ended.
func (s *Store) NewForm(c *llmhttp.Call) *Form {
	f := &Form{store: s}
	c.Cleanup(f.close)
	return f
}

// File returns the file in the field name, or nil if there is none. Several are an [*llm.Error] of status
// 400.
func (f *Form) File(name string) (*llm.File, error) {
	switch files := f.Files[name]; len(files) {
	case 0:
		return nil, nil
	case 1:
		return files[0], nil
	}
	return nil, invalid.JSON(&jsonwire.Error{Kind: jsonwire.Duplicate, Path: name})
}

// boundaryOf returns the boundary of the form that r has as its body.
func boundaryOf(r *http.Request) (string, error) {
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

// read reads the form from body, to its end. The error is an *llm.Error if the form is not valid or
// too large, or an error of body or of the Store.
func (f *Form) read(body io.Reader, boundary string, fields []string) error {
	f.Values, f.Files = make(map[string][]string), make(map[string][]*llm.File)
	p := formReader{form: f, fields: fields, body: bounded.Reader{R: body, Left: maxRest}}
	parts := multipart.NewReader(&p.body, boundary)
	for n := 0; ; n++ {
		part, err := parts.NextPart()
		switch {
		case err == io.EOF:
			_, err = io.Copy(io.Discard, &p.body)
			return f.tooLarge(err)
		case err != nil:
			return f.readError(err)
		case n == bounds.FormParts:
			return invalid.Param("", "", "The form of your request has too many parts. Expected at most %d.", bounds.FormParts)
		}
		if err := p.readPart(part); err != nil {
			return err
		}
	}
}

// close gives up the files.
func (f *Form) close() {
	for _, file := range f.stored {
		file.close()
	}
	f.store.held.Add(-f.taken)
	f.taken = 0
}

// A formReader reads the parts of a form.
type formReader struct {
	form   *Form
	fields []string // that are files
	body   bounded.Reader
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
	case len(name) > maxName:
		return invalid.Param("", "", "The name of a part of the form of your request is too long. Expected at most %d bytes.", maxName)
	}
	if slices.Contains(p.fields, name) {
		return p.readFile(name, part)
	}
	if part.FileName() != "" {
		return invalid.Param("invalid_type", name, "Invalid type for '%s': this field takes no file. Files are in %s.", param.Echo(name), p.listFields())
	}
	value, err := io.ReadAll(io.LimitReader(part, maxValue+1))
	switch {
	case err != nil:
		return p.form.readError(err)
	case len(value) > maxValue:
		return invalid.Param(
			"string_above_max_length",
			name,
			"Invalid '%s': string too long. Expected at most %d bytes.",
			param.Echo(name),
			maxValue,
		)
	case !utf8.Valid(value):
		return invalid.Param("invalid_value", name, "Invalid '%s': it is not valid UTF-8.", param.Echo(name))
	}
	p.form.Values[name] = append(p.form.Values[name], string(value))
	return nil
}

// listFields lists the fields that are files, such as "'file'".
func (p *formReader) listFields() string {
	if len(p.fields) == 0 {
		return "none"
	}
	return "'" + strings.Join(p.fields, "', '") + "'"
}

// readFile adds the file that part has as its content.
func (p *formReader) readFile(name string, part *multipart.Part) error {
	file, err := newFile(name, baseName(part.FileName()), part.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	if err := p.form.keep(file, part, func(n int) { p.body.Left += int64(n) }); err != nil {
		return p.form.readError(err)
	}
	p.form.Files[name] = append(p.form.Files[name], file)
	return nil
}

// newFile returns a file without content, for one that the client has sent as param. Its name and its media
// type, which may be empty, can be written into a header.
func newFile(param, name, mediaType string) (*llm.File, error) {
	file := &llm.File{Name: name}
	switch {
	case len(name) > maxName:
		return nil, invalid.Param(
			"string_above_max_length",
			param,
			"Invalid '%s': the name of the file is too long. Expected at most %d bytes.",
			param,
			maxName,
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

// Add keeps content as a file, for requests whose body is no form. param is the parameter that has it,
// for errors; the file has no name. mediaType may be empty. The error is that of content, if reading that
// fails, an [*llm.Error] if the mediaType is none or the files of the request are too large, or an error of
// the Store.
func (f *Form) Add(param, mediaType string, content io.Reader) (*llm.File, error) {
	file, err := newFile(param, "", mediaType)
	if err != nil {
		return nil, err
	}
	if err := f.keep(file, content, func(int) {}); err != nil {
		return nil, f.tooLarge(err)
	}
	return file, nil
}

// keep sets the content of file to that of r. It calls read for each read with the number of bytes.
// The error is as that of storedFile.readFrom.
func (f *Form) keep(file *llm.File, r io.Reader, read func(n int)) error {
	stored, err := f.newFile()
	if err != nil {
		return err
	}
	f.stored = append(f.stored, stored)
	if err := stored.readFrom(r, f.store.maxFiles()-f.bytes, read); err != nil {
		return err
	}
	f.bytes += stored.size
	file.Size, file.Content = stored.size, stored
	return nil
}

// baseName returns the last element of the path of a file, of any system, in UTF-8.
func baseName(path string) string {
	return strings.ToValidUTF8(path[strings.LastIndexAny(path, `/\`)+1:], "\uFFFD")
}

// readError returns the error of a form that could not be read because of err. That of a body which
// cannot be read is replaced by who reads it.
func (f *Form) readError(err error) error {
	if errors.Is(err, multipart.ErrMessageTooLarge) {
		err = bounded.ErrTooLarge
	}
	if large := f.tooLarge(err); large != err {
		return large
	}
	if _, told := errors.AsType[*llm.Error](err); told || errors.Is(err, errNotKept) {
		return err
	}
	return invalid.Param(
		"",
		"",
		"We could not parse the form of your request. (HINT: It must be 'multipart/form-data' and end with its boundary.)",
	)
}

// tooLarge returns what the client gets if err is that of a body that is too large, and otherwise err.
func (f *Form) tooLarge(err error) error {
	if errors.Is(err, bounded.ErrTooLarge) {
		return invalid.BodyTooLarge(f.store.maxFiles())
	}
	return err
}
