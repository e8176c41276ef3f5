package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// What is measured of a body that is made to become much memory.
const (
	status  = "status"
	seconds = "seconds"
)

// An attack is a list that is as long as a body may be.
type attack struct{ name, head, item, tail string }

var attacks = func() []attack {
	const (
		head = `{"model":"` + modelName + `",`
		user = `{"role":"user","content":"x"}`
	)
	return []attack{
		{"messages {}", head + `"messages":[`, `{}`, `]}`},
		{"messages of one letter", head + `"messages":[`, user, `]}`},
		{"parts {}", head + `"messages":[{"role":"user","content":[`, `{}`, `]}]}`},
		{"parts of no text", head + `"messages":[{"role":"user","content":[`, `{"type":"text","text":""}`, `]}]}`},
		{"parts of an image", head + `"messages":[{"role":"user","content":[`, `{"type":"image_url","image_url":{"url":"x"}}`, `]}]}`},
		{"tools {}", head + `"messages":[` + user + `],"tools":[`, `{}`, `]}`},
		{"tools", head + `"messages":[` + user + `],"tools":[`, `{"type":"function","function":{"name":"f"}}`, `]}`},
		{"tool calls", head + `"messages":[{"role":"assistant","tool_calls":[`, `{"id":"1"}`, `]}]}`},
		{"stops", head + `"messages":[` + user + `],"stop":[`, `""`, `]}`},
		{"an unknown member of lists", head + `"messages":[` + user + `],"x":[`, `[]`, `]}`},
		{"unknown members", head + `"messages":[` + user + `]`, `,"x%d":0`, `}`},
	}
}()

// body returns a body of at most size bytes. Items with a verb are numbered.
func (a *attack) body(size int) []byte {
	var b bytes.Buffer
	b.WriteString(a.head)
	for i := 0; ; i++ {
		item := a.item
		switch {
		case strings.Contains(item, "%d"):
			item = fmt.Sprintf(item, i)
		case i > 0:
			item = "," + item
		}
		if b.Len()+len(item)+len(a.tail) > size {
			break
		}
		b.WriteString(item)
	}
	b.WriteString(a.tail)
	return b.Bytes()
}

// amplification sends bodies that are full of the smallest things there are.
func amplification(b *bench) error {
	size := b.size(16<<20, 128<<10)
	names := make([]string, len(attacks))
	bodies := make(map[string][]byte)
	for i := range attacks {
		a := &attacks[i]
		names[i] = a.name
		bodies[a.name] = a.body(size)
	}
	rounds := min(b.rounds, 3)
	t := &table{
		title: fmt.Sprintf("amplification, %d KiB of tiny things", size>>10),
		head:  []string{"", "llmhttp", "process grows by MB", "ms", "std", "process grows by MB", "ms"},
		note:  fmt.Sprintf("The status, by how much the resident memory of the process rose at most, body included, and the time to the answer; each in a new process, llmhttp in %d rounds and std, which takes seconds, in one.", rounds),
	}
	for _, name := range names {
		b.say("amplification, %s", name)
		send := func(peer string) error {
			g, err := b.growth(peer, bodies[name])
			if err != nil {
				return err
			}
			add := func(metric string, v float64) { b.report.add(figure{"amplification", name, peer, metric}, v) }
			add(status, float64(g.status))
			add(peakBytes, float64(g.bytes))
			add(seconds, g.took.Seconds())
			return nil
		}
		if err := b.eachRound(rounds, []string{ours}, send); err != nil {
			return err
		}
		if err := b.eachRound(1, []string{std}, send); err != nil {
			return err
		}
		row := []string{name}
		for _, peer := range []string{ours, std} {
			f := func(metric string) series { return b.report.series(figure{"amplification", name, peer, metric}) }
			row = append(row, f(status).String(), f(peakBytes).times(1e-6).spread(), f(seconds).times(1e3).String())
		}
		t.row(row...)
	}
	b.report.print(t)
	return nil
}

// A growth is what one request did to a process.
type growth struct {
	bytes  int64 // by which its resident memory rose at most
	status int
	took   time.Duration
}

// growth starts a server and sends it one request.
func (b *bench) growth(peer string, body []byte) (g growth, err error) {
	s, err := b.startServer(peer, modeWhole)
	if err != nil {
		return g, err
	}
	defer s.stop()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	if _, err := post(client, s.addr, chatBody(512, false)); err != nil {
		return g, err
	}
	if err := s.collect(); err != nil {
		return g, err
	}
	if err := s.resetPeak(); err != nil {
		return g, err
	}
	before, _, err := s.resident()
	if err != nil {
		return g, err
	}
	began := time.Now()
	if g.status, err = post(client, s.addr, body); err != nil {
		return g, err
	}
	g.took = time.Since(began)
	_, most, err := s.resident()
	g.bytes = max(most-before, 0)
	return g, err
}

func post(client *http.Client, addr string, body []byte) (code int, err error) {
	req, err := http.NewRequest(http.MethodPost, "http://"+addr+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
