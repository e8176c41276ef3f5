package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// A releasing is a release that is being made.
type releasing struct {
	*tool
	version string
	modules []*goModule
	copy    string // the repository in which the commits and tags are made
	proxy   string // the folder that serves as a GOPROXY
}

func release(ctx context.Context, t *tool, args []string) error {
	flags := t.flags("[flags] VERSION")
	branch := flags.String("branch", "main", "the `name` of the branch that must be checked out")
	head := flags.Bool("head", false, "release the commit HEAD, whatever is checked out, and if there are changes that are not committed")
	vet := flags.Bool("vet", true, "run go vet in each module")
	out := flags.String("out", "", "the `directory` for the release, which must not exist; the default is bin/release/VERSION, which is replaced")
	push := flags.Bool("push", false, "push the tags, if all checks pass")
	remote := flags.String("remote", "origin", "the `name` of the remote for -push")
	version, err := parseVersion(flags.Parse(args), flags.Args(), flags.Usage)
	if err != nil {
		return err
	}

	dir, err := filepath.Abs(*out)
	if err != nil {
		return err
	}
	if *out == "" {
		dir = filepath.Join(t.tree, "bin", "release", version)
	} else if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("-out: %s exists", dir)
	}

	t.step("checks the tree")
	if !*head {
		if err := t.checkTree(ctx, *branch); err != nil {
			return err
		}
	}
	r := &releasing{tool: t, version: version, copy: filepath.Join(t.temp, "repository"), proxy: filepath.Join(t.temp, "proxy")}
	if err := t.checkout(ctx, "HEAD", r.copy); err != nil {
		return err
	}
	if r.modules, err = readModules(r.copy); err != nil {
		return err
	}
	if err := r.checkVersion(ctx); err != nil {
		return err
	}
	for _, m := range r.modules {
		t.step("makes %s", m.tag(version))
		if err := r.make(ctx, m, *vet); err != nil {
			return err
		}
	}
	if err := r.verify(ctx); err != nil {
		return err
	}

	if *out == "" {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	// Without its files, which tools would find below bin, the copy is a bare repository.
	repository, proxy := filepath.Join(dir, "repository.git"), filepath.Join(dir, "proxy")
	if err := move(filepath.Join(r.copy, ".git"), repository); err != nil {
		return err
	}
	if _, err := r.git(ctx, repository, "config", "core.bare", "true"); err != nil {
		return err
	}
	if err := move(r.proxy, proxy); err != nil {
		return err
	}
	r.copy, r.proxy = repository, proxy
	t.step("has made %d modules; to use them:", len(r.modules))
	fmt.Fprintf(t.out, "export GOPROXY=file://%s,%s GONOSUMDB=%s\n", filepath.ToSlash(r.proxy), t.goEnv["GOPROXY"], r.noSumDB())
	return r.push(ctx, *remote, *push)
}

// parseVersion returns the only argument, which must be a version. err is the error of parsing the flags.
func parseVersion(err error, args []string, usage func()) (string, error) {
	if err != nil {
		return "", err
	}
	if len(args) != 1 {
		usage()
		return "", errors.New("needs one version")
	}
	// Paths of modules would need a suffix from v2 on.
	if v := args[0]; semver.Canonical(v) != v || module.CheckPathMajor(v, "") != nil {
		return "", fmt.Errorf("%q is not a version such as v0.1.0, v0.1.0-alpha.1 or v1.2.3", v)
	}
	return args[0], nil
}

// checkTree checks that what is checked out is the branch as it is committed.
func (t *tool) checkTree(ctx context.Context, branch string) error {
	switch current, err := t.git(ctx, t.tree, "branch", "--show-current"); {
	case err != nil:
		return err
	case current != branch:
		return fmt.Errorf("the branch %q is checked out, want %s: see -branch and -head", current, branch)
	}
	switch changes, err := t.git(ctx, t.tree, "status", "--porcelain"); {
	case err != nil:
		return err
	case changes != "":
		return fmt.Errorf("there are changes that are not committed: see -head\n%s", changes)
	}
	return nil
}

// checkVersion checks that there are no tags of the version, and that the changelog has it. Before
// the first release there are pre-releases without an entry.
func (r *releasing) checkVersion(ctx context.Context) error {
	text, err := r.git(ctx, r.tree, "tag", "--list")
	if err != nil {
		return err
	}
	tags := strings.Fields(text)
	for _, m := range r.modules {
		if slices.Contains(tags, m.tag(r.version)) {
			return fmt.Errorf("there is a tag %s already", m.tag(r.version))
		}
	}
	isRelease := func(version string) bool { return semver.IsValid(version) && semver.Prerelease(version) == "" }
	if !isRelease(r.version) && !slices.ContainsFunc(tags, isRelease) {
		return nil
	}
	changes, err := os.ReadFile(filepath.Join(r.copy, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if !regexp.MustCompile(`(?m)^#+ .*` + regexp.QuoteMeta(r.version) + `(\s|$)`).Match(changes) {
		return fmt.Errorf("CHANGELOG.md has no heading with %s", r.version)
	}
	return nil
}

// make commits the go.mod and go.sum of a module, tags it, and puts it into the proxy.
func (r *releasing) make(ctx context.Context, m *goModule, vet bool) error {
	dir := filepath.Join(r.copy, m.dir)
	file, err := readModFile(dir)
	if err != nil {
		return err
	}
	if err := r.setVersions(file); err != nil {
		return fmt.Errorf("%s/go.mod: %w", m.dir, err)
	}
	text, err := file.Format()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), text, 0o644); err != nil {
		return err
	}
	env := r.goEnviron("modules", r.proxy)
	if _, err := r.command(ctx, dir, env, "go", "mod", "tidy"); err != nil {
		return err
	}
	if err := r.checkTidy(ctx, m, string(text)); err != nil {
		return err
	}
	if vet {
		if _, err := r.command(ctx, dir, env, "go", "vet", "./..."); err != nil {
			return err
		}
	}

	if changes, err := r.git(ctx, dir, "status", "--porcelain"); err != nil {
		return err
	} else if changes != "" {
		if _, err := r.git(ctx, dir, "commit", "--quiet", "--no-verify", "--message=Release "+m.tag(r.version)); err != nil {
			return err
		}
	}
	if _, err := r.git(ctx, dir, "tag", "--annotate", "--message="+m.tag(r.version), m.tag(r.version)); err != nil {
		return err
	}
	return r.pack(ctx, m)
}

