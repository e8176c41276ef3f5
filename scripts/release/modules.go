package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// unreleased are the directories whose modules and programs are never released.
var unreleased = []string{"bench", "clients", "docs", "examples", "scripts"}

func isUnreleased(dir string) bool {
	first, _, _ := strings.Cut(dir, "/")
	return slices.Contains(unreleased, first)
}

// A goModule is a module of the repository that is released.
type goModule struct {
	path     string
	dir      string   // relative to the repository, with slashes; "." is the root module
	requires []string // paths of modules of the repository
}

// tag returns the git tag of a version.
func (m *goModule) tag(version string) string { return path.Join(m.dir, version) }

// readModules returns the released modules of go.work in a checkout, each after those that it requires.
func readModules(checkout string) ([]*goModule, error) {
	workFile := filepath.Join(checkout, "go.work")
	text, err := os.ReadFile(workFile)
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork(workFile, text, nil)
	if err != nil {
		return nil, err
	}
	var modules []*goModule
	for _, use := range work.Use {
		m := &goModule{dir: path.Clean(use.Path)}
		if isUnreleased(m.dir) {
			continue
		}
		file, err := readModFile(filepath.Join(checkout, m.dir))
		if err != nil {
			return nil, err
		}
		m.path = file.Module.Mod.Path
		for _, r := range file.Require {
			m.requires = append(m.requires, r.Mod.Path)
		}
		modules = append(modules, m)
	}
	return sortModules(modules)
}

func readModFile(dir string) (*modfile.File, error) {
	name := filepath.Join(dir, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, text, nil)
}

// sortModules puts the root module first, and each module after those that it requires. It removes
// other requirements than modules of the repository.
func sortModules(modules []*goModule) ([]*goModule, error) {
	root := slices.IndexFunc(modules, func(m *goModule) bool { return m.dir == "." })
	if root < 0 {
		return nil, fmt.Errorf("go.work does not use the root module")
	}
	prefix := modules[root].path
	waiting := make(map[string]bool, len(modules))
	for _, m := range modules {
		if want := path.Join(prefix, m.dir); m.path != want {
			return nil, fmt.Errorf("%s/go.mod: the path of the module is %s, want %s", m.dir, m.path, want)
		}
		waiting[m.path] = true
	}
	for _, m := range modules {
		m.requires = slices.DeleteFunc(m.requires, func(path string) bool { return !isOurs(prefix, path) })
		for _, path := range m.requires {
			if !waiting[path] {
				return nil, fmt.Errorf("%s/go.mod requires %s, which is not released", m.dir, path)
			}
		}
	}
	sorted := make([]*goModule, 0, len(modules))
	for len(sorted) < len(modules) {
		i := slices.IndexFunc(modules, func(m *goModule) bool {
			return waiting[m.path] && !slices.ContainsFunc(m.requires, func(path string) bool { return waiting[path] })
		})
		if i < 0 {
			return nil, fmt.Errorf("these modules require each other: %v", slices.DeleteFunc(paths(modules), func(path string) bool { return !waiting[path] }))
		}
		delete(waiting, modules[i].path)
		sorted = append(sorted, modules[i])
	}
	if sorted[0].dir != "." {
		return nil, fmt.Errorf("the root module requires %v", modules[root].requires)
	}
	return sorted, nil
}

func paths(modules []*goModule) []string {
	list := make([]string, len(modules))
	for i, m := range modules {
		list[i] = m.path
	}
	return list
}

// isOurs reports whether a path is that of a module or package of the repository whose root module is root.
func isOurs(root, path string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// isInternal reports whether only modules of the repository can import a package.
func isInternal(path string) bool { return slices.Contains(strings.Split(path, "/"), "internal") }
