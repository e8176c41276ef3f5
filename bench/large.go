package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	"github.com/sashabaranov/go-openai"

	"github.com/llmhttp/llmhttp"
)

var largeSizes = []struct {
	name  string
	bytes int
}{{"128 KB", 128 << 10}, {"1 MB", 1 << 20}}

// What is measured of a large request beside its time.
const (
	coldBytes = "cold_bytes" // allocated for a request that finds no pooled memory: its peak is not above that
	peakBytes = "peak_bytes" // by which the resident memory of the process rose at most
)

// large measures bodies that are mostly one image.
func large(b *bench) error {
	for _, step := range []func(*bench) error{largeOverLoopback, largeMemory, decoding} {
		if err := step(b); err != nil {
			return err
		}
	}
	return nil
}

func largeOverLoopback(b *bench) error {
	for _, size := range largeSizes {
		c := comparison{
			story: "large", name: size.name, mode: modeWhole, peers: mainPeers,
			body: imageBody(size.bytes, false), conns: 8, window: 400 * time.Millisecond,
		}
		if err := b.compare(&c); err != nil {
			return err
		}
		t := &table{
			title: "large, " + size.name,
			head:  []string{"", "CPU µs a request", "of bare", "of std", "requests/s"},
			note:  "One image as a data: URL; 8 connections. bare reads and forgets.",
		}
		for _, peer := range mainPeers {
			of := func(peer, metric string) series { return b.report.series(c.figure(peer, metric)) }
			t.row(peer, of(peer, cpu).String(), of(peer, cpu).over(of(bare, cpu)).spread(), of(peer, cpu).over(of(std, cpu)).spread(), of(peer, perSecond).String())
		}
		b.report.print(t)
	}
	return nil
}

// largeMemory measures the memory of one large request: what it allocates, and
// by how much the process grows.
func largeMemory(b *bench) error {
	b.say("large, memory")
	peers := []string{ours, bare, std}
	rounds := min(b.rounds, 3)
	t := &table{
		title: "large, memory of one request",
		head:  []string{"", "", "allocated", "of the body", "process grows", "of the body", "allocated when warm"},
		note: fmt.Sprintf("KB, over %d rounds. Allocated is all that the handler allocates for a request that finds no pooled memory, so that its peak cannot be above that. "+
			"The process grows from one that has served a small request, by what the kernel says was most; that includes net/http and what the collector leaves lying.", rounds),
	}
	for _, size := range largeSizes {
		body := imageBody(size.bytes, false)
		length := float64(len(body))
		err := b.eachRound(rounds, peers, func(peer string) error {
			f := figure{"large", size.name, peer, ""}
			c := newCall(newPeer(peer, modeWhole), body)
			f.Metric = coldBytes
			b.report.add(f, coldCost(c.serve))
			b.addCost(f, measure(b.window(100*time.Millisecond), c.serve))
			g, err := b.growth(peer, body)
			f.Metric = peakBytes
			b.report.add(f, float64(g.bytes))
			return err
		})
		if err != nil {
			return err
		}
		for _, peer := range peers {
			f := func(metric string) series { return b.report.series(figure{"large", size.name, peer, metric}) }
			t.row(size.name, peer, f(coldBytes).times(1.0/1024).String(), f(coldBytes).times(1/length).spread(),
				f(peakBytes).times(1.0/1024).String(), f(peakBytes).times(1/length).spread(), f(allocated).times(1.0/1024).String())
		}
	}
	b.report.print(t)
	return nil
}

// coldCost returns how many bytes op allocates when pools are empty.
func coldCost(op func()) float64 {
	op()
	runtime.GC()
	runtime.GC() // pools survive one
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	op()
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc - before.TotalAlloc)
}

// decoding compares decoders of a request.
func decoding(b *bench) error {
	b.say("large, decoding")
	decoders := []struct {
		name   string
		decode func([]byte) error
	}{
		{ours, func(body []byte) error { return new(llmhttp.ChatRequest).UnmarshalJSON(body) }},
		{plainJSON, func(body []byte) error { return json.Unmarshal(body, new(plainRequest)) }},
		{peerJSON, func(body []byte) error { return json.Unmarshal(body, new(openai.ChatCompletionRequest)) }},
	}
	sizes := []struct {
		name string
		body []byte
	}{
		{"0.5 KB", chatBody(512, false)}, {"8 KB", chatBody(8<<10, false)},
		{"128 KB", imageBody(128<<10, false)}, {"1 MB", imageBody(1<<20, false)},
	}
	t := &table{
		title: "decoding of a request",
		head:  []string{"", "", "ns", "allocations", "bytes", "llmhttp is faster"},
		note:  "In process. Plain structs have just the members of these requests; their content needs a method, as it is a string or a list. go-openai's are what std decodes into.",
	}
	for _, size := range sizes {
		var names []string
		for _, d := range decoders {
			names = append(names, d.name)
			if err := d.decode(size.body); err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
		}
		err := b.eachRound(b.rounds, names, func(name string) error {
			for _, d := range decoders {
				if d.name == name {
					b.addCost(decodeFigure(size.name, name, ""), measure(b.window(100*time.Millisecond), func() { d.decode(size.body) }))
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, name := range names {
			f := func(metric string) series { return b.report.series(decodeFigure(size.name, name, metric)) }
			t.row(size.name, name, f(nanos).String(), f(allocs).String(), f(allocated).String(),
				f(nanos).over(b.report.series(decodeFigure(size.name, ours, nanos))).spread())
		}
	}
	b.report.print(t)
	return nil
}

const (
	plainJSON = "encoding/json, plain structs"
	peerJSON  = "encoding/json, go-openai's"
)

func decodeFigure(size, decoder, metric string) figure {
	return figure{"decoding", size, decoder, metric}
}

// A plainRequest is a request as one would declare it for encoding/json.
type plainRequest struct {
	Model       string         `json:"model"`
	Messages    []plainMessage `json:"messages"`
	Stream      bool           `json:"stream"`
	Temperature *float64       `json:"temperature"`
	TopP        *float64       `json:"top_p"`
	MaxTokens   *int           `json:"max_tokens"`
}

type plainMessage struct {
	Role    string       `json:"role"`
	Content plainContent `json:"content"`
}

type plainContent []plainPart

type plainPart struct {
	Type     string         `json:"type"`
	Text     string         `json:"text"`
	ImageURL *plainImageURL `json:"image_url"`
}

type plainImageURL struct {
	URL    string `json:"url"`
	Detail string `json:"detail"`
}

func (c *plainContent) UnmarshalJSON(data []byte) error {
	if data[0] == '[' {
		return json.Unmarshal(data, (*[]plainPart)(c))
	}
	*c = plainContent{{Type: "text"}}
	return json.Unmarshal(data, &(*c)[0].Text)
}
