package imageedit

import (
	"slices"

	"github.com/llmhttp/llmhttp/internal/images"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// The fields of a form that are files, of which "image" may also be called "image[]", and the member of JSON with
// the images.
const (
	fieldImage  = "image"
	fieldMask   = "mask"
	fieldImages = "images"
)

// maxImages is the maximum number of images to edit.
const maxImages = 16

// A Request is the body of POST /v1/images/edits: what a request for images has, and the images to edit. The
// default of the Size is empty, for the choice of the Backend. The Extra of a form has its other fields as strings, or as arrays
// of strings if their names end in "[]" or come several times.
//
// Its JSON is that of the ImageRequest, without files.
type Request struct {
	llm.ImageRequest

	Images []*llm.File // what an Editor is to edit or to combine, 1 to 16; none is empty
	Mask   *llm.File   // a PNG that is transparent where the first of Images is to be edited; nil if the model chooses
}

// Files returns the Images and the Mask.
func (r *Request) Files() []*llm.File {
	if r.Mask == nil {
		return r.Images
	}
	return append(slices.Clip(r.Images), r.Mask)
}

// Validate returns an [*llm.Error] for the first parameter that the format does not allow. Functions that decode requests call it: see [Serve].
func (r *Request) Validate() error {
	size := r.Size
	if err := r.ImageRequest.Validate(); err != nil {
		return err
	}
	r.Size = size // without the default of generations
	switch n := len(r.Images); {
	case n == 0:
		return invalid.Missing(fieldImage)
	case n > maxImages:
		return invalid.LongArray(fieldImage, maxImages, n)
	}
	for i, f := range r.Images {
		if f.Size > 0 {
			continue
		}
		if len(r.Images) == 1 {
			return emptyFile(fieldImage)
		}
		return emptyFile(param.Path(fieldImage, i, ""))
	}
	if r.Mask != nil && r.Mask.Size == 0 {
		return emptyFile(fieldMask)
	}
	return nil
}

func emptyFile(name string) *llm.Error {
	return invalid.Param("invalid_value", name, "Invalid '%s': the file is empty.", name)
}

// countTokens counts the tokens of r.
func (r *Request) countTokens(c tokens.Estimator) int {
	n := images.CountTokens(c, &r.ImageRequest)
	for _, f := range r.Files() {
		n += c.File(f)
	}
	return n
}
