package main

import (
	"bufio"
	"fmt"
	"os"
	"path"
	"strings"
)

// A place is a package, as its directory in the module ("." is the root), and a file in it.
type place struct{ pkg, file string }

func (p place) name() string {
	if p.pkg == "." {
		return "llmhttp"
	}
	return path.Base(p.pkg)
}

type table struct {
	files  map[string]place  // file of the root
	decls  map[string]place  // Name of a declaration
	funcs  map[string]string // T.m: new name
	names  map[string]string // Name, T.m, T.field: new name
	alias  map[string]bool   // names that the root declares itself
	floors map[string]int    // package: its floor
	drop   map[string]bool   // declarations that go
	extern map[string]place  // declarations that go, and what takes their place: the package, and the name in file
}

func readTable(name string) *table {
	f, err := os.Open(name)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	t := &table{map[string]place{}, map[string]place{}, map[string]string{}, map[string]string{}, map[string]bool{}, map[string]int{".": 100}, map[string]bool{}, map[string]place{}}
	s := bufio.NewScanner(f)
	for n := 1; s.Scan(); n++ {
		line, _, _ := strings.Cut(s.Text(), "#")
		w := strings.Fields(line)
		if len(w) == 0 {
			continue
		}
		switch {
		case w[0] == "floor":
			for i, p := range w[1:] {
				t.floors[p] = i
			}
		case w[0] == "file" && len(w) == 3:
			t.files[w[1]] = place{w[2], w[1]}
		case w[0] == "file" && len(w) == 4:
			t.files[w[1]] = place{w[2], w[3]}
		case w[0] == "move" && len(w) >= 4: // move PKG FILE NAME...
			for _, d := range w[3:] {
				t.decls[d] = place{w[1], w[2]}
			}
		case w[0] == "func" && len(w) == 3:
			t.funcs[w[1]] = w[2]
		case w[0] == "name" && len(w) == 3:
			t.names[w[1]] = w[2]
		case w[0] == "extern" && len(w) == 4:
			t.extern[w[1]] = place{w[2], ""}
			t.drop[w[1]] = true
			t.names[w[1]] = w[3]
		case w[0] == "alias":
			for _, d := range w[1:] {
				t.alias[d] = true
			}
		case w[0] == "drop":
			for _, d := range w[1:] {
				t.drop[d] = true
			}
		default:
			panic(fmt.Sprintf("%s:%d: %s", name, n, s.Text()))
		}
	}
	return t
}
