// Command house measures how the code of a checkout is laid out: the size of each package, what it
// exports, and how its files depend on each other.
//
//	go run ./bench/house [-dir DIR] [-commit REVISION] [-names] [packages]
//
// It prints tables, so that those of two checkouts can be compared. Of the names that a package exports,
// a host's are those that not only authors of protocols and endpoints need. Packages are patterns of
// go list; without any it measures those of the root module. "work" is all modules, which takes
// minutes the first time, because what they depend on is compiled.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

func run(args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("house", flag.ContinueOnError)
	flags.SetOutput(log)
	dir := flags.String("dir", ".", "the root `directory` of the checkout")
	commit := flags.String("commit", "", "also print the Go files without tests that this `revision` changed, as the cost of what it added")
	names := flags.Bool("names", false, "only print the names that the packages export, and whether they are for a host or for an author")
	if err := flags.Parse(args); err != nil {
		return err
	}
	patterns := flags.Args()
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	h := &house{dir: *dir, out: out, log: log}
	if *names {
		return h.printNames(patterns)
	}
	if err := h.printPackages(patterns); err != nil {
		return err
	}
	if err := h.printFolders(); err != nil {
		return err
	}
	if *commit == "" {
		return nil
	}
	return h.printCommit(*commit)
}

// A house is a checkout that is measured.
type house struct {
	dir      string
	out, log io.Writer
}

// command returns what a command prints, which runs in the checkout.
func (h *house) command(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = h.dir, h.log
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return text, nil
}

// A listed is a package as go list describes it.
type listed struct {
	Dir, ImportPath, Name, Export string
	GoFiles, IgnoredGoFiles       []string
	ImportMap                     map[string]string
	DepOnly                       bool // not matched by a pattern
}

// sources returns the names of the files without tests, those for other platforms too.
func (p *listed) sources() []string {
	return slices.DeleteFunc(slices.Concat(p.GoFiles, p.IgnoredGoFiles), func(name string) bool { return strings.HasSuffix(name, "_test.go") })
}

// list returns the packages that the patterns match, and the files with the types that all packages export.
func (h *house) list(patterns []string) (packages []*listed, exports map[string]string, err error) {
	args := append([]string{"list", "-buildvcs=false", "-deps", "-export", "-json=Dir,ImportPath,Name,Export,GoFiles,IgnoredGoFiles,ImportMap,DepOnly"}, patterns...)
	text, err := h.command("go", args...)
	if err != nil {
		return nil, nil, err
	}
	exports = make(map[string]string)
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		p := new(listed)
		if err := d.Decode(p); err == io.EOF {
			break
		} else if err != nil {
			return nil, nil, err
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly && len(p.GoFiles) > 0 {
			packages = append(packages, p)
		}
	}
	slices.SortFunc(packages, func(p, q *listed) int { return strings.Compare(p.ImportPath, q.ImportPath) })
	return packages, exports, nil
}

// printPackages prints a line for each package.
func (h *house) printPackages(patterns []string) error {
	packages, exports, err := h.list(patterns)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(h.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "package\tfiles\tlines\tcode\tcomment\tnames\ta host's\tmethods\tfields\treferences\tmutual pairs\tknot\tlines of it\tgo doc -all KB\t")
	for _, p := range packages {
		s, err := measure(p, exports)
		if err != nil {
			return fmt.Errorf("%s: %w", p.ImportPath, err)
		}
		doc := "-"
		if isPublic(p) {
			text, err := h.command("go", "doc", "-all", p.ImportPath)
			if err != nil {
				return err
			}
			doc = fmt.Sprintf("%.1f", float64(len(text))/1000)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t\n", p.ImportPath,
			s.files, s.lines, s.code, s.comment, s.names, s.hostNames, s.methods, s.fields, s.references, s.mutual, s.knot, s.knotLines, doc)
	}
	return w.Flush()
}

