package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The commands of README.md work, one after the other, in a shell.
func TestCommandsOfReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	require.Len(t, blocks, 2) // the first installs the command
	dir := t.TempDir()
	require.NoError(t, os.Symlink(os.Args[0], filepath.Join(dir, "llmhttpctl")))
	key := "key_..."
	commands := 0
	for command := range strings.Lines(blocks[1][1]) {
		if strings.HasPrefix(command, "export LLMHTTP_DSN=") {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "bash", "-ec", strings.ReplaceAll(command, "key_...", key))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), runMain+"=1", "LLMHTTP_DSN=llm.db")
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s%s", command, out)
		if id := idPattern.Find(out); strings.Contains(command, "keys create") {
			require.NotNil(t, id, "%s", out)
			key = string(id)
		}
		commands++
	}
	assert.Greater(t, commands, 10)
}
