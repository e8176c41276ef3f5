package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A goPackage is a package of a released module, in the module cache.
type goPackage struct {
	path, name, dir string
}

// verify uses the release as its users do: with nothing but the proxy and an empty folder.
func (r *releasing) verify(ctx context.Context) error {
	var commands []string
	for _, m := range r.modules {
		r.step("go get %s, and its examples", m.path)
		dir, err := r.consumer(ctx, m)
		if err != nil {
			return err
		}
		packages, err := r.packages(ctx, m, dir)
		if err != nil {
			return err
		}
		if err := r.try(ctx, dir, packages); err != nil {
			return err
		}
		for _, p := range packages {
			if p.name == "main" {
				commands = append(commands, p.path)
			}
		}
	}
	for _, command := range commands {
		r.step("go install %s", command)
		if err := r.install(ctx, command); err != nil {
			return err
		}
	}
	r.step("the quickstart of README.md")
	return r.quickstart(ctx)
}

// consumer makes a module that requires a released one.
func (r *releasing) consumer(ctx context.Context, m *goModule) (dir string, err error) {
	if dir, err = os.MkdirTemp(r.temp, "consumer"); err != nil {
		return "", err
	}
	env := r.goEnviron("modules", r.proxy)
	if _, err := r.command(ctx, dir, env, "go", "mod", "init", "example.com/hello"); err != nil {
		return "", err
	}
	_, err = r.command(ctx, dir, env, "go", "get", m.path+"@"+r.version)
	return dir, err
}

// packages lists the packages of a module that a consumer requires, without those that are internal and
// those of examples and tests.
func (r *releasing) packages(ctx context.Context, m *goModule, consumer string) (packages []goPackage, err error) {
	text, err := r.command(ctx, consumer, r.goEnviron("modules", r.proxy), "go", "list", "-find", "-f", "{{if .GoFiles}}{{.Module.Path}}\t{{.ImportPath}}\t{{.Name}}\t{{.Dir}}{{end}}", m.path+"/...")
	if err != nil {
		return nil, err
	}
	for line := range strings.SplitSeq(text, "\n") {
		f := strings.Split(line, "\t")
		if f[0] == m.path && !isInternal(f[1]) && !isUnreleased(strings.TrimPrefix(f[1], r.modules[0].path+"/")) {
			packages = append(packages, goPackage{path: f[1], name: f[2], dir: f[3]})
		}
	}
	return packages, nil
}

// try imports the packages into a consumer, and runs copies of their examples there.
func (r *releasing) try(ctx context.Context, consumer string, packages []goPackage) error {
	code := bytes.NewBufferString("package main\n\n")
	for i, p := range packages {
		if p.name != "main" {
			fmt.Fprintf(code, "import _ %q\n", p.path)
		}
		if err := copyExamples(p.dir, filepath.Join(consumer, fmt.Sprintf("%s%d", p.name, i))); err != nil {
			return err
		}
	}
	code.WriteString("\nfunc main() {}\n")
	if err := os.WriteFile(filepath.Join(consumer, "main.go"), code.Bytes(), 0o644); err != nil {
		return err
	}
	env := r.goEnviron("modules", r.proxy)
	if _, err := r.command(ctx, consumer, env, "go", "get", "-t", "./..."); err != nil {
		return err
	}
	_, err := r.command(ctx, consumer, env, "go", "test", "./...")
	return err
}

// copyExamples copies the files with examples of a package, and what they may read. They are in a package
// of their own, and use nothing of other files.
func copyExamples(from, to string) error {
	names, err := filepath.Glob(filepath.Join(from, "example*_test.go"))
	if err != nil {
		return err
	}
	copied := false
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if !hasExample(text) {
			continue
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(name)), text, 0o644); err != nil {
			return err
		}
		copied = true
	}
	if !copied {
		return nil
	}
	err = os.CopyFS(filepath.Join(to, "testdata"), os.DirFS(filepath.Join(from, "testdata")))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func hasExample(code []byte) bool {
	file, err := parser.ParseFile(token.NewFileSet(), "", code, parser.SkipObjectResolution)
	if err != nil || !strings.HasSuffix(file.Name.Name, "_test") {
		return false
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Example") {
			return true
		}
	}
	return false
}

