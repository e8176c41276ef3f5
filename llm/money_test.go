package llm_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
)

func TestMoney_Text(t *testing.T) {
	for text, want := range map[string]llm.Money{
		"0": 0, "1": llm.MoneyUnit, "1.25": 1_250_000_000, "-1.25": -1_250_000_000, "0.000000001": 1, "-0.000000001": -1,
		"10.01": 10_010_000_000, "9223372036.854775807": math.MaxInt64, "-9223372036.854775808": math.MinInt64,
	} {
		assert.Equal(t, text, want.String())
		b, err := json.Marshal(want)
		require.NoError(t, err)
		assert.Equal(t, `"`+text+`"`, string(b))
		again := llm.Money(7)
		require.NoError(t, again.UnmarshalText([]byte(text)))
		assert.Equal(t, want, again)
	}
	for text, want := range map[string]llm.Money{"007.50": 7_500_000_000, "-0": 0, "1.000000000": llm.MoneyUnit} {
		var m llm.Money
		require.NoError(t, m.UnmarshalText([]byte(text)))
		assert.Equal(t, want, m, text)
	}
	for _, text := range []string{
		"", "-", ".", "1.", ".5", "+1", "--1", "1e3", "1,5", " 1", "1 ", "NaN", "0x1", "1_0", "1.0000000000", "1.-5", "\u0661",
		"9223372036.854775808", "-9223372036.854775809", "99999999999999999999999",
	} {
		m := llm.Money(7)
		assert.Error(t, m.UnmarshalText([]byte(text)), text)
		assert.EqualValues(t, 7, m, "an error changes nothing")
	}
	assert.InDelta(t, 1.25, llm.Money(1_250_000_000).Float64(), 0)
}

func TestUSD(t *testing.T) {
	for dollars, want := range map[float64]string{
		0: "0", 50: "50", 0.1: "0.1", 0.29: "0.29", -1.25: "-1.25", 1e-9: "0.000000001", 1.5e-7: "0.00000015", 4e-10: "0", 123456.789: "123456.789",
		math.Inf(1): "9223372036.854775807", math.Inf(-1): "-9223372036.854775808", 1e10: "9223372036.854775807", -1e300: "-9223372036.854775808",
	} {
		assert.Equal(t, want, llm.USD(dollars).String(), "%v", dollars)
	}
	assert.Panics(t, func() { llm.USD(math.NaN()) })
}

func TestMoney_Saturates(t *testing.T) {
	const largest, smallest = llm.Money(math.MaxInt64), llm.Money(math.MinInt64)
	for _, tt := range []struct{ a, b, sum, difference llm.Money }{
		{1, 2, 3, -1}, {largest, 1, largest, largest - 1}, {largest, largest, largest, 0}, {smallest, -1, smallest, smallest + 1}, {smallest, 1, smallest + 1, smallest},
		{largest, -1, largest - 1, largest}, {0, smallest, smallest, largest}, {-1, smallest, smallest, largest}, {-2, largest, largest - 2, smallest}, {smallest, smallest, smallest, 0},
	} {
		assert.Equal(t, tt.sum, tt.a.Add(tt.b), "%d + %d", tt.a, tt.b)
		assert.Equal(t, tt.difference, tt.a.Sub(tt.b), "%d - %d", tt.a, tt.b)
	}
}

func TestMoney_Scale(t *testing.T) {
	const largest, smallest = llm.Money(math.MaxInt64), llm.Money(math.MinInt64)
	for _, tt := range []struct {
		price  llm.Money
		n, per int64
		want   llm.Money
	}{
		{llm.USD(2), 250_000, 1_000_000, llm.USD(0.5)},
		{1, 5, 10, 1}, {1, 4, 10, 0}, {-1, 5, 10, -1}, {1, -5, 10, -1}, {-1, -5, 10, 1}, {7, 0, 3, 0},
		{largest, math.MaxInt64, 1, largest}, {largest, math.MaxInt64, math.MaxInt64, largest}, {largest, 2, 2, largest}, {largest, 3, 2, largest},
		{smallest, 1, 1, smallest}, {smallest, 2, 1, smallest}, {smallest, -1, 1, largest}, {smallest, math.MinInt64, math.MaxInt64, largest}, {largest, -2, 1, smallest},
	} {
		assert.Equal(t, tt.want, tt.price.Scale(tt.n, tt.per), "%d * %d / %d", tt.price, tt.n, tt.per)
	}
	assert.Panics(t, func() { llm.Money(1).Scale(1, 0) })
}
