// Behind runs examples/inmemory behind examples/gateway, as if the two were one
// program with the flags of examples/inmemory: the tests of the clients, given
// it as LLMHTTP_EXAMPLE, go through the gateway and are the same otherwise.
//
// It runs the binaries inmemory and gateway of the directory that it is in.
// LLMHTTP_GATEWAYS is how many gateways there are in a row; if it is not set,
// there is one. The limits are those of the one that clients talk to.
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
	"strconv"
	"strings"
	"syscall"
)

// key is the one that examples/inmemory admits unless told otherwise.
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

func run(addr, delay string, limits map[string]any) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	gateways, err := strconv.Atoi(cmp.Or(os.Getenv("LLMHTTP_GATEWAYS"), "1"))
	if err != nil || gateways < 1 {
		return errors.New("LLMHTTP_GATEWAYS: must be a positive number")
	}
	dir, err := os.MkdirTemp("", "llmhttp-behind")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	var servers []*server
	defer func() {
		for len(servers) > 0 { // first those that talk to the others
			last := len(servers) - 1
			err = errors.Join(err, servers[last].stop())
			servers = servers[:last]
		}
	}()
	begin := func(out io.Writer, name string, args ...string) error {
		s, err := start(ctx, out, name, args...)
		if err == nil {
			servers = append(servers, s)
		}
		return err
	}
	if err := begin(io.Discard, "inmemory", "-addr", "127.0.0.1:0", "-delay", delay); err != nil {
		return err
	}
	for i := range gateways {
		out, listen, its := io.Discard, "127.0.0.1:0", map[string]any(nil)
		if i == gateways-1 {
			out, listen, its = os.Stdout, addr, limits
		}
		file := filepath.Join(dir, fmt.Sprintf("gateway%d.json", i))
		if err := os.WriteFile(file, gatewayConfig(servers[i].host, its), 0o600); err != nil {
			return err
		}
		if err := begin(out, "gateway", "-config", file, "-addr", listen, "-drain", "3s"); err != nil {
			return err
		}
	}

	<-ctx.Done()
	return nil
}

// gatewayConfig is that of a gateway in front of the server at host.
func gatewayConfig(host string, limits map[string]any) []byte {
	type object = map[string]any
	data, err := json.Marshal(object{
		"upstreams": []object{{
			"name": "next", "url": "http://" + host + "/v1", "key_env": "LLMHTTP_KEY", "image_hosts": []string{host},
		}},
		"routes": []object{{"model": "*", "targets": []object{{"upstream": "next"}}}},
		"keys":   []object{{"id": "demo", "secret_env": "LLMHTTP_KEY", "limits": limits}},
	})
	if err != nil {
		panic(err)
	}
	return data
}

// A server is a program that runs.
type server struct {
	name string
	host string // with the port
	cmd  *exec.Cmd
	done chan error // receives what became of it
}

// start runs a program until it says where it listens. What it says goes to
// out, its errors to os.Stderr.
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
		return nil, errors.Join(fmt.Errorf("%s does not say where it listens", name), s.stop())
	}
	return s, nil
}

// stop ends the program and waits until it has ended.
func (s *server) stop() error {
	s.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended: so will Wait
	if err := <-s.done; err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}
