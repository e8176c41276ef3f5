package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// chatBody returns a request of about size bytes: what an assistant was told to
// be, and a conversation as long as it needs to be.
func chatBody(size int, stream bool) []byte {
	var b bytes.Buffer
	b.WriteString(`{"model":"` + modelName + `","messages":[{"role":"system","content":"You are a helpful assistant. ` +
		`Answer briefly and say so when you do not know."}`)
	tail := `],"temperature":0.7,"max_tokens":256,"top_p":1`
	if stream {
		tail += `,"stream":true`
	}
	tail += "}"
	for i := 0; ; i++ {
		role := "user"
		if i%2 == 1 {
			role = "assistant"
		}
		start, end := `,{"role":"`+role+`","content":"`, `"}`
		room := size - b.Len() - len(start) - len(end) - len(tail)
		if room < 1 && i > 0 {
			break
		}
		b.WriteString(start)
		b.WriteString(prose(min(max(room, 1), 500)))
		b.WriteString(end)
	}
	b.WriteString(tail)
	return b.Bytes()
}

// prose returns n bytes of text as it stands in JSON.
func prose(n int) string {
	const sentence = `What is the capital of France, and why?\nPlease tell me what you know of \"Paris\". `
	text := strings.Repeat(sentence, n/len(sentence)+1)[:n]
	return strings.TrimRight(text, `\`)
}

// imageBody returns a request of about size bytes that is mostly one image.
func imageBody(size int, stream bool) []byte {
	head := `{"model":"` + modelName + `","messages":[{"role":"user","content":[{"type":"text","text":"What is in this image?"},` +
		`{"type":"image_url","image_url":{"url":"data:image/png;base64,`
	tail := `","detail":"high"}}]}],"max_tokens":256`
	if stream {
		tail += `,"stream":true`
	}
	tail += "}"
	raw := make([]byte, (size-len(head)-len(tail))/4*3)
	random := rand.NewChaCha8([32]byte{})
	random.Read(raw)
	return []byte(head + base64.StdEncoding.EncodeToString(raw) + tail)
}

// httpRequest returns the bytes of a request with the given body.
func httpRequest(body []byte) []byte {
	head := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\n"+
		"Accept: application/json\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n",
		secret, len(body))
	return append([]byte(head), body...)
}

// stamp is a text that tells when it was made.
func stamp() string { return strconv.FormatInt(time.Now().UnixNano(), 10) }
