package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/types"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/exp/apidiff"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/go/packages"
)

// diffAPI prints how the API of each released module in the tree differs from that of a commit.
// Incompatible changes are an error only since v1.
func diffAPI(ctx context.Context, t *tool, args []string) error {
	flags := t.flags("[BASE]")
	if err := flags.Parse(args); err != nil {
		return err
	}
	base := t.base(ctx, flags.Args())
	if base == "" {
		return nil
	}
	checkout := filepath.Join(t.temp, "base")
	if err := t.checkout(ctx, base, checkout); err != nil {
		return err
	}
	before, err := t.apis(ctx, checkout)
	if err != nil {
		return err
	}
	now, err := t.apis(ctx, t.tree)
	if err != nil {
		return err
	}
	incompatible := 0
	for _, path := range modulePaths(before, now) {
		fmt.Fprintf(t.out, "\n%s\n", path)
		switch {
		case before[path] == nil:
			fmt.Fprintln(t.out, "a new module")
			continue
		case now[path] == nil:
			fmt.Fprintln(t.out, "the module is gone")
			incompatible++
			continue
		}
		report := apidiff.ModuleChanges(before[path], now[path])
		slices.SortStableFunc(report.Changes, func(a, b apidiff.Change) int { return cmp.Compare(a.Message, b.Message) })
		for _, change := range report.Changes {
			if !change.Compatible {
				incompatible++
			}
		}
		if len(report.Changes) == 0 {
			fmt.Fprintln(t.out, "no changes")
		}
		if err := report.Text(t.out); err != nil {
			return err
		}
	}
	fmt.Fprintf(t.out, "\n%d incompatible changes since %s\n", incompatible, base)
	if tag := t.lastTag(ctx, base); incompatible > 0 && semver.Compare(tag, "v1.0.0") >= 0 {
		return fmt.Errorf("%s promises compatibility", tag)
	}
	return nil
}

// modulePaths returns the paths of all modules in order.
func modulePaths(apis ...map[string]*apidiff.Module) (list []string) {
	for _, api := range apis {
		for path := range api {
			list = append(list, path)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// apis loads the packages of the modules in a checkout that users can import.
func (t *tool) apis(ctx context.Context, checkout string) (map[string]*apidiff.Module, error) {
	modules, err := readModules(checkout)
	if err != nil {
		return nil, err
	}
	apis := make(map[string]*apidiff.Module, len(modules))
	for _, m := range modules {
		t.step("loads %s in %s", m.path, checkout)
		loaded, err := packages.Load(&packages.Config{
			Context: ctx,
			Mode:    packages.LoadTypes,
			Dir:     filepath.Join(checkout, m.dir),
			Env:     append(os.Environ(), "GOWORK=off"),
		}, "./...")
		if err != nil {
			return nil, err
		}
		var public []*types.Package
		for _, p := range loaded {
			if p.Name == "main" || isInternal(p.PkgPath) || len(p.GoFiles) == 0 {
				continue
			}
			for _, e := range p.Errors {
				err = errors.Join(err, e)
			}
			public = append(public, p.Types)
		}
		if err != nil {
			return nil, err
		}
		apis[m.path] = &apidiff.Module{Path: m.path, Packages: public}
	}
	return apis, nil
}
