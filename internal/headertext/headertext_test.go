package headertext_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/headertext"
)

func TestMediaType(t *testing.T) {
	for s, want := range map[string]string{
		"image/png":                            "image/png",
		"Image/PNG":                            "image/png",
		" image/png ":                          "image/png",
		"audio":                                "audio",
		"audio/webm;codecs=opus":               "audio/webm; codecs=opus",
		"video/webm;codecs=vp8,opus":           "video/webm",
		"text/plain; name*=utf-8''a%0d%0ab%09": "text/plain; name*=utf-8''a%0D%0Ab%09",
		"text/plain; name=\"ä\"":               "text/plain; name*=utf-8''%C3%A4",
		"text/plain; name=a; name=b":           "",
		"":                                     "",
		" ":                                    "",
		";charset=utf-8":                       "",
		"image/":                               "",
		"image/png/x":                          "",
		"image/p\u00e4":                        "",
		"image/png\r\nContent-Disposition: x":  "",
		"image/png;\r\nname=model":             "",
		"image/png; x=\"\n\"":                  "",
		"image/png; x=\"\x00\"":                "",
		"image/png; x=\"\x85\"":                "",
		"image/png; x=\"\u0085\"":              "",
		"image/png\nContent-Disposition: form-data": "",
		"image/png\r": "",
	} {
		got, ok := headertext.MediaType(s)
		assert.Equal(t, want, got, "%q", s)
		assert.Equal(t, want != "", ok, "%q", s)
		assert.True(t, headertext.IsSafe(got), "%q", got)
	}
}

func TestIsSafe(t *testing.T) {
	for s, want := range map[string]bool{
		"": true, "a b.png": true, "ä\u2028": true,
		"a\tb": false, "a\nb": false, "a\rb": false, "\x00": false, "\x7f": false, "\u0085": false, "\x85": false,
	} {
		assert.Equal(t, want, headertext.IsSafe(s), "%q", s)
	}
}
