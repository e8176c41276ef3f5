package llmhttp_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
)

func TestSubjectID_Validate(t *testing.T) {
	const kind = "SubjectID.Kind: must have 1 to 32 lower-case letters, digits, hyphens and underscores"
	const id = "SubjectID.ID: must be text of 1 to 512 bytes without control characters"
	for _, tt := range []struct {
		subject llmhttp.SubjectID
		want    string
	}{
		{llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: "k"}, ""},
		{llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: "Company & Söhne"}, ""},
		{llmhttp.SubjectID{Kind: llmhttp.KindUser, ID: "u"}, ""},
		{llmhttp.SubjectID{Kind: "cost-centre_2", ID: "7"}, ""},
		{llmhttp.SubjectID{Kind: strings.Repeat("a", 32), ID: "7"}, ""},
		{llmhttp.SubjectID{Kind: strings.Repeat("a", 33), ID: "7"}, kind},
		{llmhttp.SubjectID{ID: "7"}, kind},
		{llmhttp.SubjectID{}, kind},
		{llmhttp.SubjectID{Kind: "Team", ID: "7"}, kind},
		{llmhttp.SubjectID{Kind: "te am", ID: "7"}, kind},
		{llmhttp.SubjectID{Kind: "team:a", ID: "7"}, kind},
		{llmhttp.SubjectID{Kind: "équipe", ID: "7"}, kind},
		{llmhttp.SubjectID{Kind: "team"}, id},
		{llmhttp.SubjectID{Kind: "team", ID: "a\nb"}, id},
		{llmhttp.SubjectID{Kind: "team", ID: "\xff"}, id},
	} {
		err := tt.subject.Validate()
		if tt.want == "" {
			assert.NoError(t, err, "%q", tt.subject)
		} else {
			assert.EqualError(t, err, tt.want, "%q", tt.subject)
		}
	}
}
