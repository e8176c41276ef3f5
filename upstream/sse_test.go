package upstream

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type testEvent struct{ name, data string }

// readEvents reads all of a stream.
func readEvents(r io.Reader, limit int64) (events []testEvent, err error) {
	var e eventReader
	e.reset(r, &buffer{make([]byte, 0, 16)}, limit)
	for {
		name, data, err := e.next()
		if err == io.EOF {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, testEvent{name, string(data)})
	}
}

func data(list ...string) (events []testEvent) {
	for _, d := range list {
		events = append(events, testEvent{"", d})
	}
	return events
}

func TestEventReader(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		want         []testEvent
	}{
		{"empty", "", nil},
		{"one", "data: a\n\n", data("a")},
		{"two", "data: a\n\ndata: b\n\n", data("a", "b")},
		{"no space", "data:a\n\n", data("a")},
		{"one space of two", "data:  a \n\n", data(" a ")},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", data("a", "b")},
		{"CR", "data: a\r\rdata: b\r\r", data("a", "b")},
		{"mixed ends", "data: a\r\n\ndata: b\n\rdata: c\r\r\ndata: d\n\r\n", data("a", "b", "c", "d")},
		{"byte order mark", "\ufeffdata: a\n\n", data("a")},
		{"a mark later is none", "data: \ufeffa\n\n\ufeffdata: b\n\n", data("\ufeffa")},
		{"comments", ": hi\n\n:\ndata: a\n: between\n\n: ping\ndata: b\n\n", data("a", "b")},
		{"several lines", "data: a\ndata: b\n: c\ndata:\ndata: d\n\ndata: e\n\n", data("a\nb\n\nd", "e")},
		{"fields", "id: 1\nretry: 5\ndata: a\nx: y\nfoo\n\n", data("a")},
		{"no data", "event: ping\n\ndata: a\n\n", data("a")},
		{"empty data", "data\n\ndata:\n\ndata: \n\ndata: a\n\n", data("a")},
		{"types", "event: error\ndata: a\n\nevent: chunk\ndata: b\n\ndata: c\nevent:ping\n\n", []testEvent{{"error", "a"}, {"", "b"}, {"ping", "c"}}},
		{"a type is forgotten", "event: error\n\ndata: a\n\n", data("a")},
		{"an error field", "error: {}\n\ndata: a\n\n", []testEvent{{"error", "{}"}, {"", "a"}}},
		{"no last line", "data: a\n\ndata: b", data("a", "b")},
		{"no blank line", "data: a\n\ndata: b\n", data("a", "b")},
		{"no blank line, CR", "data: a\r", data("a")},
		{"done", "data: a\n\ndata: [DONE]\n\n", data("a", "[DONE]")},
		{"done at once", "data: [DONE]\ndata: a\n\n", data("[DONE]", "a")},
		{"done with spaces", "data:  [DONE] \n\n", data(" [DONE] ")},
		{"colons", "data: a:b\n\ndata::c\n\n", data("a:b", ":c")},
		{"long", "data: " + strings.Repeat("x", 5000) + "\n\n: " + strings.Repeat("y", 6000) + "\ndata: z\n\n", data(strings.Repeat("x", 5000), "z")},
		{"long lines", strings.Repeat("data: "+strings.Repeat("x", 99)+"\n", 50) + "\n", data(strings.TrimSuffix(strings.Repeat(strings.Repeat("x", 99)+"\n", 50), "\n"))},
	} {
		t.Run(c.name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"at once":       strings.NewReader(c.stream),
				"byte by byte":  iotest.OneByteReader(strings.NewReader(c.stream)),
				"in halves":     iotest.HalfReader(strings.NewReader(c.stream)),
				"with its end":  iotest.DataErrReader(strings.NewReader(c.stream)),
				"empty between": &stutterer{r: strings.NewReader(c.stream)},
			} {
				got, err := readEvents(r, 1<<16)
				require.NoError(t, err, how)
				assert.Equal(t, c.want, got, how)
			}
		})
	}
}

// A stutterer reads nothing every other time.
type stutterer struct {
	r    io.Reader
	even bool
}

func (s *stutterer) Read(p []byte) (int, error) {
	if s.even = !s.even; s.even {
		return 0, nil
	}
	return s.r.Read(p[:min(len(p), 3)])
}

