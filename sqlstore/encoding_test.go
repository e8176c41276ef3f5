package sqlstore

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestStoredName(t *testing.T) {
	longest := strings.Repeat("x", maxName)
	for name, want := range map[string]string{
		"":          "",
		"demo-chat": "demo-chat",
		"模型":        "模型",
		"a\x00b":    `\x610062`,
		"\xff":      `\xff`,
		`\x`:        `\x5c78`,
		`\xff`:      `\x5c786666`,
		`\y`:        `\y`,
		`a\x00`:     `a\x00`,
		longest:     longest,
	} {
		stored := storedName(name)
		assert.Equal(t, want, stored)
		assert.Equal(t, name, originalName(stored))
	}

	// Names that are too long differ in their hash.
	assert.NotEqual(t, storedName(longest+"1"), storedName(longest+"2"))
	assert.Equal(t, storedName(longest+"1"), storedName(longest+"1"))
	assert.True(t, strings.HasPrefix(storedName(longest+"1"), "xxx"))
}

func FuzzStoredName(f *testing.F) {
	for _, name := range []string{"", "demo-chat", "模型", "a\x00b", "\xff", `\x`, `\xff`, `\xzz`, strings.Repeat("é", 300), strings.Repeat("\x00", 600)} {
		f.Add(name, name+"x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := storedName(a), storedName(b)
		assert.True(t, isText(x), "%q is stored as %q", a, x)
		assert.LessOrEqual(t, len(x), 2*maxName+len(hexPrefix), "%q is stored as %q", a, x)
		assert.Equal(t, a == b, x == y, "%q and %q are stored as %q and %q", a, b, x, y)
		if len(a) <= maxName {
			assert.Equal(t, a, originalName(x))
		}
	})
}

func TestMicros(t *testing.T) {
	for _, at := range []time.Time{
		{},
		time.Unix(0, 0),
		time.Unix(-1, 999_999_000),
		time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
	} {
		assert.True(t, at.Equal(fromMicros(micros(at))), at)
		assert.Equal(t, at.UTC().Truncate(day), fromMicros(dayOf(micros(at))))
	}
	assert.Equal(t, int64(-1), micros(time.Unix(0, -1)), "times are rounded down")
	assert.Equal(t, int64(maxMicros), micros(time.Unix(math.MaxInt64>>8, 0)))
	assert.Equal(t, int64(-maxMicros), micros(time.Unix(math.MinInt64>>8, 0)))
}
