package audio

import (
	"io"
	"mime"
	"slices"
	"strconv"

	"github.com/llmhttp/llmhttp/internal/audiolength"
	"github.com/llmhttp/llmhttp/llm"
)

// A recordingMeter measures a recording.
type recordingMeter struct {
	meter audiolength.Meter
	size  int64 // in bytes
}

// bytesPerSecond returns the rate of recordings of raw samples, or 0 for other media types. Without parameters they are
// those of the format pcm: see SpeechRequest.
func bytesPerSecond(mediaType string) int64 {
	const (
		sampleSize = 2 // bytes
		sampleRate = 24_000
		most       = 1_000_000 // samples in a second, and channels
	)
	media, params, err := mime.ParseMediaType(mediaType)
	if err != nil || !slices.Contains([]string{"audio/pcm", "audio/l16", "audio/x-pcm", "audio/raw"}, media) {
		return 0
	}
	number := func(name string, otherwise int64) int64 {
		n, err := strconv.ParseInt(params[name], 10, 64)
		if err != nil || n <= 0 || n > most {
			return otherwise
		}
		return n
	}
	return number("rate", sampleRate) * number("channels", 1) * sampleSize
}

// add adds the next bytes of the recording.
func (m *recordingMeter) add(audio []byte) {
	m.size += int64(len(audio))
	m.meter.Write(audio)
}

// millis returns the length of the recording in milliseconds, rounded up. If it cannot be measured, it
// is an estimate by the size that is hardly ever too short: one byte for each, which is 8 kbit/s.
func (m *recordingMeter) millis() (n int64, estimated bool) {
	if d, known := m.meter.Length(); known {
		return millis(d.Seconds()), false
	}
	return m.size, m.size > 0
}

// fileMillis returns the length of a recording as recordingMeter does.
func fileMillis(f *llm.File) int64 {
	var m recordingMeter
	if _, err := io.Copy(&m.meter, f.Open()); err != nil {
		return f.Size
	}
	m.size = f.Size
	n, _ := m.millis()
	return n
}