func TestEventReaderFails(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name   string
		r      io.Reader
		want   []testEvent
		reason error
	}{
		{"broken", io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)), data("a"), broken},
		{"a line too large", strings.NewReader("data: a\n\ndata: " + strings.Repeat("x", 1000)), data("a"), errEventTooLarge},
		{"an event too large", strings.NewReader("data: a\n\n" + strings.Repeat("data: 12345678\n", 20)), data("a"), errEventTooLarge},
		{"a comment too large", strings.NewReader(":" + strings.Repeat("x", 1000) + "\n\n"), nil, errEventTooLarge},
		{"no progress", iotest.ErrReader(nil), nil, io.ErrNoProgress},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readEvents(c.r, 100)
			assert.ErrorIs(t, err, c.reason)
			assert.Equal(t, c.want, got)
		})
	}
}

// However much comes, no more than an event is kept.
func TestEventReaderMemory(t *testing.T) {
	var e eventReader
	comments := strings.NewReader(strings.Repeat(": keep-alive\n", 100_000) + "data: a\n\n")
	e.reset(comments, &buffer{make([]byte, 0, 16)}, 1000)
	_, got, err := e.next()
	require.NoError(t, err)
	assert.Equal(t, "a", string(got))
	assert.LessOrEqual(t, cap(e.buf.b), 4096)

	large := "data: " + strings.Repeat("x", 2*largeBuffer) + "\n\n"
	e.reset(strings.NewReader(large+strings.Repeat("data: a\n\n", 10_000)), &buffer{make([]byte, 0, 16)}, 4*largeBuffer)
	for {
		if _, _, err := e.next(); err == io.EOF {
			break
		} else {
			require.NoError(t, err)
		}
	}
	assert.LessOrEqual(t, cap(e.buf.b), largeBuffer, "the memory of a large event is let go")
}

// Events that came together are there without a further read.
func TestEventReaderBurst(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	go io.WriteString(w, "data: a\n\ndata: b\n\ndata: c\n\n")
	var e eventReader
	e.reset(r, getBuffer(), 1000)
	for _, want := range []string{"a", "b", "c"} {
		_, got, err := e.next()
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
}

func TestPeek(t *testing.T) {
	for stream, want := range map[string]byte{
		"": 0, " \n": 0, "{}": '{', "\n\t {": '{', "\ufeff[1]": '[', "data: a": 'd', ": a": ':', "<html>": '<',
	} {
		var e eventReader
		e.reset(iotest.HalfReader(strings.NewReader(stream)), getBuffer(), 1000)
		assert.Equal(t, want, e.peek(), "%q", stream)
	}
}

// splitEvents is the algorithm of the HTML standard over a whole stream, with
// the patience of an eventReader.
func splitEvents(stream []byte) (events []testEvent) {
	stream = bytes.TrimPrefix(stream, byteOrderMark)
	stream = bytes.ReplaceAll(stream, []byte("\r\n"), []byte("\n"))
	stream = bytes.ReplaceAll(stream, []byte("\r"), []byte("\n"))
	var name string
	var lines []string
	end := func() {
		if d := strings.Join(lines, "\n"); d != "" {
			events = append(events, testEvent{name, d})
		}
		name, lines = "", nil
	}
	for _, line := range strings.Split(string(stream), "\n") {
		if line == "" {
			end()
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			if name = ""; value == "error" || value == "ping" {
				name = value
			}
		case "error":
			name = "error"
			lines = append(lines, value)
		case "data":
			lines = append(lines, value)
		}
		if d := strings.Join(lines, "\n"); strings.TrimFunc(d, isSpace) == "[DONE]" {
			end()
		}
	}
	end()
	return events
}

// isSpace is what bytes.TrimSpace trims.
func isSpace(r rune) bool { return len(bytes.TrimSpace([]byte(string(r)))) == 0 }

func FuzzEventReader(f *testing.F) {
	for _, s := range []string{
		"data: a\n\n", "data: a\r\n\r\ndata: b\r\r", "\ufeffdata: a", "event: error\ndata: {}\n\n", "error: {}\n\n",
		": c\n\ndata\ndata:\ndata: x\n\n", "data: [DONE]\n", "\r\n\r\n\n\r", "data: \ufeff\n\n", "data:  [DONE]\t\r\n",
	} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		want := splitEvents(stream)
		for _, r := range []io.Reader{
			bytes.NewReader(stream), iotest.DataErrReader(bytes.NewReader(stream)), &pieces{stream, int(size)%7 + 1},
		} {
			got, err := readEvents(r, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			assert.Equal(t, want, got)
		}
	})
}

// pieces are read n bytes at a time.
type pieces struct {
	b []byte
	n int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.b[:min(p.n, len(p.b))])
	p.b = p.b[n:]
	return n, nil
}
