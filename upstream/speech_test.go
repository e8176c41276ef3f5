package upstream_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/upstream"
)

const (
	speechPath = "/v1/audio/speech"
	askSpeech  = `{"model":"m","input":"Hello","voice":"alloy"}`
)

// waveHeader returns the header of a WAVE file of that many bytes in a second.
func waveHeader(rate int) string {
	h := []byte("RIFF\xff\xff\xff\xffWAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00")
	h = binary.LittleEndian.AppendUint32(h, uint32(rate/2))
	h = binary.LittleEndian.AppendUint32(h, uint32(rate))
	return string(h) + "\x02\x00\x10\x00data\xff\xff\xff\xff"
}

func TestSpeak(t *testing.T) {
	delta := func(piece string) string {
		b, _ := json.Marshal(map[string]any{"type": "speech.audio.delta", "audio": []byte(piece)})
		return string(b)
	}
	const finished = `{"type":"speech.audio.done","usage":{"input_tokens":14,"output_tokens":101,"total_tokens":115}}`
	sends := func(media, body string) func(c net.Conn) {
		return func(c net.Conn) { writeReply(c, 200, media, body) }
	}
	events := func(data ...string) func(c net.Conn) { return func(c net.Conn) { writeEvents(c, data...) } }
	for name, test := range map[string]struct {
		members string
		reply   func(c net.Conn)
		status  int
		body    string
		units   llmhttp.Units
	}{
		"audio":            {``, sends("audio/mpeg", "ID3\x00\xff"), 200, "ID3\x00\xff", llmhttp.Units{Characters: 5, AudioMillis: 5}},
		"no known type":    {``, sends("application/octet-stream", `{"error":"x"}`), 200, `{"error":"x"}`, llmhttp.Units{Characters: 5, AudioMillis: 13}},
		"pcm":              {`,"response_format":"pcm"`, sends("audio/pcm", strings.Repeat("x", 12_000)), 200, strings.Repeat("x", 12_000), llmhttp.Units{Characters: 5, AudioMillis: 250}},
		"wav":              {`,"response_format":"wav"`, sends("audio/wav", waveHeader(1000)+strings.Repeat("x", 1956)), 200, waveHeader(1000) + strings.Repeat("x", 1956), llmhttp.Units{Characters: 5, AudioMillis: 1956}},
		"empty":            {``, sends("audio/mpeg", ""), 502, bodyFailed, llmhttp.Units{}},
		"HTML":             {``, sends("text/html", "<html>"), 502, bodyFailed, llmhttp.Units{}},
		"an error as JSON": {``, sends(mediaJSON, `{"error":{"message":"no such voice","type":"invalid_request_error","param":"voice","code":null}}`), 400, `"param":"voice"`, llmhttp.Units{}},
		"other JSON":       {``, sends(mediaJSON, `{"audio":"x"}`), 502, bodyFailed, llmhttp.Units{}},
		"events as bytes":  {``, events(delta("ab"), `{"type":"x"}`, delta("c"), finished), 200, "abc", llmhttp.Units{Characters: 5, PromptTokens: 14, CompletionTokens: 101, CompletionAudioTokens: 101}},
		"events": {`,"stream_format":"sse"`, events(delta("ab"), finished), 200,
			"data: " + `{"type":"speech.audio.delta","audio":"YWI="}` + "\n\ndata: " + finished + "\n\n", llmhttp.Units{Characters: 5, PromptTokens: 14, CompletionTokens: 101, CompletionAudioTokens: 101}},
		"events without tokens":       {`,"stream_format":"sse"`, events(delta("ab"), `{"type":"speech.audio.done"}`), 200, `"input_tokens":0`, llmhttp.Units{Characters: 5, AudioMillis: 2}},
		"bytes as events":             {`,"stream_format":"sse"`, sends("audio/mpeg", "ab"), 200, `"audio":"YWI="`, llmhttp.Units{Characters: 5, AudioMillis: 2}},
		"an error event":              {``, events(`{"type":"speech.audio.error","error":{"message":"down","code":503}}`), 503, `overloaded`, llmhttp.Units{}},
		"an event that is not JSON":   {``, events(`x`), 502, bodyFailed, llmhttp.Units{}},
		"no audio in the events":      {``, events(finished), 500, "had an error", llmhttp.Units{PromptTokens: 14, CompletionTokens: 101, CompletionAudioTokens: 101}},
		"the end of the events lacks": {``, events(), 502, bodyFailed, llmhttp.Units{}},
		"the error of the server": {``, func(c net.Conn) {
			writeReply(c, 400, mediaJSON, `{"error":{"message":"model srv says no","type":"invalid_request_error","param":"input","code":"too_long"}}`)
		}, 400, `{"error":{"message":"model m says no","type":"invalid_request_error","param":"input","code":"too_long"}}`, llmhttp.Units{}},
		"no such endpoint": {``, func(c net.Conn) { writeReply(c, 404, "text/plain", "404") }, 404, "Invalid URL", llmhttp.Units{}},
		"no such model": {``, func(c net.Conn) {
			writeReply(c, 404, mediaJSON, `{"error":{"message":"The model does not exist","code":"model_not_found"}}`)
		}, 404, "The model `m` does not exist", llmhttp.Units{}},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			s := newRawServer(t, func(c net.Conn, _ *rawRequest) { test.reply(c) })
			g := newGateway(t, s.url(), &upstream.Options{Models: map[string]string{"m": "srv"}})
			got := g.do("POST", speechPath, strings.TrimSuffix(askSpeech, "}")+test.members+"}")
			require.Equal(t, test.status, got.StatusCode, "%s", got.body)
			if test.status == 200 && !strings.HasPrefix(test.body, `"`) {
				assert.Equal(t, test.body, got.body)
			} else {
				assert.Contains(t, got.body, test.body)
			}
			assert.Equal(t, test.units, g.recordedUsage(1).Units)
		})
	}
}

