// The operation that lists models: constants, interface and descriptor.

package llmhttp

import (
	"context"
	"net/http"
	"slices"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/llm"
)

// ScopeModels is the [Scope] of lists of models.
const ScopeModels Scope = "models"

// A ModelLister is a [Backend] that can list its models.
type ModelLister interface {
	// ListModels returns the models in the order in which clients see them.
	ListModels(ctx context.Context) ([]llm.Model, error)
}

// A modelList is the reply to GET /v1/models.
type modelList struct{ data []llm.Model }

var modelListJSON = jsonwire.NewObject(
	jsonwire.Constant[modelList]("object", membername.ObjectList),
	jsonwire.List("data", func(l *modelList) *[]llm.Model { return &l.data }, modelJSON, 0).Always(),
)

var modelsOperation = operation{scope: ScopeModels, supportedBy: Has[ModelLister]}

// decodeListModels decodes GET /v1/models.
func decodeListModels(context.Context, *http.Request, []byte) (func(b []byte, models []llm.Model) ([]byte, error), error) {
	return func(b []byte, models []llm.Model) ([]byte, error) { return modelListJSON.Append(b, &modelList{models}) }, nil
}

// decodeGetModel decodes GET /v1/models/{id}.
func decodeGetModel(_ context.Context, r *http.Request, _ []byte) (func(b []byte, models []llm.Model) ([]byte, error), error) {
	id := r.PathValue("id")
	return func(b []byte, models []llm.Model) ([]byte, error) {
		i := slices.IndexFunc(models, func(m llm.Model) bool { return m.ID == id })
		if i < 0 {
			return nil, llm.ModelNotFound(id)
		}
		return modelJSON.Append(b, &models[i])
	}, nil
}

// listModels calls the method of a [ModelLister].
func listModels(ctx context.Context, b Backend) ([]llm.Model, error) {
	lister, ok := As[ModelLister](ctx, b)
	if !ok {
		return nil, errMissing[ModelLister]()
	}
	return lister.ListModels(ctx)
}

// BindModels binds a route to the list of models, with [ScopeModels]. encode gets the models
// that the key may use, in the order of the Backend, and owns the slice. The request counts
// against the limits on requests, and is not recorded as usage. If the Backend is no
// [ModelLister], the client gets a 404. See "Protocols" in the package documentation.
func BindModels(decode func(ctx context.Context, r *http.Request, body []byte) (
	encode func(b []byte, models []llm.Model) ([]byte, error), err error)) Binding {
	mustBeSet(decode != nil)
	return modelsOperation.bindCall(func(c *Call) error {
		var encode func(b []byte, models []llm.Model) ([]byte, error)
		err := c.q.withBody(func(ctx context.Context, r *http.Request, body []byte) (err error) {
			if encode, err = decode(ctx, r, body); err == nil && encode == nil {
				err = errNothingDecoded
			}
			return err
		})
		if err != nil {
			return err
		}
		var allowed []llm.Model
		err = c.Check(func(ctx context.Context, b Backend) error {
			models, err := listModels(ctx, b)
			allowed = make([]llm.Model, 0, len(models))
			for _, m := range models {
				if m.ID != "" && c.q.allowsModel(m.ID) {
					allowed = append(allowed, m)
				}
			}
			return err
		})
		if err != nil {
			return err
		}
		return c.Reply(contentTypeJSON, func(b []byte) ([]byte, error) { return encode(b, allowed) })
	})
}
