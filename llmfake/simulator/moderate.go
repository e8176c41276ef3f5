// Moderations.

package simulator

import (
	"context"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/moderation"
)

// harmCategories are the categories of omni-moderation-latest.
var harmCategories = []string{
	"harassment", "harassment/threatening", "hate", "hate/threatening", "illicit", "illicit/violent", "self-harm",
	"self-harm/instructions", "self-harm/intent", "sexual", "sexual/minors", "violence", "violence/graphic",
}

// The scores of texts that belong to a category, and of others.
const (
	harmScore     = 0.99
	harmlessScore = 0.01
)

// Moderate implements [moderation.Moderator].
func (b *Backend) Moderate(ctx context.Context, req *moderation.Request) (*moderation.Response, error) {
	if req.Model != ModelModeration {
		return nil, llm.ModelNotFound(req.Model)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	resp := &moderation.Response{Model: req.Model, Usage: new(llm.Usage)}
	texts, types := req.Input.Texts, []string{"text"}
	if parts := req.Input.Parts; parts != nil {
		texts = []string{llm.Content(parts).Text()}
		if slices.ContainsFunc(parts, func(p llm.Part) bool { return p.Type == llm.PartImage }) {
			types = append(types, "image")
		}
	}
	for _, text := range texts {
		resp.Usage.PromptTokens += CountTokens(req.Model, text)
		resp.Results = append(resp.Results, moderate(text, types))
	}
	resp.Usage.TotalTokens = resp.Usage.PromptTokens
	return resp, nil
}

func moderate(text string, types []string) moderation.Result {
	r := moderation.Result{
		Categories: make(map[string]bool), Scores: make(map[string]float64), InputTypes: make(map[string][]string),
	}
	text = strings.ToLower(text)
	for _, category := range harmCategories {
		harmful, score := true, harmScore
		for word := range strings.SplitSeq(category, "/") {
			harmful = harmful && strings.Contains(text, word)
		}
		if !harmful {
			score = harmlessScore
		}
		r.Categories[category], r.Scores[category], r.InputTypes[category] = harmful, score, types
		r.Flagged = r.Flagged || harmful
	}
	return r
}