// The server gets all members under its name of the model, and no stream_format unless the client
// wants events: servers refuse it, and vLLM-Omni takes it with some formats only.
func TestSpeak_Request(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, _ *rawRequest) { writeReply(c, 200, "audio/mpeg", "a") })
	g := newGateway(t, s.url(), &upstream.Options{Models: map[string]string{"m": "srv"}})
	for members, want := range map[string]string{
		``: `{"model":"srv","input":"Hello","voice":"alloy","response_format":"mp3"}`,
		`,"instructions":"slow","response_format":"opus","speed":2,"stream_format":"sse","lang_code":"a"`: `{"model":"srv","input":"Hello","voice":"alloy","instructions":"slow","response_format":"opus","speed":2,"stream_format":"sse","lang_code":"a"}`,
		`,"stream_format":"audio"`: `{"model":"srv","input":"Hello","voice":"alloy","response_format":"mp3"}`,
	} {
		require.Equal(t, 200, g.do("POST", speechPath, strings.TrimSuffix(askSpeech, "}")+members+"}").StatusCode)
		assert.Equal(t, want, s.last().body)
		assert.Equal(t, "/v1/audio/speech", s.last().URL.Path)
		assert.Equal(t, "Bearer "+serverKey, s.last().Header.Get("Authorization"))
	}
}

// The first bytes reach the client before the server sends the next.
func TestSpeak_PassesOnAtOnce(t *testing.T) {
	checkLeaks(t)
	read := make(chan struct{})
	s := newRawServer(t, func(c net.Conn, _ *rawRequest) {
		writeHead(c, "audio/mpeg")
		for range 3 {
			writePiece(c, "abc")
			<-read
		}
		writeEnd(c)
	})
	g := newGateway(t, s.url(), nil)
	resp, err := g.Client().Do(g.request(t.Context(), "POST", speechPath, askSpeech))
	require.NoError(t, err)
	defer resp.Body.Close()
	for range 3 {
		piece := make([]byte, 3)
		_, err := io.ReadFull(resp.Body, piece)
		require.NoError(t, err)
		assert.Equal(t, "abc", string(piece))
		read <- struct{}{}
	}
	rest, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Empty(t, rest)
}

