package main

import (
	"flag"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/form"
)

// bounds limit what requests may take: each of them, and the files of all together.
type bounds struct {
	llmhttp.Bounds
	files form.Store
}

func (b *bounds) addFlags(f *flag.FlagSet) {
	size := func(n *int64, name string, value int64, usage string) {
		*n = value
		f.Var((*byteSize)(n), name, usage+"; negative means no limit")
	}
	duration := func(d *time.Duration, name string, value time.Duration, usage string) {
		f.DurationVar(d, name, value, usage+"; negative means no limit")
	}
	size(&b.MaxBody, "max-body", 16<<20, "the maximum `size` of a request body that is JSON, such as 16MiB; a larger one gets a 413")
	size(&b.MaxReply, "max-reply", 64<<20, "the maximum `size` of a reply of an upstream; a larger one is a 502, or ends its stream with an error")
	size(&b.files.MaxFiles, "max-files", 25<<20, "the maximum `size` of the files of a request, such as a recording or images to edit; larger ones get a 413")
	size(&b.files.MaxTotal, "max-files-total", 256<<20,
		"the maximum `size` of the files of all requests in progress together; requests for which there is no room get a 503, which clients retry")
	f.StringVar(&b.files.Dir, "files-dir", "", "a `directory` for the files of requests in progress, which are otherwise in memory; nothing remains there")
	duration(&b.Timeout, "timeout", 5*time.Minute, "how `long` an upstream may be silent until its request fails with a 504")
	duration(&b.KeepAlive, "keep-alive", 15*time.Second, "how `long` a stream may be silent until something that clients ignore is written to it")
	duration(&b.ReadTimeout, "read-timeout", time.Minute, "how `long` a client may pause while it sends a request body")
	duration(&b.WriteTimeout, "write-timeout", 30*time.Second, "how `long` a client may take to accept a piece of a reply")
}

// validate returns an error for values that are read as others: zero means a default there.
func (b *bounds) validate() error {
	for name, d := range map[string]time.Duration{
		"timeout": b.Timeout, "keep-alive": b.KeepAlive, "read-timeout": b.ReadTimeout, "write-timeout": b.WriteTimeout,
	} {
		if d == 0 {
			return fmt.Errorf("-%s must not be 0", name)
		}
	}
	if err := b.files.Validate(); err != nil {
		return fmt.Errorf("-files-dir: %w", err)
	}
	return nil
}

// A byteSize is a number of bytes, but 0. It is a [flag.Value].
type byteSize int64

var byteUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}

func (s *byteSize) String() string {
	for _, u := range byteUnits {
		if n := int64(*s); n%u.bytes == 0 && n != 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return ""
}

// Set sets a number of bytes, or one with a unit, such as 16MiB.
func (s *byteSize) Set(text string) error {
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n == 0 || n > math.MaxInt64/u.bytes || n < math.MinInt64/u.bytes {
			break
		}
		*s = byteSize(n * u.bytes)
		return nil
	}
	return fmt.Errorf("%q is not a size such as 16MiB, other than 0", text)
}
