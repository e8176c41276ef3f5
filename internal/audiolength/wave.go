package audiolength

import (
	"encoding/binary"
	"time"
)

// A wave reads the chunks of a WAVE file
// (https://learn.microsoft.com/windows/win32/xaudio2/resource-interchange-file-format--riff-).
type wave struct {
	rate int64 // bytes in a second; zero until it is known
	data int64 // bytes of samples
	open int64 // bytes of the data chunk that are not read yet
	off  bool  // the codec is not known, so that a time cannot be computed
}

// The codecs of whose samples the size is known.
const (
	wavePCM        = 1
	waveFloat      = 3
	waveALaw       = 6
	waveMuLaw      = 7
	waveExtensible = 0xfffe
)

func (w *wave) next(b []byte) int64 {
	const header, format = 8, 16
	if w.open > 0 {
		n := min(w.open, int64(len(b)))
		w.data, w.open = w.data+n, w.open-n
		return n
	}
	if len(b) < header {
		return 0
	}
	size := int64(binary.LittleEndian.Uint32(b[4:]))
	switch string(b[:4]) {
	case "fmt ":
		if len(b) < header+format {
			return 0
		}
		w.readFormat(b[header:])
	case "data":
		w.open = size
		if size == 0 || size >= 1<<31-1 { // not known, as in a stream
			w.open = 1 << 62
		}
		return header
	}
	return header + size + size&1
}

// readFormat reads a chunk with the format. The byte rate in it is not used: players compute it too.
func (w *wave) readFormat(b []byte) {
	codec := binary.LittleEndian.Uint16(b)
	channels, rate, bits := binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint16(b[14:])
	switch codec {
	case wavePCM, waveFloat, waveALaw, waveMuLaw, waveExtensible:
	default:
		w.off = true
	}
	w.rate = int64(rate) * int64(channels) * ((int64(bits) + 7) / 8)
}

func (w *wave) length() (time.Duration, bool) {
	if w.off || w.rate <= 0 {
		return 0, false
	}
	return bounded(w.data, w.rate), true
}
