// The operation that lists models: constants, interface and descriptor.

package llmhttp

import (
	"context"
	"net/http"
	"slices"

	"github.com/llmhttp/llmhttp/internal/openai"
	"github.com/llmhttp/llmhttp/llm"
)

// ScopeModels is the [Scope] of lists of models.
const ScopeModels Scope = "models"

// A ModelLister is a [Backend] that can list its models.
type ModelLister interface {
	// ListModels returns the models in the order in which clients see them.
	ListModels(ctx context.Context) ([]llm.Model, error)
}

var modelsOperation = operation{scope: ScopeModels, supportedBy: Has[ModelLister]}

// decodeListModels decodes GET /v1/models.
func decodeListModels(context.Context, *http.Request, []byte) (func(b []byte, models []llm.Model) ([]byte, error), error) {
	return openai.AppendModels, nil
}

// decodeGetModel decodes GET /v1/models/{id}.
func decodeGetModel(_ context.Context, r *http.Request, _ []byte) (func(b []byte, models []llm.Model) ([]byte, error), error) {
	id := r.PathValue("id")
	return func(b []byte, models []llm.Model) ([]byte, error) {
		i := slices.IndexFunc(models, func(m llm.Model) bool { return m.ID == id })
		if i < 0 {
			return nil, llm.ModelNotFound(id)
		}
		return openai.AppendModel(b, &models[i])
	}, nil
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
			models, err := callAbility(ctx, b, func(l ModelLister, ctx context.Context, _ any) ([]llm.Model, error) { return l.ListModels(ctx) }, nil)
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
