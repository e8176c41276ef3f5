package llmhttp_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

func TestEmbeddings_Params(t *testing.T) {
	bodies := func(list ...string) []string { return list }
	inputs := func(list ...string) []string {
		return each(func(s string) string { return `{"model":"m","input":` + s + `}` }, list...)
	}
	members := func(list ...string) []string {
		return each(func(s string) string { return `{"model":"m","input":"x",` + s + `}` }, list...)
	}
	checkParams(t, startServer(t, config{}), embeddingsPath, []paramTest{
		{"", notJSON, inputs("[\"\xff\"]", `["\ud800"]`)},
		{"model", missing, bodies(`{}`, `{"input":"x"}`)},
		{"model", invalidType, bodies(`{"model":5,"input":"x"}`)},
		{"input", missing, append(inputs("null"), `{"model":"m"}`)},
		{"input", invalidType, inputs("5", "true", "{}")},
		{"input", duplicate, members(`"input":"x"`)},
		{"input", emptyString, inputs(`""`)},
		{"input", emptyArray, inputs(`[]`)},
		{"input", arrayTooLong, inputs(repeatJSON(2049, `"x"`), repeatJSON(2049, `[1]`), repeatJSON(100000, `"x"`))},
		{"input", invalidType, inputs(`["a",1]`, `[1,"a"]`, `["a",[1]]`, `[[1],"a"]`, `[1,[1]]`)}, // texts and tokens
		{"input[0]", emptyArray, inputs(`[[]]`)},
		{"input[1]", emptyArray, inputs(`[[1],[]]`)},
		{"input[1]", emptyString, inputs(`["a",""]`)},
		{"input[0]", integerHigh, inputs(`[1e30]`, `[1e999]`)},
		{"input[0]", invalidType, inputs(`[-1]`, `[null]`, `[{}]`)},
		{"input[1]", invalidType, inputs(`[1,2.5]`, `["a",null]`)},
		{"input[0][0]", invalidType, inputs(`[[[1]]]`)},
		{"input[0][1]", invalidType, inputs(`[[1,"x"]]`, `[[1,-2]]`)},
		{"dimensions", integerLow, members(`"dimensions":0`)},
		{"dimensions", integerHigh, members(`"dimensions":1e30`)},
		{"dimensions", invalidType, members(`"dimensions":1.5`, `"dimensions":"5"`)},
		{"", accepted, members(`"dimensions":1`, `"dimensions":null`, `"dimensions":256.0`)},
		{"encoding_format", invalidValue, members(`"encoding_format":"hex"`)},
		{"encoding_format", invalidType, members(`"encoding_format":5`)},
		{"", accepted, members(`"encoding_format":"float"`, `"encoding_format":"base64"`, `"encoding_format":null`)},
		{"", accepted, members(`"user":"u","dimension":-1`)},
	})
}

func TestEmbeddings_OneVectorForEachInput(t *testing.T) {
	s := startServer(t, config{})
	for input, want := range map[string]int{
		`"x"`: 1, `["a","b"]`: 2, `[1,2,3]`: 1, `[1.0,2e0]`: 1, `[0]`: 1, `[[1,2],[3]]`: 2,
		repeatJSON(2048, `"x"`):                    2048,
		repeatJSON(2048, `[1]`):                    2048,
		repeatJSON(8192, `1`):                      1,
		repeatJSON(10, repeatJSON(8192, `100000`)): 10,
	} {
		t.Run(fmt.Sprintf("%.30s", input), func(t *testing.T) {
			r := s.do("POST", embeddingsPath, `{"model":"m","input":`+input+`}`)
			require.Equal(t, 200, r.StatusCode, "%s", r.body)
			assert.Equal(t, want, strings.Count(r.body, `"object":"embedding"`))
		})
	}
}