// A reply that breaks off is cut, and charged. If the client leaves, the request to the server
// ends.
func TestSpeak_Interrupted(t *testing.T) {
	for name, end := range map[string]func(c net.Conn){"reset": resetConn, "closed": func(c net.Conn) { c.Close() }} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			s := newRawServer(t, func(c net.Conn, _ *rawRequest) {
				fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\nContent-Length: 9\r\n\r\nabc")
				end(c)
			})
			g := newGateway(t, s.url(), nil)
			got := g.do("POST", speechPath, askSpeech)
			if name == "reset" && got.StatusCode == 502 { // the reset came before the bytes were read
				return
			}
			assert.Error(t, got.err)
			assert.Equal(t, "abc", got.body)
			assert.EqualValues(t, 5, g.recordedUsage(1).Units.Characters)
			assert.ErrorContains(t, g.summary().Err, "interrupted")
		})
	}
	t.Run("client leaves", func(t *testing.T) {
		checkLeaks(t)
		var s *rawServer
		s = newRawServer(t, func(c net.Conn, _ *rawRequest) {
			writeHead(c, "audio/mpeg")
			writePiece(c, "abc")
			s.hang(c)
		})
		b := newBackend(t, s.url(), nil)
		for c, err := range b.Speak(t.Context(), &audio.SpeechRequest{Model: "m", Input: "x"}) {
			require.NoError(t, err)
			assert.Equal(t, "abc", string(c.Audio))
			break
		}
		eventually(t, func() bool { return s.aborted.Load() == 1 }, "the request to the server ends")
	})
}

// Speech has the Content-Type of what came, and its length is measured by that.
func TestSpeak_ContentType(t *testing.T) {
	wave, flac := waveHeader(1000)+strings.Repeat("x", 2956), "fLaC\x00\x00\x00\x22"
	for name, test := range map[string]struct {
		asked, media, body string
		want               string // Content-Type
		millis             int64
	}{
		"as asked for":               {"wav", "audio/wav", wave, "audio/wav", 2956},
		"WAVE for MP3":               {"mp3", "audio/wav", wave, "audio/wav", 2956},
		"WAVE with the label of MP3": {"mp3", "audio/mpeg", wave, "audio/wav", 2956},
		"WAVE without a label":       {"mp3", "application/octet-stream", wave, "audio/wav", 2956},
		"WAVE for raw samples":       {"pcm", "audio/wav", wave, "audio/wav", 2956},
		"raw samples for MP3":        {"mp3", "audio/pcm", strings.Repeat("x", 12_000), "audio/pcm", 250},
		"samples of another rate":    {"pcm", "audio/L16; rate=16000; channels=2", strings.Repeat("x", 16_000), "audio/l16; channels=2; rate=16000", 250},
		"samples without a label":    {"pcm", "application/octet-stream", strings.Repeat("x", 12_000), "audio/pcm", 250},
		"FLAC for Opus":              {"opus", "audio/flac", flac, "audio/flac", int64(len(flac))},
		"a format of another server": {"mp3", "audio/webm", "\x1aE\xdf\xa3abcd", "audio/webm", 8},
		"unknown":                    {"mp3", "application/octet-stream", "abcd", "audio/mpeg", 4},
		"a Content-Type of no audio": {"mp3", "application/javascript", "abcd", "audio/mpeg", 4},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			for _, events := range []bool{false, true} {
				s := newRawServer(t, func(c net.Conn, _ *rawRequest) { writeReply(c, 200, test.media, test.body) })
				g := newGateway(t, s.url(), nil)
				ask := withMembers(askSpeech, `"response_format":"`+test.asked+`"`)
				want := test.want
				if events {
					ask, want = withMembers(ask, `"stream_format":"sse"`), mediaEvents+"; charset=utf-8"
				}
				got := g.do("POST", speechPath, ask)
				require.Equal(t, 200, got.StatusCode, got.body)
				assert.Equal(t, want, got.Header.Get("Content-Type"))
				if !events {
					assert.Equal(t, test.body, got.body)
				}
				assert.Equal(t, test.millis, g.recordedUsage(1).Units.AudioMillis)
			}
		})
	}
}

// A text is no audio, whatever it has.
func TestSpeak_Texts(t *testing.T) {
	for _, media := range []string{"text/plain", "text/plain; charset=utf-8", "application/problem+json", "text/html"} {
		s := newRawServer(t, func(c net.Conn, _ *rawRequest) {
			writeReply(c, 200, media, `{"error":{"message":"Slow.","code":429}}`)
		})
		assert.Equal(t, "Slow.", newGateway(t, s.url(), nil).do("POST", speechPath, askSpeech).requireError(t, 429).Message, media)
	}
}
