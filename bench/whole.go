package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// whole measures requests that are answered whole.
func whole(b *bench) error {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"0.5 KB", 512}, {"8 KB", 8 << 10}} {
		c := comparison{
			story: "whole", name: size.name, mode: modeWhole, peers: everyone,
			body: chatBody(size.bytes, false), conns: 64, window: 500 * time.Millisecond,
		}
		if err := b.compare(&c); err != nil {
			return err
		}
		t := &table{
			title: "whole, " + size.name,
			head:  []string{"", "CPU µs a request", "of bare", "requests/s", "of bare", "of std", "server busy"},
			note: "64 connections, each with one request at a time; bearer key, a limit of requests and one of tokens, usage recorded. " +
				"bare reads the body and writes the same bytes, headed sends the same headers too; ollama knows no keys, limits or usage.",
		}
		for _, peer := range everyone {
			f := func(metric string) series { return b.report.series(c.figure(peer, metric)) }
			of := func(peer, metric string) series { return b.report.series(c.figure(peer, metric)) }
			t.row(peer, f(cpu).String(), f(cpu).over(of(bare, cpu)).spread(),
				f(perSecond).String(), f(perSecond).over(of(bare, perSecond)).spread(), f(perSecond).over(of(std, perSecond)).spread(), percent(f(busy)))
		}
		b.report.print(t)
	}
	return nil
}

// What a comparison measures of a contender.
const (
	cpu       = "cpu_us"        // µs of the server's CPU time for an answer
	perSecond = "answers_per_s" // answers a second
	writes    = "writes"        // write system calls for an answer
	busy      = "busy"          // the share of its CPUs that the server used
)

// A comparison puts the same load on several contenders, in turn.
type comparison struct {
	story, name string
	mode        mode
	peers       []string
	body        []byte
	conns       int
	window      time.Duration

	start  func(peer string) (*server, error) // if nil, the contenders themselves
	sleepy bool                               // of the load
}

func (c *comparison) figure(peer, metric string) figure {
	return figure{c.story, c.name, peer, metric}
}

// compare runs c. Servers that are not measured sleep.
func (b *bench) compare(c *comparison) error {
	b.say("%s, %s", c.story, c.name)
	request := httpRequest(c.body)
	servers := make(map[string]*server)
	loads := make(map[string]*load)
	for _, peer := range c.peers {
		start := c.start
		if start == nil {
			start = func(peer string) (*server, error) { return b.startServer(peer, c.mode) }
		}
		s, err := start(peer)
		if err != nil {
			return err
		}
		defer s.stop()
		if err := verify(s.addr, c.mode, c.body); err != nil {
			return fmt.Errorf("%s: %w", peer, err)
		}
		l, err := newLoad(s.addr, request, b.size(c.conns, 2), b.cores.load)
		if err != nil {
			return fmt.Errorf("%s: %w", peer, err)
		}
		defer l.close()
		l.sleepy = c.sleepy
		servers[peer], loads[peer] = s, l
		if _, _, err := l.run(b.window(c.window) / 2); err != nil {
			return fmt.Errorf("%s: %w", peer, err)
		}
	}
	return b.eachRound(b.rounds, c.peers, func(peer string) error {
		s := servers[peer]
		before, err := s.account()
		if err != nil {
			return err
		}
		answers, elapsed, err := loads[peer].run(b.window(c.window))
		if err != nil {
			return err
		}
		after, err := s.account()
		if err != nil {
			return err
		}
		n := float64(answers)
		used := after.cpu - before.cpu
		b.report.add(c.figure(peer, cpu), float64(used.Nanoseconds())/1e3/n)
		b.report.add(c.figure(peer, perSecond), n/elapsed.Seconds())
		b.report.add(c.figure(peer, busy), used.Seconds()/elapsed.Seconds()/float64(b.cores.count()))
		if after.writes >= 0 {
			b.report.add(c.figure(peer, writes), float64(after.writes-before.writes)/n)
		}
		return nil
	})
}

func percent(s series) string {
	if len(s) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*s.median())
}

// verify checks that a contender answers as the others do.
func verify(addr string, m mode, body []byte) error {
	req, err := http.NewRequest(http.MethodPost, "http://"+addr+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	type reply struct {
		Choices []struct {
			Message, Delta struct{ Content string }
		}
	}
	var text string
	if !m.streams() {
		var r reply
		if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
			return err
		}
		if len(r.Choices) > 0 {
			text = r.Choices[0].Message.Content
		}
	} else {
		done := false
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if done = data == "[DONE]"; !ok || done {
				continue
			}
			var r reply
			if err := json.Unmarshal([]byte(data), &r); err != nil {
				return err
			}
			if len(r.Choices) > 0 {
				text += r.Choices[0].Delta.Content
			}
		}
		if err := lines.Err(); err != nil {
			return err
		}
	}
	if want := m.said(); text != want {
		return fmt.Errorf("answers %q and not %q", text, want)
	}
	return nil
}
