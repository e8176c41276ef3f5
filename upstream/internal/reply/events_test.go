package reply

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/bounded"
)

// A testEvent is an event whose data is not shared with the reader.
type testEvent struct{ kind, data string }

// readEvents reads all events of a stream.
func readEvents(r io.Reader, limit int) (events []testEvent, err error) {
	reader := Events{r: bufio.NewReader(r), max: limit}
	for {
		e, err := reader.Next()
		if err == io.EOF {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, testEvent{e.Kind, string(e.Data)})
	}
}

// dataEvents returns events without a type.
func dataEvents(list ...string) (events []testEvent) {
	for _, d := range list {
		events = append(events, testEvent{"", d})
	}
	return events
}

func TestEvents(t *testing.T) {
	for _, test := range []struct {
		name, stream string
		want         []testEvent
	}{
		{"empty", "", nil},
		{"one", "data: a\n\n", dataEvents("a")},
		{"two", "data: a\n\ndata: b\n\n", dataEvents("a", "b")},
		{"no space", "data:a\n\n", dataEvents("a")},
		{"one space of two", "data:  a \n\n", dataEvents(" a ")},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", dataEvents("a", "b")},
		{"CR", "data: a\r\rdata: b\r\r", dataEvents("a", "b")},
		{"mixed line ends", "data: a\r\n\ndata: b\n\rdata: c\r\r\ndata: d\n\r\n", dataEvents("a", "b", "c", "d")},
		{"comments", ": hi\n\n:\ndata: a\n: between\n\n: ping\ndata: b\n\n", dataEvents("a", "b")},
		{"several lines", "data: a\ndata: b\n: c\ndata:\ndata: d\n\ndata: e\n\n", dataEvents("a\nb\n\nd", "e")},
		{"other fields", "id: 1\nretry: 5\ndata: a\nx: y\nfoo\n\n", dataEvents("a")},
		{"no data", "event: ping\n\ndata: a\n\n", dataEvents("a")},
		{"empty data", "data\n\ndata:\n\ndata: \n\ndata: a\n\n", dataEvents("a")},
		{"types", "event: error\ndata: a\n\nevent: chunk\ndata: b\n\ndata: c\nevent:ping\n\n", []testEvent{{"error", "a"}, {"", "b"}, {"ping", "c"}}},
		{"type of an event without data", "event: error\n\ndata: a\n\n", dataEvents("a")},
		{"field error", "error: {}\n\ndata: a\n\n", []testEvent{{"error", "{}"}, {"", "a"}}},
		{"no end of the last line", "data: a\n\ndata: b", dataEvents("a", "b")},
		{"no last empty line", "data: a\n\ndata: b\n", dataEvents("a", "b")},
		{"no last empty line with CR", "data: a\r", dataEvents("a")},
		{"[DONE]", "data: a\n\ndata: [DONE]\n\n", dataEvents("a", "[DONE]")},
		{"[DONE] without an empty line", "data: [DONE]\ndata: a\n\n", dataEvents("[DONE]", "a")},
		{"[DONE] with spaces", "data:  [DONE] \n\n", dataEvents(" [DONE] ")},
		{"colons", "data: a:b\n\ndata::c\n\n", dataEvents("a:b", ":c")},
		{"long lines", "data: " + strings.Repeat("x", 5000) + "\n\n: " + strings.Repeat("y", 6000) + "\ndata: z\n\n", dataEvents(strings.Repeat("x", 5000), "z")},
		{"many lines", strings.Repeat("data: "+strings.Repeat("x", 99)+"\n", 50) + "\n", dataEvents(strings.TrimSuffix(strings.Repeat(strings.Repeat("x", 99)+"\n", 50), "\n"))},
	} {
		t.Run(test.name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"at once":          strings.NewReader(test.stream),
				"byte by byte":     iotest.OneByteReader(strings.NewReader(test.stream)),
				"in halves":        iotest.HalfReader(strings.NewReader(test.stream)),
				"with its end":     iotest.DataErrReader(strings.NewReader(test.stream)),
				"with empty reads": &emptyReads{r: strings.NewReader(test.stream)},
			} {
				got, err := readEvents(r, 1<<16)
				require.NoError(t, err, how)
				assert.Equal(t, test.want, got, how)
			}
		})
	}
}

// An emptyReads is a Reader of which every second Read returns no bytes.
type emptyReads struct {
	r    io.Reader
	even bool
}

func (s *emptyReads) Read(p []byte) (int, error) {
	s.even = !s.even
	if s.even {
		return 0, nil
	}
	return s.r.Read(p[:min(len(p), 3)])
}

func TestEvents_Errors(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		name string
		r    io.Reader
		want []testEvent
		err  error
	}{
		{"interrupted", io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)), dataEvents("a"), broken},
		{"large line", strings.NewReader("data: a\n\ndata: " + strings.Repeat("x", 1000)), dataEvents("a"), errEventTooLarge},
		{"many data lines", strings.NewReader("data: a\n\n" + strings.Repeat("data: 12345678\n", 20)), dataEvents("a"), errEventTooLarge},
		{"many empty data lines", strings.NewReader("data: a\n\n" + strings.Repeat("data\n", 1000)), dataEvents("a"), errEventTooLarge},
		{"many comments after data", strings.NewReader("data: a\n\ndata: b\n" + strings.Repeat(":\n", 1000)), dataEvents("a"), errEventTooLarge},
		{"many fields after data", strings.NewReader("data: b\n" + strings.Repeat("id: 5\n", 100)), nil, errEventTooLarge},
		{"large comment", strings.NewReader(":" + strings.Repeat("x", 1000) + "\n\n"), nil, errEventTooLarge},
		{"no progress", iotest.ErrReader(nil), nil, io.ErrNoProgress},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := readEvents(test.r, 100)
			assert.ErrorIs(t, err, test.err)
			assert.Equal(t, test.want, got)
		})
	}
}

