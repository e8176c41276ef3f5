package imageedit

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/form"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/wire"
	"github.com/llmhttp/llmhttp/llm"
)

var (
	requestJSON  = jsonwire.ObjectOf[llm.ImageRequest]("")
	responseJSON = jsonwire.ObjectOf[llm.ImageResponse]("")
)

// read reads the body of the request of c into r, which is zero, and checks it. files keeps its images.
func (r *Request) read(c *llmhttp.Call, files *form.Store) error {
	if media, _, _ := mime.ParseMediaType(c.Request().Header.Get("Content-Type")); media == "application/json" {
		f := files.NewForm(c)
		return c.Body(func(body []byte) error { return r.check(c, r.decodeJSON(body, f), fieldImages) })
	}
	return files.Read(c, []string{fieldImage, fieldImage + "[]", fieldMask}, func(f *form.Form) error {
		return r.check(c, r.decodeForm(f), fieldImage)
	})
}

// check checks r, unless err is why it could not be decoded. field is the name of the parameter that has the
// images.
func (r *Request) check(c *llmhttp.Call, err error, field string) error {
	if err == nil {
		err = wire.CheckFields(c, r.Extra)
	}
	if err != nil {
		return err
	}
	err = r.Validate()
	if e, ok := errors.AsType[*llm.Error](err); ok && e.Param == fieldImage {
		return e.WithParam(field)
	}
	return err
}

// fields has the fields of the form.
var fields = wire.Fields[Request]{
	Single: map[string]func(r *Request, value string) error{
		"model":           func(r *Request, v string) error { r.Model = v; return nil },
		"prompt":          func(r *Request, v string) error { r.Prompt = v; return nil },
		"n":               func(r *Request, v string) (err error) { r.N, err = wire.FormInt("n", v); return err },
		"size":            func(r *Request, v string) error { r.Size = v; return nil },
		"quality":         func(r *Request, v string) error { r.Quality = v; return nil },
		"response_format": func(r *Request, v string) error { r.ResponseFormat = v; return nil },
		"stream":          func(r *Request, v string) (err error) { r.Stream, err = wire.FormBool("stream", v); return err },
		"partial_images": func(r *Request, v string) (err error) {
			r.PartialImages, err = wire.FormInt("partial_images", v)
			return err
		},
	},
	Files: []string{fieldImage, fieldMask},
	AddExtra: func(r *Request, name string, values []string) {
		if r.Extra == nil {
			r.Extra = make(llm.Extra)
		}
		if len(values) > 1 || strings.HasSuffix(name, "[]") {
			r.Extra[name], _ = json.Marshal(values)
			return
		}
		r.Extra[name] = jsonwire.AppendString(nil, values[0])
	},
}

// decodeForm decodes a form into r, which is zero.
func (r *Request) decodeForm(f *form.Form) (err error) {
	if err := fields.Decode(r, f.Values); err != nil {
		return err
	}
	r.Images = slices.Concat(f.Files[fieldImage], f.Files[fieldImage+"[]"])
	r.Mask, err = f.File(fieldMask)
	return err
}

// An imageRef is an image in the JSON of a request.
type imageRef struct {
	ImageURL string `json:"image_url"`
	FileID   string `json:"file_id"`
}

// imageRefs are the members of the JSON of a request that are files in a form.
type imageRefs struct {
	Images []imageRef `json:"images"`
	Mask   *imageRef  `json:"mask"`
}

// decodeJSON decodes JSON into r, which is zero, and keeps its images in f.
func (r *Request) decodeJSON(body []byte, f *form.Form) (err error) {
	if err := jsonwire.Unmarshal(body, requestJSON, &r.ImageRequest); err != nil {
		return invalid.JSON(err)
	}
	var refs imageRefs
	if err := jsonwire.UnmarshalTags(body, &refs, func(string) bool { return true }); err != nil {
		return invalid.JSON(err)
	}
	delete(r.Extra, fieldImages)
	delete(r.Extra, fieldMask)
	if err := checkMembers(r.Extra); err != nil {
		return err
	}
	if n := len(refs.Images); n > maxImages {
		return invalid.LongArray(fieldImages, maxImages, n)
	}
	for i := range refs.Images {
		file, err := refs.Images[i].file(f, param.Path(fieldImages, i, ""))
		if err != nil {
			return err
		}
		r.Images = append(r.Images, file)
	}
	if refs.Mask != nil {
		r.Mask, err = refs.Mask.file(f, fieldMask)
	}
	return err
}

// checkMembers returns an *llm.Error if a member of the JSON, for which there is no field, has the name of a
// field of the form, such as "image". A Backend that sends a form would send it as that.
func checkMembers(members llm.Extra) error {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		known := fields.KnownName(name)
		if known == fieldImage {
			known = fieldImages
		}
		if known != "" {
			return invalid.JSON(&jsonwire.Error{Kind: jsonwire.WrongCase, Path: name, Want: known})
		}
	}
	return nil
}

// file keeps the image, which is the member param, in f.
func (ref *imageRef) file(f *form.Form, param string) (*llm.File, error) {
	if ref.FileID != "" {
		return nil, invalid.Param("invalid_value", param+".file_id",
			"Invalid '%s.file_id': this server stores no files. Use 'image_url' with a data: URL.", param)
	}
	param += ".image_url"
	if ref.ImageURL == "" {
		return nil, invalid.Missing(param)
	}
	rest, isData := strings.CutPrefix(ref.ImageURL, "data:")
	header, text, _ := strings.Cut(rest, ",")
	media, isBase64 := strings.CutSuffix(header, ";base64")
	if !isData || !isBase64 {
		return nil, invalid.Param("invalid_value", param, "Invalid '%s': expected a data: URL with base64. This server fetches no images.", param)
	}
	file, err := f.Add(param, media, base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
	if _, corrupt := errors.AsType[base64.CorruptInputError](err); corrupt || err == io.ErrUnexpectedEOF {
		return nil, invalid.Param("invalid_value", param, "Invalid '%s': the data: URL is not valid base64.", param)
	}
	if err == nil && file.Size == 0 {
		return nil, invalid.Param("invalid_value", param, "Invalid '%s': the image is empty.", param)
	}
	return file, err
}