// setVersions makes a go.mod require the version of the modules that are released, without replace.
func (r *releasing) setVersions(file *modfile.File) error {
	root := r.modules[0].path
	for _, replace := range slices.Clone(file.Replace) {
		if !isOurs(root, replace.Old.Path) {
			return fmt.Errorf("replace of %s would have no effect for users", replace.Old.Path)
		}
		if err := file.DropReplace(replace.Old.Path, replace.Old.Version); err != nil {
			return err
		}
	}
	for _, require := range file.Require {
		if isOurs(root, require.Mod.Path) {
			require.Mod.Version = r.version
		}
	}
	file.SetRequire(file.Require)
	file.Cleanup()
	return nil
}

// checkTidy stages the changes of a module, and checks that "go mod tidy" has only added the sums of the
// modules that are released.
func (r *releasing) checkTidy(ctx context.Context, m *goModule, modFile string) error {
	dir := filepath.Join(r.copy, m.dir)
	after, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	if string(after) != modFile {
		return fmt.Errorf("%s/go.mod is not tidy: go mod tidy makes of\n%s\nthis:\n%s", m.dir, modFile, after)
	}
	if _, err := r.git(ctx, dir, "add", "--all", "."); err != nil {
		return err
	}
	diff, err := r.git(ctx, dir, "diff", "--cached", "--unified=0", "--no-color", "--no-ext-diff", "--", "go.sum")
	if err != nil {
		return err
	}
	for line := range strings.Lines(diff) {
		sum, added := strings.CutPrefix(line, "+")
		path, _, _ := strings.Cut(sum, " ")
		removed := strings.HasPrefix(line, "-") && !strings.HasPrefix(line, "--- ")
		if removed || added && !strings.HasPrefix(line, "+++ ") && !isOurs(r.modules[0].path, path) {
			return fmt.Errorf("%s/go.sum is not tidy:\n%s", m.dir, diff)
		}
	}
	return nil
}

// pack puts a module into the proxy. The go command downloads it by its tag from the copy, as it would
// from the address of the repository, so that the sums are those that everybody gets.
func (r *releasing) pack(ctx context.Context, m *goModule) error {
	env := append(r.goEnviron("direct", ""), "GOPROXY=direct", "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url.file://"+filepath.ToSlash(r.copy)+".insteadOf",
		"GIT_CONFIG_VALUE_0=https://"+r.modules[0].path)
	text, err := r.command(ctx, r.temp, env, "go", "mod", "download", "-json", m.path+"@"+r.version)
	if err != nil {
		return err
	}
	var files struct{ Info, GoMod, Zip string }
	if err := json.Unmarshal([]byte(text), &files); err != nil {
		return err
	}
	escaped, err := module.EscapePath(m.path)
	if err != nil {
		return err
	}
	dir := filepath.Join(r.proxy, escaped, "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{files.Info, files.GoMod, files.Zip} {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), data, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "list"), []byte(r.version+"\n"), 0o644)
}

// goEnviron is the environment of a go command that has a module cache of its own, so that a version
// that is made again is not found there. Modules come from proxy, then from the user's cache, then from
// the user's proxies. With -trimpath the build cache does not depend on the names of temporary directories.
func (t *tool) goEnviron(cache, proxy string) []string {
	return []string{
		"GOWORK=off",
		"GOFLAGS=" + strings.TrimSpace(t.goEnv["GOFLAGS"]+" -modcacherw -trimpath"),
		"GOMODCACHE=" + filepath.Join(t.temp, cache),
		"GOPROXY=file://" + filepath.ToSlash(proxy) + ",file://" + filepath.ToSlash(t.goEnv["GOMODCACHE"]) + "/cache/download," + t.goEnv["GOPROXY"],
		"GONOSUMDB=" + t.noSumDB(),
	}
}

// noSumDB are the modules that the checksum database does not know: those that are not published, and
// those of the user.
func (t *tool) noSumDB() string {
	return strings.Trim(t.goEnv["GONOSUMDB"]+",github.com/llmhttp/*", ",")
}

// push pushes the tags, which have the commits, or prints the command that does.
func (r *releasing) push(ctx context.Context, remote string, really bool) error {
	url, err := r.git(ctx, r.tree, "remote", "get-url", "--push", remote)
	if err != nil {
		if really {
			return err
		}
		url = remote
	}
	args := []string{"push", "--atomic", url}
	for _, m := range r.modules {
		args = append(args, "refs/tags/"+m.tag(r.version))
	}
	if !really {
		fmt.Fprintf(r.out, "git -C %s %s\n", r.copy, strings.Join(args, " "))
		return nil
	}
	r.step("pushes the tags to %s", url)
	_, err = r.git(ctx, r.copy, args...)
	return err
}

// move moves a directory, also to another file system.
func move(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if os.Rename(from, to) == nil {
		return nil
	}
	return os.CopyFS(to, os.DirFS(from))
}