// Comments between events do not count towards the size of an event, and the buffer of a
// large event is not kept.
func TestEvents_Memory(t *testing.T) {
	comments := strings.Repeat(": keep-alive\n", 100_000)
	large := "data: " + strings.Repeat("x", 10*maxRetained) + "\n\n"
	e := Events{r: bufio.NewReader(strings.NewReader(comments + large + comments + "data: b\n\n")), max: 20 * maxRetained}
	got, err := e.Next()
	require.NoError(t, err)
	assert.Len(t, got.Data, 10*maxRetained)
	got, err = e.Next()
	require.NoError(t, err)
	assert.Equal(t, "b", string(got.Data))
	assert.LessOrEqual(t, cap(e.data)+cap(e.line), 2*maxRetained)
}

// The time to read an event grows linearly with the number of its lines.
func TestEvents_ManyLines(t *testing.T) {
	const n = 2 << 20
	got, err := readEvents(strings.NewReader(strings.Repeat("data\n", n)+"\n"), 16<<20)
	require.NoError(t, err)
	require.Len(t, got, 1)
	assert.Len(t, got[0].data, n-1)
}

// Events that arrive in one Read are returned without another Read.
func TestEvents_Burst(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	go io.WriteString(w, "data: a\n\ndata: b\n\ndata: c\n\n")
	e := Events{r: bufio.NewReader(r), max: 1000}
	for _, want := range []string{"a", "b", "c"} {
		got, err := e.Next()
		require.NoError(t, err)
		assert.Equal(t, want, string(got.Data))
	}
}

func TestSkipSpace(t *testing.T) {
	for _, test := range []struct {
		stream string
		want   byte
		rest   string
		err    error
	}{
		{"", 0, "", io.EOF},
		{" \n", 0, "", io.EOF},
		{"\ufeff", 0, "", io.EOF},
		{"{}", '{', "{}", nil},
		{"\n\t\r {", '{', "{", nil},
		{"\ufeff[1]", '[', "[1]", nil},
		{"\xef\xbb", '\xef', "\xef\xbb", nil},
		{" data: a", 'd', "data: a", nil},
		{strings.Repeat(" ", 11) + "{", 0, " {", bounded.ErrTooLarge},
	} {
		r := bufio.NewReader(iotest.OneByteReader(strings.NewReader(test.stream)))
		got, err := skipSpace(r, 10)
		assert.ErrorIs(t, err, test.err, "%q", test.stream)
		assert.Equal(t, test.want, got, "%q", test.stream)
		rest, err := io.ReadAll(r)
		require.NoError(t, err)
		assert.Equal(t, test.rest, string(rest))
	}
}

// parseEvents is the algorithm of the HTML standard for a whole stream, with the
// extensions of Events.
func parseEvents(stream []byte) (events []testEvent) {
	stream = bytes.ReplaceAll(stream, []byte("\r\n"), []byte("\n"))
	stream = bytes.ReplaceAll(stream, []byte("\r"), []byte("\n"))
	var kind string
	var lines []string
	dispatch := func() {
		if d := strings.Join(lines, "\n"); d != "" {
			events = append(events, testEvent{kind, d})
		}
		kind, lines = "", nil
	}
	for _, line := range strings.Split(string(stream), "\n") {
		if line == "" {
			dispatch()
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			kind = ""
			if value == "error" || value == "ping" {
				kind = value
			}
		case "error":
			kind = "error"
			lines = append(lines, value)
		case "data":
			lines = append(lines, value)
		}
		if len(lines) == 1 && IsDone([]byte(lines[0])) && (field == "data" || field == "error") {
			dispatch()
		}
	}
	dispatch()
	return events
}

func FuzzEvents(f *testing.F) {
	for _, s := range []string{
		"data: a\n\n", "data: a\r\n\r\ndata: b\r\r", "event: error\ndata: {}\n\n", "error: {}\n\n",
		": c\n\ndata\ndata:\ndata: x\n\n", "data: [DONE]\n", "\r\n\r\n\n\r", "data: \ufeff\n\n", "data:  [DONE]\t\r\n",
	} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		want := parseEvents(stream)
		for _, r := range []io.Reader{
			bytes.NewReader(stream), iotest.DataErrReader(bytes.NewReader(stream)), &smallReads{stream, int(size)%7 + 1},
		} {
			got, err := readEvents(r, 1<<20)
			require.NoError(t, err)
			assert.Equal(t, want, got)
		}
	})
}

// A smallReads is a Reader of which each Read returns at most n bytes.
type smallReads struct {
	b []byte
	n int
}

func (p *smallReads) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.b[:min(p.n, len(p.b))])
	p.b = p.b[n:]
	return n, nil
}

func BenchmarkReadEvents(b *testing.B) {
	const chunk = `{"id":"chatcmpl-9a8b7c6d5e4f3a2b1c0d","object":"chat.completion.chunk","created":1755137933,"model":"demo-chat",` +
		`"choices":[{"index":0,"delta":{"content":" dark"},"finish_reason":null}]}`
	stream := strings.Repeat("data: "+chunk+"\n\n", 100) + "data: [DONE]\n\n"
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		e := Events{r: bufio.NewReader(strings.NewReader(stream)), max: 1 << 20}
		for {
			if _, err := e.Next(); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
	}
}
