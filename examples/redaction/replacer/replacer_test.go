package replacer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/examples/redaction/replacer"
	"github.com/llmhttp/llmhttp/textfilter"
)

func ExampleReplacer() {
	in := replacer.New("Ada", "<person-1>")
	out := replacer.New("<person-1>", "Ada")

	text, _ := in.Request(textfilter.Content, "Who is Ada?")
	fmt.Println(text)
	release, hold, _ := out.Reply(&textfilter.ReplyText{Kind: textfilter.Content, Text: "A programmer: <pers"})
	fmt.Printf("%q %q\n", release, hold)
	release, hold, _ = out.Reply(&textfilter.ReplyText{Kind: textfilter.Content, Text: hold + "on-1>.", End: true})
	fmt.Printf("%q %q\n", release, hold)
	// Output:
	// Who is <person-1>?
	// "A programmer: " "<pers"
	// "Ada." ""
}

// replaceInPieces passes a text to r that arrives in pieces.
func replaceInPieces(r *replacer.Replacer, kind textfilter.Kind, pieces ...string) (out string) {
	hold := ""
	for i, p := range pieces {
		var release string
		release, hold, _ = r.Reply(&textfilter.ReplyText{Kind: kind, Text: hold + p, End: i == len(pieces)-1})
		out += release
	}
	return out + hold
}

func TestReplacer(t *testing.T) {
	for name, test := range map[string]struct {
		pairs      []string
		kind       textfilter.Kind
		text, want string
	}{
		"none":             {nil, textfilter.Content, "abc", "abc"},
		"one":              {[]string{"b", "X"}, textfilter.Content, "abcb", "aXcX"},
		"longest":          {[]string{"ab", "1", "abc", "2"}, textfilter.Content, "abcab", "21"},
		"overlap":          {[]string{"ab", "1", "bcd", "2"}, textfilter.Content, "abcd bcd", "1cd 2"},
		"begins again":     {[]string{"aab", "X"}, textfilter.Content, "aaab", "aX"},
		"longer not there": {[]string{"a", "1", "abcd", "2"}, textfilter.Content, "abcab", "1bc1b"},
		"not looked at":    {[]string{"a", "b", "b", "a"}, textfilter.Content, "ab", "ba"},
		"cut at the end":   {[]string{"secret", "X"}, textfilter.Content, "a secre", "a secre"},
		"in JSON":          {[]string{`a"b`, "c\nd"}, textfilter.Arguments, `{"x":"a\"b"}`, `{"x":"c\nd"}`},
		"in invalid JSON":  {[]string{`a"b`, "c\nd"}, textfilter.Arguments, `a"b`, `c\nd`},
		"needless escapes": {[]string{"secrét 🙂/", "X"}, textfilter.Arguments, `{"x":"\u0073ecr\u00E9t \ud83d\uDE42\/"}`, `{"x":"X"}`},
		"not an escape":    {[]string{"\n", "X"}, textfilter.Arguments, `{"x":"\\n\n\\u000a\u000a"}`, `{"x":"\\nX\\u000aX"}`},
		"broken escapes":   {[]string{"b", "X"}, textfilter.Arguments, `\u00 b \ud83d b \`, `\u00 X \ud83d X \`},
		"not in JSON":      {[]string{`a"b`, "c\nd"}, textfilter.Content, `a"b`, "c\nd"},
	} {
		t.Run(name, func(t *testing.T) {
			r := replacer.New(test.pairs...)
			whole, err := r.Request(test.kind, test.text)
			assert.NoError(t, err)
			assert.Equal(t, test.want, whole)
			for i := range len(test.text) + 1 {
				for j := i; j <= len(test.text); j++ {
					assert.Equal(t, test.want, replaceInPieces(r, test.kind, test.text[:i], test.text[i:j], test.text[j:]), "divided at %d and %d", i, j)
				}
			}
		})
	}
}

func TestReplacer_Mistakes(t *testing.T) {
	for _, pairs := range [][]string{{"a"}, {"", "b"}, {"a", "b", "a", "c"}} {
		assert.Panics(t, func() { replacer.New(pairs...) }, strings.Join(pairs, ","))
	}
}

// The result does not depend on how a text is divided.
func FuzzReplacer(f *testing.F) {
	f.Add("ab", "abc", "xabcab", 3, 5)
	f.Add("aa", "aaa", "aaaaaaa", 1, 2)
	f.Fuzz(func(t *testing.T, one, two, text string, i, j int) {
		if one == "" || two == "" || one == two || i < 0 || j < i || j > len(text) {
			return
		}
		r := replacer.New(one, "<1>", two, "<2>")
		whole, _ := r.Request(textfilter.Content, text)
		assert.Equal(t, whole, replaceInPieces(r, textfilter.Content, text[:i], text[i:j], text[j:]))
	})
}
