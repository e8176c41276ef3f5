package bounded_test

import (
	"errors"
	"io"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/bounded"
)

func TestReadAll(t *testing.T) {
	broken := errors.New("broken")
	large := strings.Repeat("x", 100_000)
	for _, test := range []struct {
		name          string
		r             io.Reader
		buf           string
		length, limit int64
		want          string
		err           error
	}{
		{"empty", strings.NewReader(""), "", 0, 10, "", nil},
		{"declared length", strings.NewReader("hello"), "", 5, 10, "hello", nil},
		{"unknown length", strings.NewReader("hello"), "", -1, 10, "hello", nil},
		{"more than declared", strings.NewReader(large), "", 5, 1 << 20, large, nil},
		{"less than declared", strings.NewReader("hello"), "", 1 << 40, math.MaxInt64, "hello", nil},
		{"large, declared", strings.NewReader(large), "", 100_000, math.MaxInt64, large, nil},
		{"large, unknown length", iotest.HalfReader(strings.NewReader(large)), "", -1, 100_000, large, nil},
		{"exactly the limit", strings.NewReader("hello"), "", -1, 5, "hello", nil},
		{"more than the limit", strings.NewReader("hello"), "", -1, 4, "hello", bounded.ErrTooLarge},
		{"more is declared than the limit", strings.NewReader("hello"), "", 5, 4, "", bounded.ErrTooLarge},
		{"appended", strings.NewReader("there"), "hello ", 5, 11, "hello there", nil},
		{"appended, more than the limit", strings.NewReader("there"), "hello ", 5, 10, "hello there", bounded.ErrTooLarge},
		{"broken off", io.MultiReader(strings.NewReader("hel"), iotest.ErrReader(broken)), "", 5, 10, "hel", broken},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := bounded.ReadAll(test.r, []byte(test.buf), test.length, test.limit)
			assert.ErrorIs(t, err, test.err)
			assert.Equal(t, test.want, string(got))
		})
	}
}

// Memory is allocated as a body arrives, not as it is declared, and no more
// than one byte is left over.
func TestReadAll_Memory(t *testing.T) {
	got, err := bounded.ReadAll(strings.NewReader("hello"), nil, 1<<40, math.MaxInt64)
	require.NoError(t, err)
	assert.Less(t, cap(got), 100_000)
	got, err = bounded.ReadAll(strings.NewReader(strings.Repeat("x", 100_000)), nil, 100_000, math.MaxInt64)
	require.NoError(t, err)
	assert.Equal(t, 100_001, cap(got))
}

func TestIdleTimer(t *testing.T) {
	for name, test := range map[string]struct {
		use  func(t *bounded.IdleTimer)
		want int32
	}{
		"new":                {func(*bounded.IdleTimer) {}, 0},
		"expires":            {func(t *bounded.IdleTimer) { t.Reset(time.Minute) }, 1},
		"stopped":            {func(t *bounded.IdleTimer) { t.Reset(time.Minute); t.Stop() }, 0},
		"reset":              {func(t *bounded.IdleTimer) { t.Reset(time.Minute); time.Sleep(50 * time.Second); t.Reset(time.Hour) }, 0},
		"negative":           {func(t *bounded.IdleTimer) { t.Reset(time.Minute); t.Reset(-1) }, 0},
		"longest duration":   {func(t *bounded.IdleTimer) { t.Reset(math.MaxInt64) }, 0},
		"zero":               {func(t *bounded.IdleTimer) { t.Reset(0) }, 1},
		"expires twice":      {func(t *bounded.IdleTimer) { t.Reset(time.Second); time.Sleep(time.Minute); t.Reset(time.Second) }, 2},
		"reset after a stop": {func(t *bounded.IdleTimer) { t.Stop(); t.Reset(time.Second) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var expired atomic.Int32
				timer := bounded.NewIdleTimer(func() { expired.Add(1) })
				test.use(timer)
				time.Sleep(2 * time.Minute)
				assert.Equal(t, test.want, expired.Load())
				timer.Stop()
			})
		})
	}
}

func TestIdleTimer_Reader(t *testing.T) {
	const first, idle = time.Minute, time.Second
	pause := func(d time.Duration) func(io.Writer) { return func(io.Writer) { time.Sleep(d) } }
	write := func(w io.Writer) { io.WriteString(w, "x") }
	for name, test := range map[string]struct {
		server  []func(io.Writer)
		reader  time.Duration // how long the reader pauses after each Read
		expires time.Duration // after which time the timer expires, if not zero
	}{
		"in time":                {[]func(io.Writer){pause(first - 1), write, pause(idle - 1), write}, 0, 0},
		"no first byte":          {[]func(io.Writer){pause(first + 1), write}, 0, first},
		"silence":                {[]func(io.Writer){write, pause(idle + 1), write}, 0, idle},
		"silence before the end": {[]func(io.Writer){write, write, pause(idle + 1)}, 0, idle},
		"reader that pauses":     {[]func(io.Writer){write, write, write}, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := io.Pipe()
				go func() {
					for _, do := range test.server {
						do(w)
					}
					w.Close()
				}()
				began := time.Now()
				var expired time.Duration
				timer := bounded.NewIdleTimer(func() { expired = time.Since(began); r.Close() })
				defer timer.Stop()
				timer.Reset(first)
				body := timer.Reader(r, idle)
				var err error
				for err == nil {
					_, err = body.Read(make([]byte, 1))
					time.Sleep(test.reader)
				}
				time.Sleep(time.Hour)
				assert.Equal(t, test.expires, expired)
			})
		})
	}
}

func TestReader(t *testing.T) {
	for body, want := range map[string]error{"": nil, "abcde": nil, "abcdef": bounded.ErrTooLarge, strings.Repeat("x", 100_000): bounded.ErrTooLarge} {
		for name, r := range map[string]io.Reader{
			"whole": strings.NewReader(body), "a byte at a time": iotest.OneByteReader(strings.NewReader(body)),
			"with its end": iotest.DataErrReader(strings.NewReader(body)),
		} {
			got, err := io.ReadAll(&bounded.Reader{R: r, Left: 5})
			assert.Equal(t, want, err, name)
			assert.Equal(t, body[:min(len(body), 5)], string(got), name)
		}
	}
}
