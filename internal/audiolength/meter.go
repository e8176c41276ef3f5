// Package audiolength measures how long a recording is, from its bytes as they come.
//
// It reads the formats in which most speech is sent: WAVE, MP3, AAC in ADTS, FLAC, and Opus and Vorbis
// in Ogg. It counts what is there, and believes a header only where nothing else tells: the length of
// a recording that was cut off is that of the part, and a client cannot make a recording shorter by
// what it writes into a header.
package audiolength

import (
	"bytes"
	"time"
)

// A Meter measures a recording whose bytes are written to it. The zero Meter is empty and ready to
// use. It keeps less than a kilobyte of what was written.
type Meter struct {
	// BytesPerSecond is the rate of a recording without a header, of raw samples. Zero means that the
	// recording has the header of a format.
	BytesPerSecond int64

	size   int64  // written so far
	skip   int64  // bytes to ignore
	rest   []byte // what could not be read yet
	format format // nil until it is known
	failed bool   // the format is not known
}

// A format reads a recording.
type format interface {
	// next reads what b begins with and returns how many bytes that has, which may be more than b.
	// Zero means that more bytes than b are needed. b is less than maxNeeded only at the end.
	next(b []byte) int64

	// length returns the length so far, and false if it is not known.
	length() (time.Duration, bool)
}

// maxNeeded is how many bytes a format needs at most to read something: a page header of Ogg with its
// segments, and the beginning of a packet.
const maxNeeded = 27 + 255 + 64

// maxLength is the longest length that is believed.
const maxLength = 1e9 * time.Second

// Write adds the next bytes of the recording. It returns len(p) and no error.
func (m *Meter) Write(p []byte) (int, error) {
	n := len(p)
	m.size += int64(n)
	if m.BytesPerSecond != 0 || m.failed {
		return n, nil
	}
	for len(p) > 0 && !m.failed {
		if m.skip > 0 {
			skipped := min(m.skip, int64(len(p)))
			m.skip, p = m.skip-skipped, p[skipped:]
			continue
		}
		if len(m.rest) == 0 {
			p = p[m.read(p):]
			m.rest = append(m.rest, p...)
			break
		}
		// What was left is completed with at most maxNeeded bytes.
		before := len(m.rest)
		added := min(len(p), maxNeeded)
		m.rest = append(m.rest, p[:added]...)
		read := m.read(m.rest)
		if read <= before { // p is too short, or what was left is not used up yet
			m.rest = append(m.rest[:0], m.rest[read:]...)
			p = p[added:]
			continue
		}
		m.rest, p = m.rest[:0], p[read-before:]
	}
	return n, nil
}

// read reads from b as far as it can and returns how many bytes it has used.
func (m *Meter) read(b []byte) (used int) {
	for used < len(b) && !m.failed {
		n := m.next(b[used:])
		if n <= 0 {
			break
		}
		if left := int64(len(b) - used); n > left {
			m.skip = n - left
			return len(b)
		}
		used += int(n)
	}
	if m.failed {
		return len(b)
	}
	return used
}

func (m *Meter) next(b []byte) int64 {
	if m.format != nil {
		return m.format.next(b)
	}
	if len(b) < 12 {
		return 0
	}
	switch {
	case string(b[:3]) == "ID3": // a tag, which may have a picture
		return 10 + (int64(b[6]&0x7f)<<21 | int64(b[7]&0x7f)<<14 | int64(b[8]&0x7f)<<7 | int64(b[9]&0x7f))
	case string(b[:4]) == "RIFF" && string(b[8:12]) == "WAVE":
		m.format = new(wave)
		return 12
	case string(b[:4]) == "fLaC":
		m.format = new(flac)
		return 4
	case string(b[:4]) == "OggS":
		m.format = new(ogg)
	case isADTS(b):
		m.format = &frames{parse: adts}
	case isMP3(b):
		m.format = &frames{parse: mp3}
	default:
		m.failed = true
		return 0
	}
	return m.format.next(b)
}

// Length returns how long the recording is, so far. It returns false if that is not known, because the
// format is not or because there is no audio.
func (m *Meter) Length() (time.Duration, bool) {
	switch {
	case m.BytesPerSecond > 0:
		return bounded(m.size, m.BytesPerSecond), m.size > 0
	case m.format == nil || m.failed:
		return 0, false
	}
	d, known := m.format.length()
	return min(d, maxLength), known && d > 0
}

// bounded returns how long n units last of which there are rate in a second, which is positive.
func bounded(n, rate int64) time.Duration {
	if n < 0 || n/rate >= int64(maxLength/time.Second) {
		return maxLength
	}
	return time.Duration(n/rate)*time.Second + time.Duration(float64(n%rate)/float64(rate)*float64(time.Second))
}

// indexSync returns the index of the first byte of b that may begin a frame, or len(b).
func indexSync(b []byte) int {
	if i := bytes.IndexByte(b, 0xff); i >= 0 {
		return i
	}
	return len(b)
}
