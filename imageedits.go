package llmhttp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/bounded"
	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/llm"
)

// OperationImageEdits is the [Operation] of editing images.
const OperationImageEdits Operation = "image_edits"

// An ImageEditor is a [Backend] that edits images, and combines several to one.
type ImageEditor interface {
	// EditImages returns req.Count() images, which are what the prompt makes of req.Images. For a
	// file that it cannot read it returns an [*llm.Error] with the status 400, the code "invalid_value"
	// and the param "image". The ImageEditor owns req, but not the content of the files, which
	// others may read too.
	EditImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error)
}

// imageEditForm has the fields of POST /v1/images/edits.
var imageEditForm = formFields[llm.ImageRequest]{
	single: map[string]func(r *llm.ImageRequest, value string) error{
		"model":           func(r *llm.ImageRequest, v string) error { r.Model = v; return nil },
		"prompt":          func(r *llm.ImageRequest, v string) error { r.Prompt = v; return nil },
		"n":               func(r *llm.ImageRequest, v string) (err error) { r.N, err = parseFormInt("n", v); return err },
		"size":            func(r *llm.ImageRequest, v string) error { r.Size = v; return nil },
		"quality":         func(r *llm.ImageRequest, v string) error { r.Quality = v; return nil },
		"response_format": func(r *llm.ImageRequest, v string) error { r.ResponseFormat = v; return nil },
		"stream": func(r *llm.ImageRequest, v string) (err error) {
			r.Stream, err = parseFormBool("stream", v)
			return err
		},
		"partial_images": func(r *llm.ImageRequest, v string) (err error) {
			r.PartialImages, err = parseFormInt("partial_images", v)
			return err
		},
	},
	files: []string{membername.FieldImage, membername.FieldMask},
	addExtra: func(r *llm.ImageRequest, name string, values []string) {
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

// decodeEditForm decodes the form of an edit into r, which is zero.
func decodeEditForm(r *llm.ImageRequest, form *Form) (err error) {
	if err := imageEditForm.decode(r, form.Values); err != nil {
		return err
	}
	r.Images = slices.Concat(form.Files[membername.FieldImage], form.Files[membername.FieldImage+"[]"])
	r.Mask, err = form.file(membername.FieldMask)
	return err
}

// An imageRef is an image in the JSON of an edit.
type imageRef struct {
	ImageURL string `json:"image_url"`
	FileID   string `json:"file_id"`
}

// imageEditRefs are the members of the JSON of an edit that are files in a form.
type imageEditRefs struct {
	Images []imageRef `json:"images"`
	Mask   *imageRef  `json:"mask"`
}

// decodeEditJSON decodes the JSON of an edit into r, which is zero, and stores its images in form.
func decodeEditJSON(r *llm.ImageRequest, form *Form) (err error) {
	if err := decodeRequest(form.JSON, imageRequestJSON, r); err != nil {
		return err
	}
	var refs imageEditRefs
	if err := jsonwire.UnmarshalTags(form.JSON, &refs, func(string) bool { return true }); err != nil {
		return invalid.JSON(err)
	}
	delete(r.Extra, "images")
	delete(r.Extra, membername.FieldMask)
	if err := checkEditMembers(r.Extra); err != nil {
		return err
	}
	if n := len(refs.Images); n > bounds.EditImages {
		return invalid.LongArray("images", bounds.EditImages, n)
	}
	for i := range refs.Images {
		file, err := form.addImage(&refs.Images[i], param.Path("images", i, ""))
		if err != nil {
			return err
		}
		r.Images = append(r.Images, file)
	}
	if refs.Mask != nil {
		r.Mask, err = form.addImage(refs.Mask, membername.FieldMask)
	}
	return err
}

// checkEditMembers returns an *Error if a member of the JSON of an edit, for which there is no field, has the
// name of a field of the form, such as "image". A Backend that sends a form would send it as that.
func checkEditMembers(members llm.Extra) error {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		known := imageEditForm.knownName(name)
		if known == membername.FieldImage {
			known = "images"
		}
		if known != "" {
			return invalid.JSON(&jsonwire.Error{Kind: jsonwire.WrongCase, Path: name, Want: known})
		}
	}
	return nil
}

// addImage stores the image of ref, which is the member param.
func (f *Form) addImage(ref *imageRef, param string) (*llm.File, error) {
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
	file, err := newFile(param, "", media)
	if err != nil {
		return nil, err
	}
	err = f.store(file, base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)), func(int) {})
	switch {
	case errors.Is(err, bounded.ErrTooLarge):
		return nil, invalid.BodyTooLarge(f.opts.maxFiles)
	case errors.Is(err, errFileNotStored):
		return nil, err
	case err != nil:
		return nil, invalid.Param("invalid_value", param, "Invalid '%s': the data: URL is not valid base64.", param)
	case file.Size == 0:
		return nil, invalid.Param("invalid_value", param, "Invalid '%s': the image is empty.", param)
	}
	return file, nil
}

var imageEditsOperation = operation{name: OperationImageEdits, scope: ScopeImages, supportedBy: Has[ImageEditor], output: OutputImages}

// decodeImageEdit decodes POST /v1/images/edits.
func decodeImageEdit(
	ctx context.Context,
	_ *http.Request,
	form *Form,
) (*llm.ImageRequest, func(b []byte, r *llm.ImageResponse) ([]byte, error), error) {
	req, decode, field := new(llm.ImageRequest), decodeEditForm, membername.FieldImage
	if form.JSON != nil {
		decode, field = decodeEditJSON, "images"
	}
	if err := decode(req, form); err != nil {
		return nil, nil, err
	}
	if err := checkUnknownFields(ctx, req.Extra); err != nil {
		return nil, nil, err
	}
	if err := req.Validate(); err != nil {
		return nil, nil, err
	}
	if len(req.Images) == 0 {
		return nil, nil, invalid.Missing(field)
	}
	return req, imageResponseJSON.Append, nil
}

// BindImageEdits binds a route to edits of images, with [ScopeImages]. The body of its requests is a
// form, or JSON if their Content-Type tells so: see Form.JSON. The form is only valid during the call
// of decode, except for the files. decode sets the Images of the request and checks it by
// [llm.ImageRequest.Validate]. encode and newEncoder are as those of [BindImages]. If the Backend is no
// [ImageEditor], the client gets a 404. See "Protocols" in the package documentation.
func BindImageEdits(decode func(ctx context.Context, r *http.Request, form *Form) (
	req *llm.ImageRequest, encode func(b []byte, reply *llm.ImageResponse) ([]byte, error), err error),
	newEncoder func(req *llm.ImageRequest) ImageEncoder,
) Binding {
	mustBeSet(decode != nil)
	return imageEditsOperation.bindCall(func(c *Call) error {
		var req *llm.ImageRequest
		var encode func(b []byte, reply *llm.ImageResponse) ([]byte, error)
		err := c.q.withFormOrJSON(
			[]string{membername.FieldImage, membername.FieldImage + "[]", membername.FieldMask},
			c.q.h.opts.MaxFiles,
			func(ctx context.Context, r *http.Request, form *Form) (err error) {
				if req, encode, err = decode(ctx, r, form); err == nil && (req == nil || encode == nil) {
					err = errNothingDecoded
				}
				return err
			},
		)
		if err != nil {
			return err
		}
		if req.Stream && newEncoder != nil {
			return serveImageStream(c, req, newEncoder(req))
		}
		return serveImages(c, ImageEditor.EditImages, req, encode)
	})
}
