// Check type-checks packages and their tests from source, which is cheaper than to compile them.
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	cfg := &packages.Config{Dir: os.Args[1], Tests: os.Getenv("NOTESTS") == "", Mode: packages.NeedName | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedImports | packages.NeedDeps | packages.NeedFiles}
	pkgs, err := packages.Load(cfg, os.Args[2:]...)
	if err != nil {
		panic(err)
	}
	seen := map[string]bool{}
	packages.Visit(pkgs, nil, func(p *packages.Package) {
		if !strings.HasPrefix(p.PkgPath, "github.com/llmhttp") && !strings.Contains(p.PkgPath, "command-line") {
			return
		}
		for _, e := range p.Errors {
			if s := strings.ReplaceAll(e.Error(), os.Args[1]+"/", ""); !seen[s] {
				seen[s] = true
				fmt.Println(s)
			}
		}
	})
	fmt.Println(len(pkgs), "packages", len(seen), "errors")
}
