package main

import (
	"context"
	"errors"
	"net/http"
	"runtime"

	"github.com/llmhttp/llmhttp"
)

// runHeld measures what idle streams add to the resident memory of a server. A
// request of 8 KB shows whether it stays in memory while the stream is open.
func runHeld(b *bench) {
	n := 10_000
	if b.short {
		n = 50
	}
	b.measureCase("Held/size=8KB", min(b.rounds, 3), heldMeasurement(ours, n), heldMeasurement(bare, n))
}

// heldMeasurement opens n streams to a new server and measures its resident
// memory after a garbage collection.
func heldMeasurement(contender string, n int) measurement {
	return serverMeasurement(contender, modeHeld, func(s *server) (values, error) {
		ctx, closeStreams := context.WithCancel(context.Background())
		defer closeStreams()
		grown, err := s.growth(func() error {
			for range n {
				req := chatRequest(8<<10, true).http(s.addr).WithContext(ctx)
				resp, err := http.DefaultClient.Do(req) // returns when the first chunk is sent
				if err != nil {
					return err
				}
				if resp.StatusCode != http.StatusOK {
					return errors.New(resp.Status)
				}
			}
			return nil
		})
		return values{unitResident: grown.Resident / float64(n)}, err
	})
}

func runMemory(b *bench) {
	b.measureCase("Memory/size=128KB", b.rounds, bodyMeasurement(imageRequest(128<<10)))
	b.measureCase("Memory/size=1MB", b.rounds, bodyMeasurement(imageRequest(1<<20)))
	size := 16 << 20
	if b.short {
		size = 128 << 10
	}
	for _, h := range hostileBodies {
		b.measureCase("Hostile/body="+h.name, min(b.rounds, 3), hostileMeasurement(h.request(size)))
	}
}

// bodyMeasurement measures what the Handler allocates for a request while its
// pools are empty. The peak of its memory cannot be larger.
func bodyMeasurement(r request) measurement {
	serve := inProcess(newOurs(cannedBackend(1), llmhttp.Options{}), r)
	return measurement{ours, func() (values, error) {
		serve()
		runtime.GC()
		runtime.GC() // a sync.Pool keeps its contents for one collection
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		serve()
		runtime.ReadMemStats(&after)
		return values{unitAllocated: float64(after.TotalAlloc-before.TotalAlloc) / float64(len(r.body))}, nil
	}}
}

// hostileMeasurement sends r to a new server and measures by how many MB its
// resident memory grows. The body is a part of that.
func hostileMeasurement(r request) measurement {
	return serverMeasurement(ours, modeWhole, func(s *server) (values, error) {
		if err := verify(s.addr, chatRequest(512, false), modeWhole); err != nil { // warm up
			return nil, err
		}
		grown, err := s.growth(func() error {
			resp, err := http.DefaultClient.Do(r.http(s.addr))
			if err == nil {
				resp.Body.Close()
			}
			return err
		})
		return values{unitPeak: grown.Peak / 1e6}, err
	})
}
