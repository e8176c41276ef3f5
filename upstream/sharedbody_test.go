package upstream

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
)

func sharedText(t testing.TB, text string) *sharedBody {
	s, err := newSharedBody(func(b []byte) ([]byte, error) { return append(b, text...), nil })
	require.NoError(t, err)
	return s
}

// The memory of a body is not used again before all readers are closed, and not read after that.
func TestSharedBody(t *testing.T) {
	text := strings.Repeat("a", minShared)
	body := sharedText(t, text)
	p := body.payload()
	assert.EqualValues(t, minShared, p.size)
	first, err := p.open()
	require.NoError(t, err)
	second, err := p.open()
	require.NoError(t, err)
	require.NoError(t, iotest.TestReader(first, []byte(text)))
	body.release()
	require.NoError(t, first.Close())
	require.NoError(t, first.Close())
	sharedText(t, strings.Repeat("b", minShared))
	got, err := io.ReadAll(second)
	require.NoError(t, err)
	require.Equal(t, text, string(got))

	require.NoError(t, second.Close())
	_, err = second.Read(make([]byte, 1))
	assert.ErrorIs(t, err, errBodyReleased)
	_, err = p.open()
	assert.ErrorIs(t, err, errBodyReleased)
}

func TestSharedBody_SmallOnesAreCopied(t *testing.T) {
	body := sharedText(t, "small")
	p := body.payload()
	body.release()
	sharedText(t, "other")
	r, err := p.open()
	require.NoError(t, err)
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "small", string(got))
}

func TestSharedBody_EncodingFails(t *testing.T) {
	broken := errors.New("broken")
	_, err := newSharedBody(func([]byte) ([]byte, error) { return nil, broken })
	assert.Equal(t, broken, err)
}

// A lateReader is a transport that replies before it has read the request.
type lateReader struct {
	t       *testing.T
	readers sync.WaitGroup
}

func (l *lateReader) RoundTrip(r *http.Request) (*http.Response, error) {
	again, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	want := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat(r.Header.Get("X-Letter"), minShared) + `"}]}`
	for _, body := range []io.ReadCloser{r.Body, again} {
		l.readers.Go(func() {
			defer body.Close()
			got, err := io.ReadAll(body)
			assert.NoError(l.t, err)
			assert.True(l.t, string(got) == want, "the body is the request")
		})
	}
	return cannedTransport{mediaJSON, benchReply}.reply(r), nil
}

func TestChat_TransportThatReadsTheRequestAfterTheReply(t *testing.T) {
	transport := &lateReader{t: t}
	var chats sync.WaitGroup
	for i := range 8 {
		chats.Go(func() {
			letter := string(rune('a' + i))
			backend, err := New("http://test.invalid/v1", &Options{Transport: transport, Header: http.Header{"X-Letter": {letter}}})
			if !assert.NoError(t, err) {
				return
			}
			for range 4 {
				req := &llm.ChatRequest{Model: "m", Messages: []llm.Message{
					{Role: llm.RoleUser, Content: llm.Text(strings.Repeat(letter, minShared))},
				}}
				for _, err := range backend.Chat(t.Context(), req) {
					assert.NoError(t, err)
				}
			}
		})
	}
	chats.Wait()
	transport.readers.Wait()
}
