package llm_test

import (
	"testing"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/assert"
)

func TestFile_Extension(t *testing.T) {
	for _, test := range []struct{ name, contentType, want string }{
		{"a.MP3", "audio/wav", "mp3"}, {"blob", "audio/webm;codecs=opus", "webm"}, {"blob", "application/octet-stream", ""},
		{"", "", ""}, {"a.", "audio/mpeg", "mp3"}, {"a", "audio/x-m4a", "m4a"}, {"a.tar.gz", "", "gz"},
	} {
		f := llm.File{Name: test.name, ContentType: test.contentType}
		assert.Equal(t, test.want, f.Extension(), test)
	}
}
