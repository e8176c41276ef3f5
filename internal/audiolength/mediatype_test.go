package audiolength_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/audiolength"
)

func TestMediaType(t *testing.T) {
	const wave = "RIFF\xff\xff\xff\xffWAVEfmt "
	for name, test := range map[string]struct {
		label, head string
		raw         bool
		want        string
	}{
		"label":                       {"audio/mpeg", "\xff\xfb\x90\x00", false, "audio/mpeg"},
		"label with parameters":       {"audio/L16; rate=16000", "\x00\x00\x00\x00", false, "audio/L16; rate=16000"},
		"label of another name":       {"audio/x-wav", wave, false, "audio/x-wav"},
		"label that agrees":           {"audio/ogg; codecs=opus", "OggS\x00", false, "audio/ogg; codecs=opus"},
		"label of a newer format":     {"audio/webm", "\x1aE\xdf\xa3", false, "audio/webm"},
		"WAVE with the label of MP3":  {"audio/mpeg", wave, false, "audio/wav"},
		"MP3 with the label of WAVE":  {"audio/wav", "ID3\x04\x00", false, "audio/mpeg"},
		"AAC with a tag":              {"audio/aac", "ID3\x04\x00", false, "audio/aac"},
		"raw samples like frames":     {"audio/pcm", "\xff\xfb\x00\x00", false, "audio/pcm"},
		"WAVE for raw samples":        {"audio/pcm", wave, true, "audio/wav"},
		"no label, WAVE":              {"application/octet-stream", wave, false, "audio/wav"},
		"no label, FLAC":              {"", "fLaC\x00", false, "audio/flac"},
		"no label, Ogg":               {"application/ogg", "OggS\x00", false, "audio/ogg"},
		"no label, MP3":               {"", "\xff\xfb\x90\x00", false, "audio/mpeg"},
		"no label, AAC":               {"", "\xff\xf1\x50\x80", false, "audio/aac"},
		"no label, raw like frames":   {"", "\xff\xfb\x90\x00", true, ""},
		"no label, unknown":           {"", "abcdefghijklmnop", false, ""},
		"no label, nothing":           {"", "", false, ""},
		"no label, one byte":          {"", "\xff", false, ""},
		"label of a page":             {"text/html", "<html>", false, ""},
		"another file of this header": {"audio/mpeg", "RIFF\xff\xff\xff\xffWEBPVP8 ", false, "audio/mpeg"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, audiolength.MediaType(test.label, []byte(test.head), test.raw))
		})
	}
}
