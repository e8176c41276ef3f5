package llmhttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// fieldName returns the name of a field in JSON and in databases: CacheWriteTokens is
// cache_write_tokens.
func fieldName(field string) string {
	name := regexp.MustCompile("[A-Z]+[a-z]*|[0-9]+[a-z]*").ReplaceAllString(field, "_$0")
	return strings.ToLower(strings.TrimPrefix(name, "_"))
}

// setNumbers sets each field of v that is an int64 to another number from first on.
func setNumbers(v any, first int64) {
	fields := reflect.ValueOf(v).Elem()
	for i := range fields.NumField() {
		if f := fields.Field(i); f.CanInt() {
			f.SetInt(first + int64(i))
		}
	}
}

// Each number of Units and Cost has its place in All, Add and JSON.
func TestUnitsAndCost_EveryField(t *testing.T) {
	var units, more llmhttp.Units
	setNumbers(&units, 1)
	setNumbers(&more, 1000)
	var fields []reflect.StructField
	for _, f := range reflect.VisibleFields(reflect.TypeFor[llmhttp.Units]()) {
		if f.Type.Kind() == reflect.Int64 {
			fields = append(fields, f)
		}
	}
	var got []int64
	for name, n := range units.All() {
		assert.Equal(t, fieldName(fields[len(got)].Name), name)
		got = append(got, *n)
		*n += 0 // the pointer refers to the field
	}
	require.Len(t, got, len(fields))
	units.Add(more)
	i := int64(0)
	for _, n := range units.All() {
		assert.Equal(t, 2*got[i]+999, *n)
		i++
	}
	units.CacheWrites = llm.CacheWrites{time.Hour: 3}
	for range units.All() {
		break
	}

	var cost, another llmhttp.Cost
	setNumbers(&cost, 1)
	setNumbers(&another, 1000)
	var total llm.Money
	parts := reflect.TypeFor[llmhttp.Cost]()
	i = 0
	for name, m := range cost.All() {
		assert.Equal(t, fieldName(parts.Field(int(i)).Name), name)
		assert.EqualValues(t, 1+i, *m)
		total += *m
		i++
	}
	require.EqualValues(t, parts.NumField(), i)
	assert.Equal(t, total, cost.Total())
	cost.Add(another)
	assert.Equal(t, total+another.Total(), cost.Total())

	for _, v := range []any{units, cost} {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		var members map[string]any
		require.NoError(t, json.Unmarshal(b, &members))
		v := reflect.ValueOf(v)
		assert.Len(t, members, v.NumField())
		for i := range v.NumField() {
			want, err := json.Marshal(v.Field(i).Interface())
			require.NoError(t, err)
			got, err := json.Marshal(members[fieldName(v.Type().Field(i).Name)])
			require.NoError(t, err)
			assert.Equal(t, string(want), string(got))
		}
	}
}

func TestUnits_AddSaturates(t *testing.T) {
	u := llmhttp.Units{Images: math.MaxInt64 - 1, Characters: 1}
	u.Add(llmhttp.Units{Images: 5, Characters: 2})
	assert.Equal(t, llmhttp.Units{Images: math.MaxInt64, Characters: 3}, u)
	assert.Equal(t, int64(math.MaxInt64), llmhttp.Units{PromptTokens: math.MaxInt64, CompletionTokens: 1}.Tokens())
	s := llmhttp.UsageSum{Requests: math.MaxInt64}
	s.Add(llmhttp.UsageSum{Requests: 1, Unpriced: 2, Cost: llmhttp.Cost{Other: 3}})
	assert.Equal(t, llmhttp.UsageSum{Requests: math.MaxInt64, Unpriced: 2, Cost: llmhttp.Cost{Other: 3}}, s)
}

// Each number of tokens of a Usage but the total is a unit.
func TestUsage_Units(t *testing.T) {
	var u llm.Usage
	next := 0
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Int:
				if v.Type().Field(i).Name != "TotalTokens" {
					next++
					f.SetInt(int64(next))
				}
			case reflect.Struct:
				fill(f)
			}
		}
	}
	fill(reflect.ValueOf(&u).Elem())
	seen := map[int64]bool{}
	units := llmhttp.UnitsOf(u)
	for _, n := range units.All() {
		if *n != 0 {
			assert.False(t, seen[*n])
			seen[*n] = true
		}
	}
	assert.Len(t, seen, next)
	assert.Equal(t, llmhttp.Units{PromptTokens: 1}, llmhttp.UnitsOf(llm.Usage{PromptTokens: 1, CompletionTokens: -5}))
}

func TestUsageRecord_Sum(t *testing.T) {
	record := llmhttp.UsageRecord{Time: day(2026, 3, 1), Model: "m"}
	setNumbers(&record.Units, 1)
	setNumbers(&record.Cost, 100)
	want := llmhttp.UsageSum{Start: record.Time, Model: "m", Requests: 1, Units: record.Units, Cost: record.Cost}
	assert.Equal(t, want, record.Sum())
	record.Part, record.Unpriced = 1, true
	want.Requests, want.Unpriced = 0, 1
	assert.Equal(t, want, record.Sum())
	assert.Equal(t, 6, reflect.TypeFor[llmhttp.UsageSum]().NumField(), "a new field needs a place in Add and Sum")
}

