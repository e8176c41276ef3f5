package audiolength

import (
	"mime"
	"slices"
	"strings"
)

// mediaTypes are the names of the formats that a Meter knows, the common one first.
var mediaTypes = [...][]string{
	{"audio/mpeg", "audio/mp3", "audio/x-mp3", "audio/mpeg3", "audio/x-mpeg", "audio/aac", "audio/aacp", "audio/x-aac"}, // AAC may begin with an ID3 tag too
	{"audio/flac", "audio/x-flac"},
	{"audio/ogg", "audio/opus", "audio/vorbis", "audio/x-ogg"},
	{"audio/wav", "audio/wave", "audio/x-wav", "audio/vnd.wave"},
}

// MediaType returns the media type of a recording with the label contentType, such as "audio/mpeg", that begins with b, of
// which 12 bytes are enough. The header of a format counts more than the label. The type is empty if neither tells.
// Frames of MP3 and AAC without a header count only if there is no label and raw is false: raw samples may begin as
// those do.
func MediaType(contentType string, b []byte, raw bool) string {
	media, _, err := mime.ParseMediaType(contentType)
	isLabelled := err == nil && strings.HasPrefix(media, "audio/")
	if i := headerOf(b); i >= 0 {
		if isLabelled && slices.Contains(mediaTypes[i], media) {
			return contentType
		}
		return mediaTypes[i][0]
	}
	switch {
	case isLabelled:
		return contentType
	case raw || len(b) < 2:
		return ""
	case isADTS(b):
		return "audio/aac"
	case isMP3(b):
		return "audio/mpeg"
	}
	return ""
}

// headerOf returns the index in mediaTypes of the format whose header b begins with, or -1.
func headerOf(b []byte) int {
	for i, header := range []string{"ID3", "fLaC", "OggS", "RIFF"} {
		if strings.HasPrefix(string(b[:min(len(b), 4)]), header) && (header != "RIFF" || len(b) >= 12 && string(b[8:12]) == "WAVE") {
			return i
		}
	}
	return -1
}

func isADTS(b []byte) bool { return b[0] == 0xff && b[1]&0xf6 == 0xf0 }

func isMP3(b []byte) bool { return b[0] == 0xff && b[1]&0xe0 == 0xe0 }
