package audiolength_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/audiolength"
)

// recordings returns the files that testdata/make.sh has made, by name.
func recordings(t testing.TB) map[string][]byte {
	names, err := filepath.Glob("testdata/*[0-9a-z].[afmow]*")
	require.NoError(t, err)
	files := make(map[string][]byte)
	for _, name := range names {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		files[filepath.Base(name)] = content
	}
	require.GreaterOrEqual(t, len(files), 12)
	return files
}

func measure(recording []byte, piece int) (time.Duration, bool) {
	var m audiolength.Meter
	for len(recording) > 0 {
		n := min(piece, len(recording))
		m.Write(recording[:n])
		recording = recording[n:]
	}
	return m.Length()
}

// The length of a recording is within 2 %, however it is divided, and also of its first half.
func TestMeter(t *testing.T) {
	for name, content := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			millis, _ := strconv.Atoi(strings.FieldsFunc(name, func(c rune) bool { return c < '0' || c > '9' })[0])
			for _, piece := range []int{1, 7, 100, 345, 1 << 20} {
				d, known := measure(content, piece)
				if strings.HasPrefix(name, "unknown") {
					assert.False(t, known)
					continue
				}
				require.True(t, known)
				assert.InEpsilon(t, float64(millis), float64(d.Milliseconds()), 0.02)
			}
			if half, known := measure(content[:len(content)/2], 100); known {
				assert.Less(t, half.Milliseconds(), int64(millis)*3/4)
			}
		})
	}
}

func TestMeter_Samples(t *testing.T) {
	m := audiolength.Meter{BytesPerSecond: 48_000}
	_, known := m.Length()
	assert.False(t, known)
	m.Write(make([]byte, 24_000))
	d, known := m.Length()
	assert.True(t, known)
	assert.Equal(t, 500*time.Millisecond, d)
}

// waveOf returns a WAVE file with a header that a client may have made up.
func waveOf(codec, channels uint16, rate, byteRate uint32, bits uint16, data uint32, content string) []byte {
	b := append([]byte("RIFF"), "\xff\xff\xff\xffWAVEfmt \x10\x00\x00\x00"...)
	b = binary.LittleEndian.AppendUint16(b, codec)
	b = binary.LittleEndian.AppendUint16(b, channels)
	b = binary.LittleEndian.AppendUint32(b, rate)
	b = binary.LittleEndian.AppendUint32(b, byteRate)
	b = binary.LittleEndian.AppendUint16(b, 2)
	b = binary.LittleEndian.AppendUint16(b, bits)
	b = binary.LittleEndian.AppendUint32(append(b, "data"...), data)
	return append(b, content...)
}

// A header cannot make a recording shorter than its samples.
func TestMeter_Headers(t *testing.T) {
	second := strings.Repeat("x", 48_000)
	for name, test := range map[string]struct {
		recording []byte
		want      time.Duration // zero if it is not known
	}{
		"24 kHz, 16 bits":       {waveOf(1, 1, 24_000, 48_000, 16, 48_000, second), time.Second},
		"a wrong byte rate":     {waveOf(1, 1, 24_000, 1<<31, 16, 48_000, second), time.Second},
		"more than there is":    {waveOf(1, 1, 24_000, 48_000, 16, 1<<30, second), time.Second},
		"an unknown size":       {waveOf(1, 1, 24_000, 48_000, 16, 1<<32-1, second), time.Second},
		"no size":               {waveOf(1, 1, 24_000, 48_000, 16, 0, second), time.Second},
		"no rate":               {waveOf(1, 1, 0, 48_000, 16, 48_000, second), 0},
		"a codec":               {waveOf(0x55, 1, 24_000, 48_000, 16, 48_000, second), 0},
		"everything is largest": {waveOf(1, 1<<16-1, 1<<32-1, 1<<32-1, 1<<16-1, 1<<32-1, second), 0},
		"text":                  {[]byte(second), 0},
		"nothing":               {nil, 0},
		"a tag of 256 MiB":      {[]byte("ID3\x03\x00\x00\x7f\x7f\x7f\x7f" + second), 0},
		"a frame and text":      {[]byte("\xff\xfb\x90\x00" + second), 0},
	} {
		t.Run(name, func(t *testing.T) {
			d, known := measure(test.recording, 1000)
			assert.Equal(t, test.want > 0, known)
			if known {
				assert.Equal(t, test.want, d)
			}
		})
	}
}

// The length does not depend on how a recording is divided, and is neither negative nor too large.
func FuzzMeter(f *testing.F) {
	for _, content := range recordings(f) {
		f.Add(content[:min(len(content), 2000)], 7)
	}
	f.Add(waveOf(1, 1<<16-1, 1<<32-1, 1<<32-1, 1<<16-1, 1<<32-1, "x"), 1)
	f.Fuzz(func(t *testing.T, content []byte, piece int) {
		d, known := measure(content, len(content)+1)
		other, otherKnown := measure(content, max(piece, 1))
		assert.Equal(t, known, otherKnown)
		assert.Equal(t, d, other)
		assert.GreaterOrEqual(t, d, time.Duration(0))
		assert.LessOrEqual(t, d, 1e9*time.Second)
	})
}
