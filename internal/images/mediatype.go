package images

import (
	"bytes"
	"net/http"
)

// MediaType returns the media type of an image. It knows SVG and AVIF besides the formats of http.DetectContentType, whose
// result it returns for everything else.
func MediaType(data []byte) string {
	switch {
	case isSVG(data):
		return "image/svg+xml"
	case len(data) >= 12 && string(data[4:8]) == "ftyp" && (string(data[8:12]) == "avif" || string(data[8:12]) == "avis"):
		return "image/avif"
	}
	return http.DetectContentType(data)
}

// maxProlog is how many bytes may precede the element of an SVG.
const maxProlog = 4 << 10

// isSVG reports whether data is an XML document whose element is svg. Before that there may be a byte order mark, white
// space, the XML declaration, comments and a document type.
func isSVG(data []byte) bool {
	rest := bytes.TrimPrefix(data[:min(len(data), maxProlog)], []byte("\ufeff"))
	for {
		rest = bytes.TrimLeft(rest, " \t\r\n")
		end := ""
		switch {
		case bytes.HasPrefix(rest, []byte("<!--")):
			end = "-->"
		case bytes.HasPrefix(rest, []byte("<?")):
			end = "?>"
		case bytes.HasPrefix(rest, []byte("<!DOCTYPE svg")):
			end = ">"
		default:
			after, ok := bytes.CutPrefix(rest, []byte("<svg"))
			return ok && len(after) > 0 && bytes.IndexByte([]byte(" \t\r\n/>"), after[0]) >= 0
		}
		_, after, ok := bytes.Cut(rest, []byte(end))
		if !ok {
			return false
		}
		rest = after
	}
}