func TestUsageQuery_Includes(t *testing.T) {
	r := &llmhttp.UsageRecord{
		Time: day(2026, 3, 1), Account: "a", KeyID: "k", User: "u", Subjects: []llmhttp.SubjectID{{Kind: "team", ID: "t"}},
	}
	all := llmhttp.UsageQuery{Account: "a", From: r.Time, To: r.Time.Add(1)}
	for subject, want := range map[llmhttp.SubjectID]bool{
		{}: true, {Kind: llmhttp.KindAccount, ID: "a"}: true, {Kind: llmhttp.KindKey, ID: "k"}: true, {Kind: llmhttp.KindUser, ID: "u"}: true, {Kind: "team", ID: "t"}: true,
		{ID: "a"}: false, {Kind: llmhttp.KindAccount, ID: "k"}: false, {Kind: llmhttp.KindKey, ID: "a"}: false, {Kind: llmhttp.KindUser}: false, {Kind: "team", ID: "u"}: false, {Kind: "x", ID: "t"}: false,
	} {
		q := all
		q.Subject = subject
		assert.Equal(t, want, q.Includes(r), "%+v", subject)
	}
	for _, q := range []llmhttp.UsageQuery{{Account: "b", From: all.From, To: all.To}, {Account: "a", From: all.To, To: all.To.Add(1)}, {Account: "a", From: all.From.Add(-1), To: all.From}} {
		assert.False(t, q.Includes(r))
	}
	anonymous := llmhttp.UsageQuery{Account: "a", Subject: llmhttp.SubjectID{Kind: llmhttp.KindUser}, From: all.From, To: all.To}
	assert.False(t, anonymous.Includes(&llmhttp.UsageRecord{Account: "a", Time: r.Time}), "requests without a user are not those of one user")
}

func TestValidateLabels(t *testing.T) {
	label := func(name, value string) []llmhttp.Label { return []llmhttp.Label{{Name: name, Value: value}} }
	var eight []llmhttp.Label
	for i := range 8 {
		eight = append(eight, label(fmt.Sprint("name", i), "")...)
	}
	for _, labels := range [][]llmhttp.Label{nil, label("a", ""), label(strings.Repeat("n", 64), strings.Repeat("v", 256)), label("\u6a21", "="), eight} {
		assert.NoError(t, llmhttp.ValidateLabels(labels))
	}
	for text, labels := range map[string][]llmhttp.Label{
		"more than 8":             append(eight[:8:8], label("a", "")...),
		"the name of label 0":     label("", "v"),
		"1 to 64 bytes":           label(strings.Repeat("n", 65), ""),
		"without control":         label("a\x00", ""),
		`the value of label "a"`:  label("a", "\n"),
		"at most 256 bytes":       label("a", strings.Repeat("v", 257)),
		`label "b" must be text`:  label("b", "\xff"),
		`two labels with the nam`: append(label("a", "1"), label("a", "2")...),
	} {
		assert.ErrorContains(t, llmhttp.ValidateLabels(labels), text)
	}
}

