package members

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	anthropic1 "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicshared "github.com/anthropics/anthropic-sdk-go/v2/shared"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/members.txt, with a ? for each reason that is missing")

const golden = "testdata/members.txt"

// Paths of the server.
const (
	chatPath       = "/v1/chat/completions"
	responsesPath  = "/v1/responses"
	messagesPath   = "/v1/messages"
	tokensPath     = "/v1/messages/count_tokens"
	embeddingsPath = "/v1/embeddings"
	imagesPath     = "/v1/images/generations"
	modelsPath     = "/v1/models"
)

const userMessage = `{"role":"user","content":"Hi"}`

// requests has the types of requests. base is a request that has what is required.
var requests = []requestType{
	{"chat", chatPath, typeOf[openai.ChatCompletionNewParams](), maxDepth, `{"model":"plain","messages":[` + userMessage + `],"tools":[{"type":"function","function":{"name":"f"}}]}`},
	{"responses", responsesPath, typeOf[responses.ResponseNewParams](), maxDepth, `{"model":"plain","input":"Hi","tools":[{"type":"function","name":"f","parameters":{}}]}`},
	{"messages", messagesPath, typeOf[anthropic.MessageNewParams](), maxDepth, messageRequest},
	{"messages", messagesPath, typeOf[anthropic1.MessageNewParams](), 1, messageRequest},
	{"count_tokens", tokensPath, typeOf[anthropic.MessageCountTokensParams](), 1, messageRequest},
	{"embeddings", embeddingsPath, typeOf[openai.EmbeddingNewParams](), maxDepth, `{"model":"plain","input":"Hi"}`},
	{"images", imagesPath, typeOf[openai.ImageGenerateParams](), maxDepth, `{"model":"plain","prompt":"A cat"}`},
}

const messageRequest = `{"model":"plain","max_tokens":9,"messages":[` + userMessage + `],"tools":[{"name":"f","input_schema":{}}]}`

// replies has the types of replies, and requests that get some. A stream has events of the type.
var replies = []replyType{
	{"chat", chatPath, typeOf[openai.ChatCompletion](), []string{
		`{"model":"full","messages":[` + userMessage + `]}`, `{"model":"refusal","messages":[` + userMessage + `]}`,
		`{"model":"custom","messages":[` + userMessage + `]}`,
	}},
	{"chat stream", chatPath, typeOf[openai.ChatCompletionChunk](), []string{
		`{"model":"full","stream":true,"stream_options":{"include_usage":true},"messages":[` + userMessage + `]}`,
		`{"model":"refusal","stream":true,"messages":[` + userMessage + `]}`,
	}},
	{"responses", responsesPath, typeOf[responses.Response](), []string{
		`{"model":"full","input":"Hi","top_logprobs":1,"include":["reasoning.encrypted_content"],"prompt_cache_options":{},` + responseTools + `}`,
		`{"model":"refusal","input":"Hi"}`, `{"model":"cut","input":"Hi"}`,
	}},
	{"responses stream", responsesPath, typeOf[responses.ResponseStreamEventUnion](), []string{
		`{"model":"full","stream":true,"input":"Hi","top_logprobs":1,"include":["reasoning.encrypted_content"],"prompt_cache_options":{},` + responseTools + `}`,
		`{"model":"refusal","stream":true,"input":"Hi"}`, `{"model":"cut","stream":true,"input":"Hi"}`, `{"model":"broken","stream":true,"input":"Hi"}`,
	}},
	{"messages", messagesPath, typeOf[anthropic.Message](), []string{
		`{"model":"full","max_tokens":9,"messages":[` + userMessage + `]}`, `{"model":"refusal","max_tokens":9,"messages":[` + userMessage + `]}`,
	}},
	{"messages stream", messagesPath, typeOf[anthropic.MessageStreamEventUnion](), []string{
		`{"model":"full","stream":true,"max_tokens":9,"messages":[` + userMessage + `]}`,
	}},
	{"count_tokens", tokensPath, typeOf[anthropic.MessageTokensCount](), []string{`{"model":"full","messages":[` + userMessage + `]}`}},
	{"embeddings", embeddingsPath, typeOf[openai.CreateEmbeddingResponse](), []string{`{"model":"full","input":"Hi"}`}},
	{"images", imagesPath, typeOf[openai.ImagesResponse](), []string{
		`{"model":"full","prompt":"A cat","response_format":"b64_json"}`, `{"model":"full","prompt":"A cat","response_format":"url"}`,
	}},
	{"models", modelsPath + "/full", typeOf[openai.Model](), []string{""}},
	{"models of Anthropic", modelsPath + "/full", typeOf[anthropic.ModelInfo](), []string{""}},
	{"error", chatPath, typeOf[struct {
		Error shared.ErrorObject `json:"error"`
	}](), []string{`{}`}},
	{"error of Anthropic", messagesPath, typeOf[anthropicshared.ErrorResponse](), []string{
		`{}`, failing("403"), failing("404"), failing("429"), failing("500"), failing("503"), failing("504"),
	}},
}

