package audio

import (
	"io"

	"github.com/llmhttp/llmhttp/internal/audiolength"
	"github.com/llmhttp/llmhttp/llm"
)

// A recordingMeter measures a recording.
type recordingMeter struct {
	meter audiolength.Meter
	size  int64 // in bytes
}

// bytesPerPCMSecond is the rate of recordings in the format pcm: see SpeechRequest.
const bytesPerPCMSecond = 24_000 * 2

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
