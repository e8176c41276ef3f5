package keycache_test

import (
	"bytes"
	"sync"
)

const testSecret = "sk-fixture-5d41402abc4b2a76b9719d91"

// A logBuffer keeps what a Logger writes.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
