package kit

import (
	"strings"
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
	c := addNumbers{To: `"a`, At: time.Date(2025, 3, 14, 12, 0, 0, 0, time.UTC).In(time.FixedZone("east", 3600)), List: []int{1, 2}}
	c.Part.Texts = []string{}
	return c
}

func TestDescribeFields(t *testing.T) {
	assert.Equal(t, `AddNumbers(To "\"a", At 2025-03-14T13:00:00+01:00, List [1 2], Part.Texts [])`, DescribeCall[any](numbersCall()))
	assert.Equal(t, "AddNumbers()", DescribeCall(addNumbers{}))
}

func TestWantSame(t *testing.T) {
	got, want := numbersCall(), numbersCall()
	want.At = want.At.UTC()
	assert.Empty(t, Record(t, func(t testing.TB) { WantSame(t, "Add", got, want) }))
	want.Part.Texts, want.List = nil, []int{1}
	failures := Record(t, func(t testing.TB) { WantSame(t, "Add", got, want) })
	assert.Equal(t, []string{"did:  Add\nsaw:  List [1 2], Part.Texts []\nwant: List [1], Part.Texts nil"}, failures)
}

func TestSimplerFields(t *testing.T) {
	var got []string
	for c := range SimplerFields[any](numbersCall()) {
		got = append(got, DescribeCall(c))
	}
	const to, at, list = `To "\"a", `, "At 2025-03-14T13:00:00+01:00", "List [1 2]"
	assert.Equal(t, []string{
		"AddNumbers(" + at + ", " + list + ", Part.Texts [])",
		"AddNumbers(" + to + list + ", Part.Texts [])",
		"AddNumbers(" + to + at + ", Part.Texts [])",
		"AddNumbers(" + to + at + ", List [2], Part.Texts [])",
		"AddNumbers(" + to + at + ", List [1], Part.Texts [])",
		"AddNumbers(" + to + at + ", " + list + ")",
	}, got)
}

type nestedNumbers struct {
	Inner      *innerNumbers
	Inners     []innerNumbers
	Text       []byte
	unexported int
}

type innerNumbers struct{ A, B int }

func TestFields_InPointersAndLists(t *testing.T) {
	call := nestedNumbers{&innerNumbers{1, 0}, []innerNumbers{{2, 3}, {0, 4}}, []byte(strings.Repeat("x", 61)), 5}
	whole := DescribeCall(call)
	assert.Equal(t, `NestedNumbers(Inner (A 1), Inners [(A 2, B 3) (B 4)], Text "`+strings.Repeat("x", 60)+`"... of 61 bytes)`, whole)
	var got, want []string
	for c := range SimplerFields(call) {
		assert.Equal(t, 5, c.unexported)
		got = append(got, DescribeCall(c))
	}
	for _, change := range [][2]string{
		{"Inner (A 1), ", ""}, {"(A 1)", "()"}, {"Inners [(A 2, B 3) (B 4)], ", ""}, {"(A 2, B 3) (B 4)", "(B 4)"}, {"(A 2, B 3) (B 4)", "(A 2, B 3)"},
		{"A 2, ", ""}, {", B 3", ""}, {"B 4", ""}, {whole[strings.Index(whole, ", Text"):], ")"},
	} {
		want = append(want, strings.Replace(whole, change[0], change[1], 1))
	}
	assert.Equal(t, want, got)
	assert.Equal(t, whole, DescribeCall(call), "must not change")

	other := nestedNumbers{&innerNumbers{1, 2}, []innerNumbers{{2, 3}, {0, 5}}, []byte{}, 6}
	saw, wanted := diff(call, other)
	assert.Equal(t, `Inner.B 0, Inners[1].B 4, Text "`+strings.Repeat("x", 60)+`"... of 61 bytes`, saw)
	assert.Equal(t, `Inner.B 2, Inners[1].B 5, Text ""`, wanted)
	saw, wanted = diff(nestedNumbers{}, nestedNumbers{Inners: make([]innerNumbers, 1)})
	assert.Equal(t, "Inners nil", saw)
	assert.Equal(t, "Inners [()]", wanted)
	for range SimplerFields(call) {
		break
	}
}

func TestSimplerFields_HalvesLongTexts(t *testing.T) {
	var got []addNumbers
	for c := range SimplerFields(addNumbers{To: "01234567\u00e96789abcde"}) {
		got = append(got, c)
	}
	assert.Equal(t, []addNumbers{{}, {To: "01234567"}, {To: "\u00e96789abcde"}}, got)
}
