package llmhttp

import (
	"context"
	"math"
	"mime"
	"net/http"

	"github.com/llmhttp/llmhttp/internal/bounded"
	"github.com/llmhttp/llmhttp/internal/invalid"
)

// withForm reads the body of the request, which is a form, and calls decode with it. names are those
// of the fields that are files, which have at most maxFiles bytes together. The files are kept until
// closeForm, or finish, is called.
func (q *request) withForm(names []string, maxFiles int64, decode func(ctx context.Context, r *http.Request, form *Form) error) error {
	boundary, err := formBoundary(q.r)
	if err != nil {
		return err
	}
	most := maxFiles + min(maxFormRest, math.MaxInt64-maxFiles)
	if q.r.ContentLength > most {
		return invalid.BodyTooLarge(most)
	}
	form := q.newForm(names, maxFiles)
	body := q.client.Body()
	err = body.End(form.read(body, boundary))
	switch {
	case err == bounded.ErrTooLarge:
		return invalid.BodyTooLarge(maxFiles)
	case err != nil:
		return bodyError(err, most)
	}
	if err := decode(q.client.Context(), q.routed, form); err != nil {
		return q.client.CauseOr(err)
	}
	return nil
}

// withFormOrJSON is withForm for requests whose body may be JSON in place of a form, which the
// Content-Type tells.
func (q *request) withFormOrJSON(
	names []string,
	maxFiles int64,
	decode func(ctx context.Context, r *http.Request, form *Form) error,
) error {
	if media, _, _ := mime.ParseMediaType(q.r.Header.Get("Content-Type")); media != contentTypeJSON {
		return q.withForm(names, maxFiles, decode)
	}
	form := q.newForm(names, maxFiles)
	return q.withBody(func(ctx context.Context, r *http.Request, body []byte) error {
		form.JSON = body
		defer func() { form.JSON = nil }()
		return decode(ctx, r, form)
	})
}

// newForm returns the form of the request, which is empty.
func (q *request) newForm(names []string, maxFiles int64) *Form {
	form := &Form{opts: formOptions{files: names, maxFiles: maxFiles, dir: q.h.opts.FileDir}}
	q.cleanup = form.close
	return form
}
