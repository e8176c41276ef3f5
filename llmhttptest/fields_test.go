package llmhttptest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

type addNumbers struct {
	To   string
	At   time.Time
	List []int
	Part struct{ Texts []string }
}

func numbersCall() addNumbers {
	c := addNumbers{To: `"a`, At: noon.In(time.FixedZone("east", 3600)), List: []int{1, 2}}
	c.Part.Texts = []string{}
	return c
}

func TestDescribeFields(t *testing.T) {
	assert.Equal(t, `AddNumbers(To "\"a", At 2025-03-14T12:00:00Z, List [1 2], Part.Texts [])`, describeFields[any](numbersCall()))
	assert.Equal(t, "AddNumbers()", describeFields(addNumbers{}))
}

func TestDiffFields(t *testing.T) {
	got, want := numbersCall(), numbersCall()
	want.At = want.At.UTC()
	assert.Empty(t, diffFields(got, want))
	want.Part.Texts, want.List = nil, []int{1}
	assert.Equal(t, "List is [1 2], want [1]; Part.Texts is [], want nil", diffFields(got, want))
}

func TestSimplerFields(t *testing.T) {
	var got []string
	for c := range simplerFields[any](numbersCall()) {
		got = append(got, describeFields(c))
	}
	const to, at, list = `To "\"a", `, "At 2025-03-14T12:00:00Z", "List [1 2]"
	assert.Equal(t, []string{
		"AddNumbers(" + at + ", " + list + ", Part.Texts [])",
		"AddNumbers(" + to + list + ", Part.Texts [])",
		"AddNumbers(" + to + at + ", Part.Texts [])",
		"AddNumbers(" + to + at + ", List [2], Part.Texts [])",
		"AddNumbers(" + to + at + ", List [1], Part.Texts [])",
		"AddNumbers(" + to + at + ", " + list + ")",
	}, got)
}