func TestEmbeddings_InputReachesTheBackend(t *testing.T) {
	b := new(lastRequestBackend)
	s := startServer(t, config{backend: b})
	for input, want := range map[string]llm.EmbeddingInput{
		`"a"`:             {Texts: []string{"a"}},
		`["a","b\u00e9"]`: {Texts: []string{"a", "bé"}},
		`[1,2]`:           {Tokens: [][]int{{1, 2}}},
		`[[1,2],[3]]`:     {Tokens: [][]int{{1, 2}, {3}}},
	} {
		s.do("POST", embeddingsPath, `{"model":"m","input":`+input+`}`)
		assert.Equal(t, want, b.embeddings.Load().Input, input)
	}
}

// Vectors have the encoding that the client asks for: mem0ai/mem0#5170,
// anything-llm#5794, arabold/docs-mcp-server#471.
func TestEmbeddings_EncodingFormat(t *testing.T) {
	vectors := [][]float32{
		{0, 1, -1, 0.1, 1e-10, 3.4028235e38, 1e-45, float32(math.Copysign(0, -1)), 1.0 / 3},
		{},
		{16777217, 123456.789},
	}
	s := startServer(t, config{backend: embeddingBackend(vectors)})
	ask := func(member string) (embeddings []json.RawMessage) {
		r := s.do("POST", embeddingsPath, `{"model":"m","input":["a","b","c"]`+member+`}`)
		var doc struct {
			Object, Model string
			Usage         map[string]int
			Data          []struct {
				Object    string
				Index     int
				Embedding json.RawMessage
			}
		}
		require.NoError(t, json.Unmarshal([]byte(r.body), &doc), "%s", r.body)
		assert.Equal(t, "list", doc.Object)
		assert.Equal(t, "m", doc.Model)
		assert.Equal(t, map[string]int{"prompt_tokens": 8, "total_tokens": 8}, doc.Usage)
		require.Len(t, doc.Data, len(vectors))
		for i, d := range doc.Data {
			assert.Equal(t, "embedding", d.Object)
			assert.Equal(t, i, d.Index)
			embeddings = append(embeddings, d.Embedding)
		}
		return embeddings
	}
	for i, got := range ask(`,"encoding_format":"base64"`) {
		var want bytes.Buffer
		require.NoError(t, binary.Write(&want, binary.LittleEndian, vectors[i]))
		assert.Equal(t, `"`+base64.StdEncoding.EncodeToString(want.Bytes())+`"`, string(got))
	}
	for _, member := range []string{``, `,"encoding_format":"float"`, `,"encoding_format":null`} {
		for i, raw := range ask(member) {
			got := []float32{}
			require.NoError(t, json.Unmarshal(raw, &got))
			assert.Equal(t, vectors[i], got)
		}
	}
}

func TestEmbeddings_VectorsMustNotBeNil(t *testing.T) {
	for _, vectors := range [][][]float32{{nil}, {{1}, nil}, {nil, {}}} {
		b := &stubBackend{embed: func(context.Context, *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
			return &llm.EmbeddingResponse{Vectors: vectors}, nil
		}}
		s := startServer(t, config{backend: b})
		body := `{"model":"m","input":` + repeatJSON(len(vectors), `"x"`) + `}`
		for _, format := range []string{"float", "base64"} {
			s.do("POST", embeddingsPath, strings.TrimSuffix(body, "}")+`,"encoding_format":"`+format+`"}`).checkError(t, 500)
		}
	}
}

func TestEmbeddings_VectorsMustBeFinite(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		s := startServer(t, config{backend: embeddingBackend([][]float32{{float32(bad)}})})
		for _, format := range []string{"float", "base64"} {
			s.do("POST", embeddingsPath, `{"model":"m","input":"x","encoding_format":"`+format+`"}`).checkError(t, 500)
		}
	}
}

// embeddingBackend returns a Backend whose embeddings are vectors.
func embeddingBackend(vectors [][]float32) llmhttp.Backend {
	return &stubBackend{embed: func(context.Context, *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
		return &llm.EmbeddingResponse{Vectors: vectors, Usage: &llm.Usage{PromptTokens: 8}}, nil
	}}
}