// install installs a command and checks that it tells its version and its flags.
func (r *releasing) install(ctx context.Context, command string) error {
	bin := filepath.Join(r.temp, "bin")
	env := append(r.goEnviron("modules", r.proxy), "GOBIN="+bin)
	if _, err := r.command(ctx, r.temp, env, "go", "install", command+"@"+r.version); err != nil {
		return err
	}
	binary := filepath.Join(bin, path.Base(command))
	text, err := r.command(ctx, r.temp, nil, "go", "version", "-m", binary)
	if err != nil {
		return err
	}
	if !regexp.MustCompile(`\tmod\t\S+\t` + regexp.QuoteMeta(r.version) + `\t`).MatchString(text) {
		return fmt.Errorf("%s is not of the version %s:\n%s", command, r.version, text)
	}
	_, err = r.command(ctx, r.temp, nil, binary, "-h")
	return err
}

// quickstartAddress is where the program in README.md listens.
const quickstartAddress = "localhost:8080"

// quickstart runs the first program in README.md and the curl commands for it.
func (r *releasing) quickstart(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(r.copy, "README.md"))
	if err != nil {
		return err
	}
	program, commands, err := readQuickstart(string(text))
	if err != nil {
		return err
	}
	dir, err := r.consumer(ctx, r.modules[0])
	if err != nil {
		return err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	here := strings.NewReplacer(quickstartAddress, address)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(here.Replace(program)), 0o644); err != nil {
		return err
	}
	if _, err := r.command(ctx, dir, r.goEnviron("modules", r.proxy), "go", "build", "-o", "hello", "."); err != nil {
		return err
	}

	server := exec.CommandContext(ctx, filepath.Join(dir, "hello"))
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		server.Wait() // reports the kill below
		close(ended)
	}()
	defer func() {
		server.Process.Kill() // fails if it has ended
		<-ended
	}()
	if !listens(ctx, address, ended) {
		server.Process.Kill()
		<-ended
		return fmt.Errorf("the quickstart does not listen:\n%s", &log)
	}
	for _, command := range commands {
		command = strings.ReplaceAll(here.Replace(command), "curl ", "curl -sS --fail-with-body --max-time 20 ")
		reply, err := r.command(ctx, dir, nil, "bash", "-c", command)
		if err != nil {
			return err
		}
		if !strings.Contains(reply, `"choices"`) {
			return fmt.Errorf("the reply to a command of the quickstart has no choices: %s\n%s", command, reply)
		}
	}
	return nil
}

// readQuickstart returns the first program in README.md, and the curl commands for it.
func readQuickstart(readme string) (program string, commands []string, err error) {
	for _, block := range regexp.MustCompile("(?ms)^```(go|sh|bash)\n(.*?)^```$").FindAllStringSubmatch(readme, -1) {
		switch language, code := block[1], block[2]; {
		case language == "go" && program == "" && strings.HasPrefix(code, "package main\n") && strings.Contains(code, quickstartAddress):
			program = code
		case language != "go" && program != "" && strings.Contains(code, "curl ") && strings.Contains(code, quickstartAddress):
			commands = append(commands, code)
		}
	}
	if program == "" || len(commands) == 0 {
		return "", nil, errors.New("README.md has no program that listens on " + quickstartAddress + ", followed by curl commands for it")
	}
	return program, commands, nil
}

// freeAddress returns an address on which nothing listens.
func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "localhost:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// listens waits until a server listens. It reports false if the server ends, or after a minute.
func listens(ctx context.Context, address string, ended <-chan struct{}) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if c, err := new(net.Dialer).DialContext(ctx, "tcp", address); err == nil {
			c.Close()
			return true
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ended:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
