package citation_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/citation"
)

func TestDecode(t *testing.T) {
	a := citation.Citation{URL: "https://a", Title: "A", Content: "It rains.", Start: 3, End: 8}
	for annotations, want := range map[string][]citation.Citation{
		``:                        nil,
		`null`:                    nil,
		`[]`:                      nil,
		`[{}]`:                    nil,
		`{"type":"url_citation"}`: nil,
		`[{"type":"url_citation","url_citation":{"url":"https://a","title":"A","content":"It rains.","start_index":3,"end_index":8}}]`: {a},
		`[{"type":"url_citation","url":"https://a","title":"A","content":"It rains.","start_index":3,"end_index":8}]`:                  {a},
		`[{"type":"file_citation","file_id":"f"},{"type":"url_citation","url_citation":{"url":"https://b"}}]`:                          {{URL: "https://b"}},
		`[{"type":"url_citation","url_citation":{"title":"no address"}}]`:                                                              nil,
		`[{"type":"url_citation","url_citation":{"url":5}}]`:                                                                           nil,
	} {
		assert.Equal(t, want, citation.Decode(json.RawMessage(annotations)), annotations)
	}
}
