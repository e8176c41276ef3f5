package redislimit

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// While the breaker is half-open, one call per retry interval is sent.
func TestClient_HalfOpenBreakerAllowsOneCall(t *testing.T) {
	c := &client{retryInterval: time.Hour}
	for range failureThreshold {
		require.NoError(t, c.allow())
		require.Error(t, c.report(t.Context(), io.EOF))
	}
	require.Error(t, c.allow())
	c.retryAt = time.Now()
	require.NoError(t, c.allow())
	require.Error(t, c.allow())
	require.NoError(t, c.report(t.Context(), nil))
	require.NoError(t, c.allow(), "an answer closes the breaker")
}

func TestDescribe_WithoutAddresses(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 6379}, Err: os.NewSyscallError("connect", errors.New("connection refused"))}, "dial: connect: connection refused"},
		{fmt.Errorf("wrapped with 10.1.2.3: %w", &net.OpError{Op: "read", Err: errors.New("reset")}), "read: reset"},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "redis.internal", Server: "10.1.2.3:53"}}, "dial: no such host"},
		{errors.New("MOVED 3999 10.1.2.3:6381"), "MOVED"},
		{errors.New("LOADING Redis is loading the dataset in memory"), "LOADING Redis is loading the dataset in memory"},
	} {
		assert.Equal(t, tt.want, describe(tt.err))
	}
}
