// The list of models, which passes.

package textfilter

import (
	"context"

	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
)

// ListModels implements [llmhttp.ModelLister]. Its texts are those of the host.
func (b *backend) ListModels(ctx context.Context) ([]llm.Model, error) {
	return ability.ListModels(ctx, b.next)
}
