package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// compat builds and tests the nested modules of a commit with the root module of HEAD, all of them
// unpacked from the zips that users would get. What is broken is an error only if there was a
// release before the commit.
func compat(ctx context.Context, t *tool, args []string) error {
	flags := t.flags("[flags] [BASE]")
	short := flags.Bool("short", false, "leave out the tests that need more than Go")
	if err := flags.Parse(args); err != nil {
		return err
	}
	base := t.base(ctx, flags.Args())
	if base == "" {
		return nil
	}
	old, err := t.unpack(ctx, base, "base")
	if err != nil {
		return err
	}
	current, err := t.unpack(ctx, "HEAD", "head")
	if err != nil {
		return err
	}
	dirs := map[string]string{current[0].path: filepath.Join(t.temp, "head.zips", current[0].dir)}
	for _, m := range old[1:] {
		dirs[m.path] = filepath.Join(t.temp, "base.zips", m.dir)
	}
	var broken []string
	for _, m := range old[1:] {
		t.step("%s of %s with the root module of HEAD", m.dir, base)
		if err := replaceModules(dirs[m.path], dirs); err != nil {
			return err
		}
		what, output := t.buildAndTest(ctx, dirs[m.path], *short)
		if err := ctx.Err(); err != nil {
			return err
		}
		if what == "" {
			fmt.Fprintf(t.out, "ok    %s\n", m.path)
			continue
		}
		fmt.Fprintf(t.out, "FAIL  %s: %s\n%s", m.path, what, output)
		// Users do not compile the tests, which may import internal packages.
		if what != testsDoNotCompile {
			broken = append(broken, m.dir)
		}
	}
	if len(broken) > 0 && t.lastTag(ctx, base) != "" {
		return fmt.Errorf("the root module of HEAD breaks %s of %s", strings.Join(broken, ", "), base)
	}
	return nil
}

// base returns the commit with which HEAD is compared: the only argument, or the last version. Without
// both it says so and returns an empty text.
func (t *tool) base(ctx context.Context, args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	tag := t.lastTag(ctx, "HEAD")
	if tag == "" {
		fmt.Fprintf(t.out, "there is no version yet with which to compare; name a commit: scripts/%s.sh BASE\n", t.name)
	}
	return tag
}

// unpack makes zips of the modules of a commit and unpacks them below the directory NAME.zips.
func (t *tool) unpack(ctx context.Context, revision, name string) ([]*goModule, error) {
	checkout := filepath.Join(t.temp, name)
	if err := t.checkout(ctx, revision, checkout); err != nil {
		return nil, err
	}
	modules, err := readModules(checkout)
	if err != nil {
		return nil, err
	}
	for _, m := range modules {
		version := module.Version{Path: m.path, Version: "v0.0.0-" + name}
		file, err := os.Create(filepath.Join(t.temp, "module.zip"))
		if err != nil {
			return nil, err
		}
		subdir := m.dir
		if subdir == "." {
			subdir = ""
		}
		err = zip.CreateFromVCS(file, version, checkout, "HEAD", subdir)
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return nil, err
		}
		// The root module is unpacked first, because a directory must be empty.
		dir := filepath.Join(t.temp, name+".zips", m.dir)
		if err := zip.Unzip(dir, version, file.Name()); err != nil {
			return nil, err
		}
	}
	return modules, nil
}

// replaceModules makes the module in dir use other modules from directories. dirs has their absolute
// names, by the path of the module.
func replaceModules(dir string, dirs map[string]string) error {
	file, err := readModFile(dir)
	if err != nil {
		return err
	}
	for _, require := range file.Require {
		if to := dirs[require.Mod.Path]; to != "" {
			if err := replaceModule(file, require.Mod.Path, to); err != nil {
				return err
			}
		}
	}
	text, err := file.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "go.mod"), text, 0o644)
}

func replaceModule(file *modfile.File, path, dir string) error {
	for _, replace := range file.Replace {
		if replace.Old.Path == path {
			if err := file.DropReplace(path, replace.Old.Version); err != nil {
				return err
			}
		}
	}
	return file.AddReplace(path, "", dir, "")
}

const testsDoNotCompile = "the tests do not compile"

// buildAndTest builds and tests a module. It returns what fails, if anything does, and the lines that tell why.
func (t *tool) buildAndTest(ctx context.Context, dir string, short bool) (what, output string) {
	// The requirements of the root module may have changed, so go.mod may have to be.
	env := []string{"GOWORK=off", "GOFLAGS=" + strings.TrimSpace(t.goEnv["GOFLAGS"]+" -mod=mod")}
	steps := []struct {
		what string
		args []string
	}{
		{"it does not build", []string{"build", "-o", os.DevNull, "./..."}},
		{testsDoNotCompile, []string{"vet", "./..."}},
		{"the tests fail", []string{"test", "-count=1", "-timeout=40m", fmt.Sprintf("-short=%t", short), "./..."}},
	}
	for _, step := range steps {
		if _, err := t.command(ctx, dir, env, "go", step.args...); err != nil {
			return step.what, causes(err.Error())
		}
	}
	return "", ""
}

// causes returns the lines in the output of the go command that tell what is wrong.
func causes(output string) string {
	const most = 20
	var lines strings.Builder
	n := 0
	for line := range strings.Lines(output) {
		if !regexp.MustCompile(`^(vet: )?\S+\.go:\d+|^ *--- FAIL: |^panic: |^FAIL\t|^go: `).MatchString(line) {
			continue
		}
		if n++; n <= most {
			lines.WriteString("      " + strings.TrimSpace(line) + "\n")
		}
	}
	switch {
	case n == 0:
		return output
	case n > most:
		fmt.Fprintf(&lines, "      and %d lines more\n", n-most)
	}
	return lines.String()
}
