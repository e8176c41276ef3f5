package upstream_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
)

// childVariable is the environment variable that makes the test binary a server.
const childVariable = "LLMHTTP_UPSTREAM_TEST_SERVER"

// serveAsChild prints its address and replies to each request with two chunks.
func serveAsChild() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	b := memory.Scripted(memory.Say("Hello"), memory.Say(" there"), memory.Hang())
	http.Serve(l, llmhttp.NewHandler(b, llmhttp.AllowAll("parent"), nil))
}

// startChild starts a server in another process.
func startChild(t *testing.T) (base string, process *os.Process) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return "http://" + strings.TrimSpace(line) + "/v1", cmd.Process
}
