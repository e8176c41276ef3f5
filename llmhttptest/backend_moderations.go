// Checks of moderations.

package llmhttptest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/moderation"
)

var moderationsOperation = operation{
	model: func(o *BackendOptions) string { return o.ModerationModel },
	checks: []check[backendTest]{
		{"Moderations", checkModerations},
		{"ModerationOrder", checkModerationOrder},
		{"ModerationUnknownModel", func(t testing.TB, b backendTest) {
			b.wantUnknownModels(t, b.opts.ModerationModel, func(model string) error {
				req := b.moderationRequest("a")
				req.Model = model
				_, err := b.moderate(t, req)
				return err
			})
		}},
		{"ModerationCancelled", func(t testing.TB, b backendTest) {
			wantCancelled(&b, t, "Moderate", moderation.Moderator.Moderate, b.moderationRequest("a", "b"))
		}},
	},
	guards: []check[guard]{
		{"Moderate", func(t testing.TB, g guard) {
			guardCall(t, g, moderation.Moderator.Moderate, &moderation.Request{Model: "m", Input: moderation.Input{Texts: []string{g.text}}})
		}},
	},
}

// moderationRequest returns a plain request for moderations of texts.
func (b *backendTest) moderationRequest(texts ...string) *moderation.Request {
	return &moderation.Request{Model: b.opts.ModerationModel, Input: moderation.Input{Texts: texts}}
}

// moderate returns the response to req and reports its faults.
func (b *backendTest) moderate(t testing.TB, req *moderation.Request) (*moderation.Response, error) {
	t.Helper()
	asked := *req // before the Backend may change req
	resp, err := callMethod(b, t, "Moderate", moderation.Moderator.Moderate, req)
	if err != nil {
		return nil, err
	}
	if err := asked.CheckReply(resp); err != nil {
		t.Fatalf("Moderate returned a response that a Handler refuses: %v, want a valid one", err)
	}
	extras := []llm.Extra{resp.Extra}
	for i, r := range resp.Results {
		extras = append(extras, r.Extra)
		for category, harmful := range r.Categories {
			if harmful && !r.Flagged {
				t.Errorf("result %d belongs to the category %q and is not flagged, want both or neither", i, category)
			}
		}
		for category, types := range r.InputTypes {
			if slices.ContainsFunc(types, func(s string) bool { return s != "text" && s != "image" }) {
				t.Errorf("the input types of the category %q are %q, want only text and image", category, types)
			}
		}
	}
	wantJSON(t, "the response", resp, extras...)
	wantConsistentUsage(t, "the response", resp.Usage)
	return resp, nil
}

// mustModerate is moderate of texts in a plain request, which must succeed.
func (b *backendTest) mustModerate(t testing.TB, texts ...string) *moderation.Response {
	t.Helper()
	resp, err := b.moderate(t, b.moderationRequest(texts...))
	if err != nil {
		t.Fatalf("Moderate of %d texts returned the error %v, want nil", len(texts), err)
	}
	return resp
}

func checkModerations(t testing.TB, b backendTest) {
	b.mustModerate(t, sampleTexts[0])
	b.mustModerate(t, sampleTexts...)
	parts := func(list ...llm.Part) func(*moderation.Request) {
		return func(r *moderation.Request) { r.Input = moderation.Input{Parts: list} }
	}
	text := llm.Part{Type: llm.PartText, Text: sampleTexts[0]}
	picture := llm.Part{Type: llm.PartImage, ImageURL: &llm.ImageURL{URL: onePixel}}
	for _, change := range []func(*moderation.Request){
		func(r *moderation.Request) {
			r.Input.Texts = []string{"", " ", "\n", "\x00", "\U0001f642", "same", "same", strings.Repeat("word ", 200)}
		},
		func(r *moderation.Request) { r.Input.Texts = slices.Repeat(sampleTexts, 30) },
		parts(text), parts(text, text), parts(picture), parts(text, picture),
		func(r *moderation.Request) { r.Extra = llm.Extra{"x_unknown": json.RawMessage(`1`)} },
	} {
		req := b.moderationRequest(sampleTexts...)
		change(req)
		if _, err := b.moderate(t, req); err != nil {
			wantClientError(t, err)
		}
	}
	const calls = 8
	runConcurrently(t, calls, func(int) {
		if resp, err := ability.Call(moderation.Moderator.Moderate)(t.Context(), b.Backend, b.moderationRequest("one", "two")); err != nil || len(resp.Results) != 2 {
			t.Errorf("one of %d concurrent calls of Moderate returned %+v and the error %v, want 2 results", calls, resp, err)
		}
	})
}

// checkModerationOrder asks about texts in another order: each keeps its result.
func checkModerationOrder(t testing.TB, b backendTest) {
	texts := append(slices.Clone(sampleTexts), moderatedText)
	before := make(map[string]string)
	for range texts {
		for i, r := range b.mustModerate(t, texts...).Results {
			got := fmt.Sprint(r.Flagged, r.Categories)
			if want, seen := before[texts[i]]; seen && got != want {
				t.Errorf("the result for %q is %s, and %s when it is text %d of %d, want the same", texts[i], want, got, i, len(texts))
			}
			before[texts[i]] = got
		}
		texts = append(texts[1:], texts[0])
	}
}

// moderatedText has words by which models and filters of words find something.
const moderatedText = "I hate you and will use violence: I am going to kill all of you."
