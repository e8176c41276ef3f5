package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The programs in testdata are examples as they were before the names moved, and a host with former fields
// of Options. They compile with the new names.
func TestRename_Compiles(t *testing.T) {
	table := parseTable(renames)
	require.NotEmpty(t, table)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	files, err := filepath.Glob("testdata/*/*.go.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	args := []string{"build", "-o", os.DevNull, "-overlay", filepath.Join(t.TempDir(), "overlay.json")}
	programs := make(map[string]bool)
	for _, name := range files {
		src, err := os.ReadFile(name)
		require.NoError(t, err)
		renamed, warnings, err := rename(name, changeByHand(src), table)
		require.NoError(t, err)
		assert.Empty(t, warnings)
		again, _, err := rename(name, renamed, table)
		require.NoError(t, err)
		assert.Equal(t, string(renamed), string(again))
		program := filepath.Join("docs", "rename", "renamed", filepath.Base(filepath.Dir(name)))
		file := filepath.Join(t.TempDir(), "file.go")
		require.NoError(t, os.WriteFile(file, renamed, 0o644))
		overlay.Replace[filepath.Join(root, program, strings.TrimSuffix(filepath.Base(name), ".txt"))] = file
		programs["./"+program] = true
	}
	b, err := json.Marshal(overlay)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(args[4], b, 0o644))
	for program := range programs {
		cmd := exec.CommandContext(t.Context(), "go", append(args, program)...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s: %s", program, out)
	}
}

// changeByHand makes the changes by hand of which renames.txt tells.
func changeByHand(src []byte) []byte {
	wrapper := regexp.MustCompile(`type (\w+) struct \{\n\tllmhttp\.Forwarder\n`)
	for _, match := range wrapper.FindAllSubmatch(src, -1) {
		src = fmt.Appendf(src, "\nfunc (w *%s) Unwrap(context.Context) llmhttp.Backend { return w.Backend }\n", match[1])
	}
	for _, edit := range [][2]string{
		{`Forwarder: llmhttp\.Forwarder\{Backend: (.*?)\}`, "Backend: $1"},
		{`llmhttp\.Forwarder\{Backend: (.*?)\}`, "$1"},
		{`\tllmhttp\.Forwarder\n`, "\tllmhttp.Backend\n"},
		{`\.Forwarder\.`, ".Backend."},
		{`agent\.ConversationHeader`, "llmhttp.ConversationHeader"},
	} {
		src = regexp.MustCompile(edit[0]).ReplaceAll(src, []byte(edit[1]))
	}
	return src
}

func TestRename(t *testing.T) {
	table := map[string]target{"Tool": {module + "/llm", "Tool"}, "Collect": {module + "/llm/join", "Collect"}}
	for name, tt := range map[string]struct{ src, want string }{
		"nothing moved": {
			"package p\n\nimport \"" + module + "\"\n\nvar k llmhttp.Key\n",
			"package p\n\nimport \"" + module + "\"\n\nvar k llmhttp.Key\n",
		},
		"everything moved": {
			"package p\n\nimport \"" + module + "\"\n\nvar k llmhttp.Tool\n",
			"package p\n\nimport \"" + module + "/llm\"\n\nvar k llm.Tool\n",
		},
		"another name": {
			"package p\n\nimport h \"" + module + "\"\n\nvar k = []any{h.Tool{}, h.Collect, h.Key{}}\n",
			"package p\n\nimport (\n\th \"" + module + "\"\n\t\"" + module + "/llm\"\n\t\"" + module + "/llm/join\"\n)\n\nvar k = []any{llm.Tool{}, join.Collect, h.Key{}}\n",
		},
		"imported before": {
			"package p\n\nimport (\n\t\"" + module + "\"\n\t\"" + module + "/llm\"\n)\n\nvar k = []any{llmhttp.Tool{}, llm.Key, llmhttp.Key{}}\n",
			"package p\n\nimport (\n\t\"" + module + "\"\n\t\"" + module + "/llm\"\n)\n\nvar k = []any{llm.Tool{}, llm.Key, llmhttp.Key{}}\n",
		},
		"imported before, and nothing stays": {
			"package p\n\nimport \"" + module + "/llm\"\nimport \"" + module + "\"\n\nvar k = []any{llmhttp.Tool{}, llm.Key}\n",
			"package p\n\nimport \"" + module + "/llm\"\nimport ()\n\nvar k = []any{llm.Tool{}, llm.Key}\n",
		},
		"fields of Options": {
			"package p\n\nimport \"" + module + "\"\n\nvar o = llmhttp.Options{Timeout: 1, Prefix: \"/p\", MaxBody: 2}\n",
			"package p\n\nimport \"" + module + "\"\n\nvar o = llmhttp.Options{Bounds: llmhttp.Bounds{Timeout: 1, MaxBody: 2}, Prefix: \"/p\"}\n",
		},
		"fields of Options in lines": {
			"package p\n\nimport h \"" + module + "\"\n\nvar o = &h.Options{\n\t// how long\n\tTimeout: 1,\n\tUser: nil,\n\tTextTokens: func(h.Tool) {},\n\tMaxBody: 2, // bytes\n\tNow: nil,\n}\n",
			"package p\n\nimport (\n\th \"" + module + "\"\n\t\"" + module + "/llm\"\n)\n\nvar o = &h.Options{\n\t// how long\n\tBounds:    h.Bounds{Timeout: 1, MaxBody: 2},\n\tUser:      nil,\n\tEstimates: h.TokenEstimates{TextTokens: func(llm.Tool) {}},\n\t// bytes\n\tNow: nil,\n}\n",
		},
		"fields of others": {
			"package p\n\nimport \"" + module + "\"\n\nvar o = http.Client{Timeout: 1, X: llmhttp.ServeOptions{Timeout: 1}}\n",
			"package p\n\nimport \"" + module + "\"\n\nvar o = http.Client{Timeout: 1, X: llmhttp.ServeOptions{Timeout: 1}}\n",
		},
		"a variable of that name": {
			"package p\n\nimport _ \"" + module + "\"\n\nfunc f(llmhttp struct{ Tool int }) int { return llmhttp.Tool }\n",
			"package p\n\nimport _ \"" + module + "\"\n\nfunc f(llmhttp struct{ Tool int }) int { return llmhttp.Tool }\n",
		},
	} {
		got, warnings, err := rename(name, []byte(tt.src), table)
		require.NoError(t, err, name)
		assert.Empty(t, warnings, name)
		assert.Equal(t, tt.want, string(got), name)
	}
	_, warnings, err := rename("hidden.go", []byte("package p\n\nimport \""+module+"\"\n\nfunc f(llm int) llmhttp.Tool { panic(llm) }\n"), table)
	require.NoError(t, err)
	assert.NotEmpty(t, warnings)
}
