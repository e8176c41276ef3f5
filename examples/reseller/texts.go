package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/examples/redaction/replacer"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/textfilter"
)

// wrap returns the Backend of a tenant around b: with its instructions, and without the texts that
// the model must not see. The filter is outside, so it also sees every request that b gets.
func (t *tenant) wrap(b llmhttp.Backend) llmhttp.Backend {
	var hide, restore []string
	for i, text := range t.Hide {
		placeholder := fmt.Sprintf("[%d]", i+1)
		hide, restore = append(hide, text, placeholder), append(restore, placeholder, text)
	}
	return textfilter.New(instructed{b, t.Instructions}, func(context.Context) textfilter.Filter {
		return textfilter.Filter{Request: replacer.New(hide...).Request, Reply: replacer.New(restore...).Reply}
	})
}

// An instructed Backend gives the tenant's instructions to the model.
type instructed struct {
	llmhttp.Backend
	instructions string
}

// Unwrap passes on all methods of the Backend but Chat: see [llmhttp.As].
func (i instructed) Unwrap(context.Context) llmhttp.Backend { return i.Backend }

func (i instructed) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	if i.instructions != "" {
		req.Messages = slices.Insert(req.Messages, 0, llm.Message{Role: llm.RoleSystem, Content: llm.TextContent(i.instructions)})
	}
	return i.Backend.Chat(ctx, req)
}

// observe logs the texts of those tenants that ask for it, and collects none of the others.
func observe(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
	return ctx, llmhttp.Observation{
		WantTranscript: func(ctx context.Context, _ *llmhttp.RequestInfo) bool {
			return llmhttp.KeyFrom(ctx).Data.(*tenant).LogTexts
		},
		Transcript: func(t *llmhttp.Transcript) {
			slog.InfoContext(ctx, "texts", "request_id", llmhttp.RequestIDFrom(ctx), "messages", t.Messages, "choices", t.Choices)
		},
	}
}

// usageCSV serves what the account of a key used in the last 31 days, by day and model.
func usageCSV(h *llmhttp.Handler, keys llmhttp.KeyStore, usage llmhttp.UsageStore) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key, err := keys.Lookup(r.Context(), llmhttp.BearerSecret(r))
		if err != nil {
			h.WriteError(w, r, llm.Errorf(http.StatusUnauthorized, "invalid_api_key", "The API key is not valid."))
			return
		}
		to := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)
		sums, err := usage.Query(
			r.Context(),
			llmhttp.UsageQuery{Account: key.Account, From: to.AddDate(0, 0, -31), To: to, Step: 24 * time.Hour},
		)
		if err != nil {
			h.WriteError(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "text/csv")
		out := csv.NewWriter(w)
		out.Write([]string{"day", "model", "requests", "tokens", "dollars"})
		for _, s := range sums {
			out.Write(
				[]string{
					s.Start.Format(time.DateOnly),
					spreadsheetText(s.Model),
					fmt.Sprint(s.Requests),
					fmt.Sprint(s.Units.Tokens()),
					s.Cost.Total().String(),
				},
			)
		}
		out.Flush()
		if err := out.Error(); err != nil {
			slog.Warn("usage.csv not sent", "error", err)
		}
	}
}

// spreadsheetText returns s with an apostrophe before what a spreadsheet takes for a formula: a text that begins
// with one of these characters, also in full width, or with white space, which spreadsheets skip.
func spreadsheetText(s string) string {
	for _, start := range "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20" {
		if strings.HasPrefix(s, string(start)) {
			return "'" + s
		}
	}
	return s
}