// isPublic reports whether users can import the package.
func isPublic(p *listed) bool {
	return p.Name != "main" && !slices.Contains(strings.Split(p.ImportPath, "/"), "internal")
}

// goFiles calls visit for each Go file below the checkout, with its path relative to it.
func (h *house) goFiles(visit func(path string) error) error {
	return filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != h.dir && (name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		rel, err := filepath.Rel(h.dir, path)
		if err != nil {
			return err
		}
		return visit(filepath.ToSlash(rel))
	})
}

// A folder is a directory of the checkout with all below it, or the files of the root.
type folder struct {
	lines, testLines int
	internalFiles    int // files without tests of a nested module that import internal packages of the root
}

// printFolders prints the lines of each folder, and the imports of internal packages of the root
// module by files of other modules.
func (h *house) printFolders() error {
	root, err := h.command("go", "list", "-m", "-f", "{{if .Main}}{{.Path}} {{.Dir}}{{end}}")
	if err != nil {
		return err
	}
	prefix, nested, err := h.modules(string(root))
	if err != nil {
		return err
	}
	folders := make(map[string]*folder)
	total := new(folder)
	err = h.goFiles(func(path string) error {
		text, err := os.ReadFile(filepath.Join(h.dir, path))
		if err != nil {
			return err
		}
		name, _, below := strings.Cut(path, "/")
		if !below {
			name = "."
		}
		f := folders[name]
		if f == nil {
			f = new(folder)
			folders[name] = f
		}
		lines := bytes.Count(text, []byte("\n"))
		if strings.HasSuffix(path, "_test.go") {
			f.testLines += lines
			total.testLines += lines
			return nil
		}
		f.lines += lines
		total.lines += lines
		if isBelow(path, nested) {
			imports, err := importsBelow(text, prefix+"/internal")
			if err != nil {
				return err
			}
			if imports {
				f.internalFiles++
				total.internalFiles++
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(h.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nfolder\tlines\tlines of tests\tfiles of nested modules that import internal packages of the root\t")
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		f := folders[name]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t\n", name, f.lines, f.testLines, f.internalFiles)
	}
	fmt.Fprintf(w, "all\t%d\t%d\t%d\t\n", total.lines, total.testLines, total.internalFiles)
	return w.Flush()
}

// modules returns the path of the module in the checkout's root, and the folders of the others, of
// a list with a line for each: its path and its directory.
func (h *house) modules(list string) (root string, nested []string, err error) {
	base, err := filepath.Abs(h.dir)
	if err != nil {
		return "", nil, err
	}
	if base, err = filepath.EvalSymlinks(base); err != nil {
		return "", nil, err
	}
	for line := range strings.Lines(list) {
		path, dir, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		rel, err := filepath.Rel(base, dir)
		if err != nil {
			return "", nil, err
		}
		if rel == "." {
			root = path
		} else {
			nested = append(nested, filepath.ToSlash(rel))
		}
	}
	if root == "" {
		return "", nil, fmt.Errorf("%s is not the root directory of a module", h.dir)
	}
	return root, nested, nil
}

func isBelow(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return strings.HasPrefix(path, f+"/") })
}

// printCommit prints the Go files without tests that a commit touched.
func (h *house) printCommit(revision string) error {
	text, err := h.command("git", "show", "--format=%h %s", "--name-only", "--diff-filter=d", revision, "--")
	if err != nil {
		return err
	}
	title, names, _ := strings.Cut(string(text), "\n")
	var files []string
	for name := range strings.Lines(names) {
		name = strings.TrimSpace(name)
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			files = append(files, name)
		}
	}
	inRoot := 0
	for _, f := range files {
		if !strings.Contains(f, "/") {
			inRoot++
		}
	}
	_, err = fmt.Fprintf(h.out, "\n%s\nGo files that are no tests: %d, of which in the root package: %d\n%s\n", title, len(files), inRoot, strings.Join(files, "\n"))
	return err
}
