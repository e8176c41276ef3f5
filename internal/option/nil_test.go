package option_test

import (
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/option"
)

func TestIsNil(t *testing.T) {
	var file *os.File
	for _, v := range []any{nil, file, http.HandlerFunc(nil)} {
		assert.True(t, option.IsNil(v), "%T", v)
	}
	for _, v := range []any{0, "", os.Stdin, http.Header(nil), http.NotFoundHandler(), struct{ r io.Reader }{}} {
		assert.False(t, option.IsNil(v), "%T", v)
	}
}

func TestCheckInterfaces(t *testing.T) {
	type inner struct{ Handler http.Handler }
	type options struct {
		File   *os.File
		Reader io.Reader
		Inner  inner
		hidden io.Reader
	}
	var file *os.File
	for want, opts := range map[string]*options{
		"Options.Reader holds a nil *os.File":                {Reader: file},
		"Options.Inner.Handler holds a nil http.HandlerFunc": {Inner: inner{http.HandlerFunc(nil)}},
		"Options.hidden holds a nil *os.File":                {hidden: file},
	} {
		assert.EqualError(t, option.CheckInterfaces(opts), want)
	}
	for _, opts := range []*options{nil, {}, {Reader: os.Stdin, Inner: inner{http.NotFoundHandler()}}} {
		assert.NoError(t, option.CheckInterfaces(opts))
	}
}
