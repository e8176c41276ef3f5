// Package citation decodes the citations of a reply, which chat completions have as the member
// "annotations" of deltas and messages.
package citation

import "encoding/json"

// A Citation is an annotation of the type url_citation: a part of a text has its facts from a web
// page.
type Citation struct {
	URL     string `json:"url"`
	Title   string `json:"title"`
	Content string `json:"content"`     // the text of the page, which only some servers send
	Start   int    `json:"start_index"` // the first character of the part in the text of the message
	End     int    `json:"end_index"`   // after the last character
}

// Decode returns the citations in the value of "annotations", in order. Annotations of other types
// are skipped. Other JSON has no citations.
func Decode(annotations json.RawMessage) []Citation {
	if len(annotations) < len(`[{}]`) {
		return nil
	}
	var list []struct {
		Type string `json:"type"`
		// Some servers have the members in the annotation, as the Responses API does.
		Citation
		Nested *Citation `json:"url_citation"`
	}
	if json.Unmarshal(annotations, &list) != nil {
		return nil
	}
	var citations []Citation
	for i := range list {
		a := &list[i]
		c := a.Citation
		if a.Nested != nil {
			c = *a.Nested
		}
		if a.Type == "url_citation" && c.URL != "" {
			citations = append(citations, c)
		}
	}
	return citations
}
