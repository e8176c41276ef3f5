package audiolength

import (
	"encoding/binary"
	"time"
)

// An ogg reads the pages of an Ogg file (RFC 3533): the position of the last page of each stream tells
// how long it is. Streams that begin together are as long as the longest, and those that begin later
// follow each other.
type ogg struct {
	streams []oggStream
	before  time.Duration // of streams that have ended
	began   bool          // a stream that has begun has pages with audio
	broken  bool
}

// An oggStream is a stream of Opus or Vorbis, or one that is not known, whose rate is zero.
type oggStream struct {
	serial   uint32
	rate     int64 // of positions in a second
	skipped  int64 // positions at the beginning that are not played
	position int64 // of the last page
	bytes    int64 // of pages with audio
}

const (
	maxOggStreams = 16

	// maxBytesPerSecond is the most that audio has. A stream with more has positions that are wrong.
	maxBytesPerSecond = 512_000 / 8 * 2
)

func (o *ogg) next(b []byte) int64 {
	const header, first = 27, 2
	if len(b) < header || len(b) < header+int(b[26]) {
		return 0
	}
	if string(b[:4]) != "OggS" {
		o.broken = true // a part is missing
		return 1 << 62
	}
	size, start := int64(0), header+int(b[26])
	for _, n := range b[header:start] {
		size += int64(n)
	}
	if beginning := min(size, 16); int64(len(b)-start) < beginning {
		return 0
	}
	serial := binary.LittleEndian.Uint32(b[14:])
	if b[5]&first != 0 {
		o.begin(serial, b[start:])
	} else {
		o.add(serial, int64(binary.LittleEndian.Uint64(b[6:])), size)
	}
	return int64(start) + size
}

// begin begins a stream, whose first packet begins with b.
func (o *ogg) begin(serial uint32, b []byte) {
	if o.began {
		o.before, _ = o.length()
		o.streams, o.began = nil, false
	}
	s := oggStream{serial: serial}
	switch {
	case len(b) >= 16 && string(b[:8]) == "OpusHead": // RFC 7845, section 5.1
		s.rate, s.skipped = 48_000, int64(binary.LittleEndian.Uint16(b[10:]))
	case len(b) >= 16 && string(b[:7]) == "\x01vorbis": // https://xiph.org/vorbis/doc/Vorbis_I_spec.html#x1-630004.2.2
		s.rate = int64(binary.LittleEndian.Uint32(b[12:]))
	}
	if o.broken = o.broken || len(o.streams) == maxOggStreams; !o.broken {
		o.streams = append(o.streams, s)
	}
}

// add adds a page, after the first one of a stream.
func (o *ogg) add(serial uint32, position, size int64) {
	for i := range o.streams {
		s := &o.streams[i]
		if s.serial != serial {
			continue
		}
		if position > 0 { // it is zero for comments, and -1 if no packet ends in the page
			s.position = max(s.position, position)
		}
		if s.position > 0 {
			s.bytes += size
			o.began = true
		}
		return
	}
}

func (o *ogg) length() (time.Duration, bool) {
	longest, known := o.before, !o.broken
	for _, s := range o.streams {
		if s.rate == 0 {
			continue
		}
		d := bounded(max(s.position-s.skipped, 0), s.rate)
		if float64(s.bytes) > maxBytesPerSecond*(d.Seconds()+1) {
			known = false
		}
		longest = max(longest, min(o.before+d, maxLength))
	}
	return longest, known
}
