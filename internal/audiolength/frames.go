package audiolength

import "time"

// A frames reads a recording that is a sequence of frames, each with a header: MP3 or ADTS. Bytes
// between frames, such as a tag at the end, are ignored, as players do.
type frames struct {
	parse func(b []byte) (f frame, ok bool)

	first  frame // whose kind the others have
	total  time.Duration
	inside int64 // bytes of frames
	junk   int64 // bytes between them
}

// A frame is what its header tells.
type frame struct {
	kind  uint32 // what all frames of a recording have in common; not zero
	size  int64  // in bytes, with the header
	time  time.Duration
	empty bool // has information in place of audio
}

// frameHeader is how many bytes the parse functions need: up to the tag of an encoder.
const frameHeader = 4 + 2 + 32 + 4

func (s *frames) next(b []byte) int64 {
	if len(b) < frameHeader {
		return 0
	}
	f, ok := s.parse(b)
	if !ok || s.first.kind != 0 && f.kind != s.first.kind {
		n := int64(1 + indexSync(b[1:len(b)-frameHeader+1]))
		s.junk += n
		return n
	}
	if s.first.kind == 0 {
		s.first = f
	}
	if s.inside += f.size; !f.empty {
		s.total += f.time
	}
	return f.size
}

// length returns a length unless much is not in frames: then the recording may be something else.
func (s *frames) length() (time.Duration, bool) { return s.total, s.junk <= s.inside/8 }

// The tables of MPEG audio, layer III: ISO/IEC 11172-3, section 2.4.2.3, and 13818-3.
var (
	mp3Kbits  = [16]int64{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0}
	mp3Kbits2 = [16]int64{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0}
	mp3Rates  = [4]int64{44100, 48000, 32000, 0}
)

// mp3 parses the header of a frame of MPEG 1, 2 or 2.5, layer III.
func mp3(b []byte) (f frame, ok bool) {
	const v25, v2, v1, layer3 = 0, 2, 3, 1
	version, layer := b[1]>>3&3, b[1]>>1&3
	rate, kbits, samples := mp3Rates[b[2]>>2&3], mp3Kbits[b[2]>>4], int64(1152)
	switch version {
	case v1:
	case v2:
		rate, kbits, samples = rate/2, mp3Kbits2[b[2]>>4], 576
	case v25:
		rate, kbits, samples = rate/4, mp3Kbits2[b[2]>>4], 576
	default:
		return f, false
	}
	if b[0] != 0xff || b[1]&0xe0 != 0xe0 || layer != layer3 || rate == 0 || kbits == 0 { // without kbits, the size is not told
		return f, false
	}
	f.kind = 1<<31 | uint32(b[1]&0xfe)<<8 | uint32(b[2]&0x0c)
	f.size = samples/8*kbits*1000/rate + int64(b[2]>>1&1)
	f.time = bounded(samples, rate)
	sideInfo := 4 + 32
	switch mono := b[3]>>6 == 3; {
	case version == v1 && mono, version != v1 && !mono:
		sideInfo = 4 + 17
	case version != v1:
		sideInfo = 4 + 9
	}
	tag := string(b[sideInfo : sideInfo+4])
	f.empty = tag == "Xing" || tag == "Info"
	return f, true
}

// adtsRates are the sampling rates of ISO/IEC 14496-3, table 1.18.
var adtsRates = [16]int64{96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350}

// adts parses the header of a frame of AAC.
func adts(b []byte) (f frame, ok bool) {
	rate := adtsRates[b[2]>>2&15]
	f.size = int64(b[3]&3)<<11 | int64(b[4])<<3 | int64(b[5]>>5)
	if b[0] != 0xff || b[1]&0xf6 != 0xf0 || rate == 0 || f.size < 7 {
		return f, false
	}
	f.kind = 1<<31 | uint32(b[2]&0x3c)
	f.time = bounded(1024*(1+int64(b[6]&3)), rate)
	return f, true
}
