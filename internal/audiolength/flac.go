package audiolength

import "time"

// A flac reads a FLAC file (RFC 9639). It counts frames: the total in the header is missing in a stream,
// and that of a file that was cut off is too large.
type flac struct {
	rate    int64 // samples in a second
	last    bool  // the last block of metadata was read
	samples int64
}

func (f *flac) next(b []byte) int64 {
	const info, header = 4 + 18, 16
	if !f.last {
		if len(b) < info {
			return 0
		}
		if b[0]&0x7f == 0 { // STREAMINFO
			f.rate = int64(b[14])<<12 | int64(b[15])<<4 | int64(b[16])>>4
		}
		f.last = b[0]&0x80 != 0
		return 4 + (int64(b[1])<<16 | int64(b[2])<<8 | int64(b[3]))
	}
	if len(b) < header {
		return 0
	}
	if n := flacBlock(b[:header]); n > 0 {
		f.samples += n
		return 5 // of the shortest header; no frame begins in the rest of it
	}
	return int64(1 + indexSync(b[1:len(b)-header+1]))
}

// flacBlock returns the number of samples of the frame whose header b begins with, or zero if it is
// none. A checksum tells the two apart.
func flacBlock(b []byte) int64 {
	if b[0] != 0xff || b[1]&0xfe != 0xf8 || b[2]&0x0f == 15 || b[3]&0x01 != 0 || b[3]>>4 > 10 || b[3]>>1&7 == 3 {
		return 0
	}
	end := 5 // behind the number of the frame, which is coded like UTF-8
	for c := b[4]; c >= 0xc0 && c<<1 >= 0x80 && end < 11; c <<= 1 {
		end++
	}
	var samples int64
	switch code := b[2] >> 4; {
	case code == 0:
		return 0
	case code == 1:
		samples = 192
	case code <= 5:
		samples = 576 << (code - 2)
	case code == 6:
		samples = int64(b[end]) + 1
		end++
	case code == 7:
		samples = int64(b[end])<<8 + int64(b[end+1]) + 1
		end += 2
	default:
		samples = 256 << (code - 8)
	}
	switch b[2] & 15 {
	case 12:
		end++
	case 13, 14:
		end += 2
	}
	if end >= len(b) || crc8(b[:end]) != b[end] {
		return 0
	}
	return samples
}

// crc8 returns the checksum of a header, whose polynomial is x^8 + x^2 + x + 1.
func crc8(b []byte) (crc byte) {
	for _, c := range b {
		crc ^= c
		for range 8 {
			high := crc&0x80 != 0
			if crc <<= 1; high {
				crc ^= 0x07
			}
		}
	}
	return crc
}

func (f *flac) length() (time.Duration, bool) {
	if f.rate == 0 {
		return 0, false
	}
	return bounded(f.samples, f.rate), true
}
