package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childFlag {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestShort sees to it that everything can be measured. The figures mean
// nothing, and none is checked.
func TestShort(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	file := filepath.Join(t.TempDir(), "figures.json")
	var out, log bytes.Buffer
	if err := run([]string{"-short", "-json", file}, &out, &log); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Goals []struct {
			What     string
			Measured string
		}
		Figures []struct {
			Story, Case, Subject, Metric string
			Rounds                       []float64
		}
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	measured := make(map[string]bool)
	for _, f := range doc.Figures {
		measured[f.Story] = true
		if len(f.Rounds) == 0 {
			t.Errorf("%v has no value", f)
		}
	}
	for _, name := range append(storyNames(), "decoding") {
		if !measured[name] {
			t.Errorf("nothing was measured of %s", name)
		}
	}
	for _, g := range doc.Goals {
		// Memory that is given back takes longer than a short run.
		if g.Measured == "-" && !strings.Contains(g.What, "given back") {
			t.Errorf("not measured: %s", g.What)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

func TestAnswer(t *testing.T) {
	const whole = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"
	const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nDate: now\r\n\r\n5\r\nhello\r\n1\r\n0\r\n0\r\n\r\n"
	for _, text := range []string{whole, chunked} {
		for piece := 1; piece <= len(text); piece++ {
			var a answer
			for range 2 { // one after the other on a connection
				for rest := text; rest != ""; {
					n := min(piece, len(rest))
					done, err := a.add([]byte(rest[:n]))
					rest = rest[n:]
					if err != nil || done != (rest == "") {
						t.Fatalf("%q in pieces of %d: done is %v before %q, %v", text, piece, done, rest, err)
					}
				}
			}
		}
	}
	var a answer
	if _, err := a.add([]byte("HTTP/1.1 429 Too Many Requests\r\n\r\n")); err == nil {
		t.Error("a refusal passes for an answer")
	}
}

func TestSeries(t *testing.T) {
	s := series{3, 1, 2}
	if got, want := s.spread(), "2.00 (1.00..3.00)"; got != want {
		t.Errorf("spread is %s, want %s", got, want)
	}
	if got := s.over(series{1, 1, 1, 1}).median(); got != 2 {
		t.Errorf("median of ratios is %v, want 2", got)
	}
	if got := (series{}).spread(); got != "-" {
		t.Errorf("spread of nothing is %s", got)
	}
}

func TestBodies(t *testing.T) {
	for _, size := range []int{512, 8 << 10, 128 << 10, 1 << 20} {
		for name, body := range map[string][]byte{"chat": chatBody(size, true), "image": imageBody(size, true)} {
			if !json.Valid(body) {
				t.Errorf("%s of %d bytes is not JSON", name, size)
			}
			if d := size - len(body); d < 0 || d > 100 {
				t.Errorf("%s of %d bytes has %d", name, size, len(body))
			}
		}
	}
	if frames := framesOf(oursReply(modeReady)); len(frames) != chunkCount+1 {
		t.Errorf("a stream has %d frames, want %d", len(frames), chunkCount+1)
	}
}
