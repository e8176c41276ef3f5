// Behind runs examples/inmemory behind examples/gateway, and accepts the flags of
// examples/inmemory. If LLMHTTP_EXAMPLE names this program, the tests of the
// clients go through the gateway without any other change.
//
// The binaries inmemory and gateway must be in the directory of this program.
// LLMHTTP_GATEWAYS is the number of gateways in a row, 1 by default. The limits
// are set for the gateway that the clients talk to.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// key is the default key of examples/inmemory. The gateways have the same.
const key = "sk-demo"

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	rpm := flag.Int("rpm", 0, "`requests` a minute for the key; 0 is unlimited")
	tpm := flag.Int("tpm", 0, "`tokens` a minute for the key; 0 is unlimited")
	delay := flag.Duration("delay", 0, "`pause` before each streamed chunk")
	flag.Parse()
	limits := make(map[string]any)
	for name, n := range map[string]int{"requests": *rpm, "tokens": *tpm} {
		if n > 0 {
			limits[name] = map[string]int{"n": n}
		}
	}
	if err := run(*addr, delay.String(), limits); err != nil {
		log.Fatal(err)
	}
}

// run starts the servers, waits for a signal and stops them in reverse order.
func run(addr, delay string, limits map[string]any) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	gateways, err := strconv.Atoi(cmp.Or(os.Getenv("LLMHTTP_GATEWAYS"), "1"))
	if err != nil || gateways < 1 {
		return errors.New("LLMHTTP_GATEWAYS must be a positive number")
	}
	dir, err := os.MkdirTemp("", "llmhttp-behind")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	var servers []*server
	defer func() {
		for _, s := range slices.Backward(servers) {
			err = errors.Join(err, s.stop())
		}
	}()
	last, err := start(ctx, io.Discard, "inmemory", "-addr", "127.0.0.1:0", "-delay", delay)
	if err != nil {
		return err
	}
	servers = append(servers, last)
	for i := range gateways {
		out, listen, its := io.Discard, "127.0.0.1:0", map[string]any(nil)
		if i == gateways-1 { // the one that clients talk to
			out, listen, its = os.Stdout, addr, limits
		}
		file := filepath.Join(dir, fmt.Sprintf("gateway%d.json", i))
		if err := os.WriteFile(file, gatewayConfig(last.host, its), 0o600); err != nil {
			return err
		}
		if last, err = start(ctx, out, "gateway", "-config", file, "-addr", listen, "-drain", "3s"); err != nil {
			return err
		}
		servers = append(servers, last)
	}
	<-ctx.Done()
	return nil
}

// gatewayConfig returns the configuration of a gateway for the server at host.
func gatewayConfig(host string, limits map[string]any) []byte {
	type object = map[string]any
	data, err := json.Marshal(object{
		"upstreams": []object{{
			"name": "next", "url": "http://" + host + "/v1", "key_env": "LLMHTTP_KEY", "image_hosts": []string{host},
		}},
		"routes": []object{
			{"model": "claude-*", "targets": []object{{"upstream": "next", "model": "demo-chat"}}},
			{"model": "*", "targets": []object{{"upstream": "next"}}},
		},
		"keys": []object{{"id": "demo", "secret_env": "LLMHTTP_KEY", "limits": limits}},
	})
	if err != nil {
		panic(err)
	}
	return data
}

// A server is a running program.
type server struct {
	name string
	host string // with the port
	cmd  *exec.Cmd
	done chan error // receives the result of cmd.Wait
}

// start starts a program and waits for the line with its address. It copies the
// program's output to out and its errors to os.Stderr.
func start(ctx context.Context, out io.Writer, name string, args ...string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(filepath.Dir(self), name), args...)
	cmd.Env = append(os.Environ(), "LLMHTTP_KEY="+key)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{name: name, cmd: cmd, done: make(chan error, 1)}
	listening := make(chan string, 1)
	go func() {
		r := bufio.NewReader(stdout)
		line, _ := r.ReadString('\n')
		listening <- line
		io.WriteString(out, line)
		io.Copy(out, r)
		s.done <- cmd.Wait()
	}()
	var line string
	select {
	case line = <-listening:
	case <-ctx.Done():
	}
	var ok bool
	if _, s.host, ok = strings.Cut(strings.TrimSpace(line), "listening on http://"); !ok {
		return nil, errors.Join(fmt.Errorf("%s did not print its address", name), s.stop())
	}
	return s, nil
}

// stop sends SIGTERM to the program and waits until it has ended.
func (s *server) stop() error {
	s.cmd.Process.Signal(syscall.SIGTERM) // fails if the program has ended already, which is no error
	if err := <-s.done; err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}