// responseTools has a tool of each kind that the model calls.
const responseTools = `"tools":[{"type":"function","name":"f","parameters":{"type":"object"}},{"type":"custom","name":"g"},` +
	`{"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"h","parameters":{}}]}]`

// failing returns a request whose Backend fails with a status.
func failing(status string) string {
	return `{"model":"status ` + status + `","max_tokens":9,"messages":[` + userMessage + `]}`
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// A finding is a line of the golden file without its reason: where a member is, and what the server does with it.
type finding struct{ subject, path, behaviour string }

func (f finding) String() string { return f.subject + "\t" + f.path + "\t" + f.behaviour }

// TestMembers compares the findings with the golden file. Each needs a reason there, and the file has no others.
func TestMembers(t *testing.T) {
	s := newServer()
	found := make(map[string]bool)
	for _, r := range requests {
		for _, f := range r.findings(t, s) {
			found[f.String()] = true
		}
	}
	for _, r := range replies {
		for _, f := range r.findings(t, s) {
			found[f.String()] = true
		}
	}
	require.Greater(t, len(found), 100, "the walk over the types finds too little")
	reasons := readGolden(t)
	if *update {
		writeGolden(t, found, reasons)
		reasons = readGolden(t)
	}
	for line := range found {
		switch reason, ok := reasons[line]; {
		case !ok:
			t.Errorf("%s has no line for: %s\nAdd it, with the reason, by go test ./go/members -update.", golden, line)
		case reason == "" || reason == "?":
			t.Errorf("%s has no reason for: %s", golden, line)
		}
	}
	for line := range reasons {
		assert.True(t, found[line], "%s has a line that is not found: %s", golden, line)
	}
}

// readGolden returns the reasons of the file by the rest of the line.
func readGolden(t *testing.T) map[string]string {
	data, err := os.ReadFile(golden)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	reasons := make(map[string]string)
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "\t")
		require.Len(t, columns, 4, line)
		key := strings.Join(columns[:3], "\t")
		assert.NotContains(t, reasons, key, "the line is there twice")
		reasons[key] = columns[3]
	}
	return reasons
}

func writeGolden(t *testing.T, found map[string]bool, reasons map[string]string) {
	var b bytes.Buffer
	b.WriteString("# What the types of the SDKs have and the server has not, and why: see doc.go. The columns are the request or the\n" +
		"# reply, the path of the member, what becomes of it, and the reason. go test ./go/members -update adds and removes lines.\n")
	subject := ""
	for _, line := range slices.Sorted(maps.Keys(found)) {
		if next, _, _ := strings.Cut(line, "\t"); next != subject {
			subject = next
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s\t%s\n", line, cmp.Or(reasons[line], "?"))
	}
	require.NoError(t, os.WriteFile(golden, b.Bytes(), 0o644))
}
