package llmhttptest

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/moderation"
)

type (
	moderationReq  = moderation.Request
	moderationResp = moderation.Response
)

func (e *echo) Moderate(_ context.Context, req *moderationReq) (*moderationResp, error) {
	return e.moderate(req)
}

// findHate flags texts with the word "hate".
func findHate(req *moderationReq) (*moderationResp, error) {
	if req.Model != "moderate" {
		return nil, llm.ModelNotFound(req.Model)
	}
	texts := req.Input.Texts
	if req.Input.Parts != nil {
		texts = []string{llm.Content(req.Input.Parts).Text()}
	}
	resp := &moderationResp{Usage: &llm.Usage{PromptTokens: len(texts)}}
	for _, text := range texts {
		hate := strings.Contains(text, "hate")
		resp.Results = append(resp.Results, moderation.Result{
			Flagged: hate, Categories: map[string]bool{"hate": hate}, Scores: map[string]float64{"hate": 0.5}, InputTypes: map[string][]string{"hate": {"text"}},
		})
	}
	return resp, nil
}

// moderating returns a constructor of a Backend with another Moderate.
func moderating(f func(req *moderationReq) (*moderationResp, error)) func(testing.TB) backendTest {
	return backendFixture(func(e *echo) { e.moderate = f })
}

// editingModeration returns a constructor of a Backend that changes its response.
func editingModeration(edit func(resp *moderationResp)) func(testing.TB) backendTest {
	return moderating(func(req *moderationReq) (*moderationResp, error) {
		resp, err := findHate(req)
		if err == nil {
			edit(resp)
		}
		return resp, err
	})
}

var moderationMutants = []mutant[backendTest]{
	{"Moderate is not implemented", "Moderations", chatOnly},
	{"the last result is missing", "Moderations", editingModeration(func(resp *moderationResp) { resp.Results = resp.Results[1:] })},
	{"equal texts are dropped", "Moderations", moderating(func(req *moderationReq) (*moderationResp, error) {
		req.Input.Texts = slices.Compact(req.Input.Texts)
		return findHate(req)
	})},
	{"each part has a result", "Moderations", moderating(func(req *moderationReq) (*moderationResp, error) {
		resp, err := findHate(req)
		if n := len(req.Input.Parts); n > 0 && err == nil {
			resp.Results = slices.Repeat(resp.Results, n)
		}
		return resp, err
	})},
	{"images are a server error", "Moderations", moderating(func(req *moderationReq) (*moderationResp, error) {
		if slices.ContainsFunc(req.Input.Parts, func(p llm.Part) bool { return p.ImageURL != nil }) {
			return nil, errNotImplemented
		}
		return findHate(req)
	})},
	{"a harmful text is not flagged", "Moderations", editingModeration(func(resp *moderationResp) { resp.Results[0].Categories["x"] = true })},
	{"a score is NaN", "Moderations", editingModeration(func(resp *moderationResp) { resp.Results[0].Scores["x"] = math.NaN() })},
	{"an input type is unknown", "Moderations", editingModeration(func(resp *moderationResp) { resp.Results[0].InputTypes["x"] = []string{"image_url"} })},
	{"the usage is negative", "Moderations", editingModeration(func(resp *moderationResp) { resp.Usage.PromptTokens = -1 })},
	{"the Extra of the response is invalid", "Moderations", editingModeration(func(resp *moderationResp) { resp.Extra = invalid })},
	{"the Extra of a result is invalid", "Moderations", editingModeration(func(resp *moderationResp) { resp.Results[0].Extra = invalid })},
	{"the response and the error are nil", "Moderations", moderating(func(*moderationReq) (*moderationResp, error) { return nil, nil })},
	{"concurrent calls are refused", "Moderations", backendFixture(func(e *echo) { e.moderate = exclusive(findHate) })},

	{"harmful texts come first", "ModerationOrder", editingModeration(func(resp *moderationResp) {
		slices.SortStableFunc(resp.Results, func(a, b moderation.Result) int {
			switch {
			case a.Flagged && !b.Flagged:
				return -1
			case b.Flagged && !a.Flagged:
				return 1
			}
			return 0
		})
	})},

	{"any model is accepted", "ModerationUnknownModel", moderating(func(req *moderationReq) (*moderationResp, error) { req.Model = "moderate"; return findHate(req) })},
	{"an unknown model is a server error", "ModerationUnknownModel", moderating(func(req *moderationReq) (*moderationResp, error) {
		resp, err := findHate(req)
		if err != nil {
			err = errors.New("no such model")
		}
		return resp, err
	})},
	{"the context is ignored", "ModerationCancelled", moderating(delayed(findHate))},
}
