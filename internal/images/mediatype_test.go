package images_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/images"
)

func TestMediaType(t *testing.T) {
	const svg = "image/svg+xml"
	for data, want := range map[string]string{
		`<svg xmlns="http://www.w3.org/2000/svg"/>`: svg,
		"<svg>":   svg,
		"<svg\n>": svg,
		"\ufeff \r\n<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- a > b -->\n<!DOCTYPE svg PUBLIC \"-//W3C//DTD SVG 1.1//EN\" \"http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd\">\n<svg width=\"1\">": svg,
		"<!--" + strings.Repeat("x", 4<<10) + "--><svg/>": "text/plain; charset=utf-8",
		"<svgs>":                      "text/plain; charset=utf-8",
		"<svg":                        "text/plain; charset=utf-8",
		"<?xml version=\"1.0\"?><a/>": "text/xml; charset=utf-8",
		"<!-- <svg> -->":              "text/html; charset=utf-8",
		"<html><svg/></html>":         "text/html; charset=utf-8",
		"a <svg/>":                    "text/plain; charset=utf-8",
		"":                            "text/plain; charset=utf-8",
		"\x89PNG\r\n\x1a\nabcd":       "image/png",
		"\xff\xd8\xffabcd":            "image/jpeg",
		"RIFFabcdWEBPVP8 ":            "image/webp",
		"\x00\x00\x00\x1cftypavif":    "image/avif",
		"\x00\x00\x00\x1cftypisom":    "application/octet-stream",
	} {
		assert.Equal(t, want, images.MediaType([]byte(data)), "%.100q", data)
	}
}