// A record tells who asked for what, and who served it.
func TestUsageRecord_Fields(t *testing.T) {
	now := day(2026, 3, 1)
	newConfig := func(backend llmhttp.Backend, key llmhttp.Key) config {
		return config{backend: backend, keys: keysFor(key), opts: llmhttp.Options{Now: func() time.Time { return now }, RequestID: func(*http.Request) string { return "req_1" }}}
	}
	tier := func(value string) llm.Extra { return llm.Extra{"service_tier": json.RawMessage(value)} }
	key := llmhttp.Key{ID: "key_1", Account: "acme", Labels: []llmhttp.Label{{Name: "project", Value: "x"}, {Name: "team", Value: "y"}}}
	t.Run("chat", func(t *testing.T) {
		for mode, body := range chatModes {
			t.Run(mode, func(t *testing.T) {
				var label error
				s := startServer(t, newConfig(llmhttp.BackendFunc(func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
					for _, target := range []string{"first", "second"} {
						_, end := llmhttp.StartTry(ctx, target)
						end(nil)
					}
					label = llmhttp.AddLabel(ctx, "team", "z")
					first := llm.TextChunk("Hello!")
					first.Model, first.Extra = "served-model", tier(`"priority"`)
					return streamOf(first, &llm.ChatChunk{Extra: tier(`"default"`)}, chunkWithUsage("", usageOf(7, 3)))
				}), key))
				require.Equal(t, 200, s.chat(body).StatusCode)
				require.NoError(t, label)
				assert.Equal(t, llmhttp.UsageRecord{
					ID: "req_1", RequestID: "req_1", Time: now, Account: "acme", KeyID: "key_1", Protocol: "chat", Operation: llmhttp.OperationChat,
					Model: "demo-chat", ServedModel: "served-model", Target: "second", ServiceTier: "default",
					Labels: []llmhttp.Label{{Name: "project", Value: "x"}, {Name: "team", Value: "z"}},
					Units:  llmhttp.Units{PromptTokens: 7, CompletionTokens: 3},
				}, s.record())
				assert.Equal(t, s.record(), s.summary().Record)
			})
		}
	})
	t.Run("names that cannot be recorded", func(t *testing.T) {
		c := llm.TextChunk("Hello!")
		c.Model, c.Extra = strings.Repeat("m", 513), tier(`5`)
		s := startServer(t, newConfig(streamBackend(func(_ context.Context, yield yieldFunc) { yield(c, nil) }), key))
		s.chat(chatBody)
		assert.Empty(t, s.record().ServedModel)
		assert.Empty(t, s.record().ServiceTier)
	})
	t.Run("images", func(t *testing.T) {
		s := startServer(t, newConfig(&stubBackend{images: func(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) {
			return &llm.ImageResponse{Data: make([]llm.Image, 2)}, nil
		}}, key))
		s.do("POST", imagesPath, `{"model":"m","prompt":"x","n":2,"quality":"hd"}`)
		assert.Equal(t, llmhttp.UsageRecord{
			ID: "req_1", RequestID: "req_1", Time: now, Account: "acme", KeyID: "key_1", Protocol: "chat", Operation: llmhttp.OperationImages,
			Model: "m", ImageSize: "1024x1024", ImageQuality: "hd", Labels: key.Labels, Units: llmhttp.Units{Images: 2},
			ErrorClass: llmhttp.ClassBackend, // the images are empty
		}, s.record())
	})
	t.Run("embeddings", func(t *testing.T) {
		s := startServer(t, newConfig(&stubBackend{embed: func(context.Context, *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
			return &llm.EmbeddingResponse{Model: "served", Vectors: [][]float32{{1}}, Usage: &llm.Usage{PromptTokens: 5}}, nil
		}}, key))
		s.do("POST", embeddingsPath, embeddingBody)
		assert.Equal(t, llmhttp.OperationEmbeddings, s.record().Operation)
		assert.Equal(t, "served", s.record().ServedModel)
		assert.Equal(t, llmhttp.Units{PromptTokens: 5}, s.record().Units)
	})
}

// Labels of a Key that are out of bounds are dropped and logged. The request is served.
func TestUsageRecord_LabelsOutOfBounds(t *testing.T) {
	var labels []llmhttp.Label
	for i := range 8 {
		labels = append(labels, llmhttp.Label{Name: fmt.Sprint("name", i)})
	}
	serve := func(labels []llmhttp.Label, add ...string) *testServer {
		s := startServer(t, config{keys: keysFor(llmhttp.Key{ID: "key_1", Labels: labels}), backend: llmhttp.BackendFunc(func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
			for _, name := range add {
				assert.NoError(t, llmhttp.AddLabel(ctx, name, "added"))
			}
			return llm.Reply("Hello!")
		})})
		require.Equal(t, 200, s.chat(chatBody).StatusCode)
		return s
	}
	const message = "labels of the key not recorded"
	s := serve(append(labels[:2:2], llmhttp.Label{Name: "name0"}, llmhttp.Label{Name: "\x00"}))
	assert.Equal(t, labels[:2], s.record().Labels)
	assert.Contains(t, s.log.String(), message)

	s = serve(labels, "name7", "another")
	want := append(labels[:6:6], llmhttp.Label{Name: "name7", Value: "added"}, llmhttp.Label{Name: "another", Value: "added"})
	assert.Equal(t, want, s.record().Labels)
	assert.Contains(t, s.log.String(), message)

	s = serve(labels, "name7")
	assert.Len(t, s.record().Labels, 8)
	assert.NotContains(t, s.log.String(), message)

	assert.Error(t, llmhttp.AddLabel(t.Context(), "a", "b"), "there is no request")
	s = startServer(t, config{backend: llmhttp.BackendFunc(func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
		assert.Error(t, llmhttp.AddLabel(ctx, "", "b"))
		return llm.Reply("Hello!")
	})})
	s.chat(chatBody)
	assert.Empty(t, s.record().Labels)
}

// The tests that go through testOperations are for all operations that call a model.
func TestOperations_HaveARequest(t *testing.T) {
	var served []llmhttp.Operation
	for _, op := range testOperations {
		s := startServer(t, config{})
		require.Equal(t, 200, s.do("POST", op.path, op.body).StatusCode)
		assert.Equal(t, op.name, s.record().Operation)
		assert.Equal(t, op.scope, s.summary().Scope)
		served = append(served, op.name)
	}
	assert.ElementsMatch(t, llmhttp.Operations(), served)
}
