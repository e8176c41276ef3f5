package console

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// limitedKey returns a key that has every limit.
func limitedKey() llmhttp.Key {
	limits := llmhttp.Limits{
		Requests:            llmhttp.Rate{N: 60, Per: time.Minute, Burst: 10},
		Tokens:              llmhttp.Rate{N: 1000, Per: time.Minute, Burst: 1000},
		Quota:               llmhttp.Quota{Tokens: 10_000, Cost: llm.USD(5), Per: 40 * day, Since: time.Date(2029, 1, 1, 0, 0, 0, 0, time.UTC)},
		MaxCompletionTokens: 100,
		Concurrent:          2,
	}
	return llmhttp.Key{
		ID: "key", Account: "acme", Scopes: []llmhttp.Scope{"chat", "models"}, Models: []string{"demo-*", "one"},
		Expires: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), Limits: limits, PerUser: limits,
		Subjects: []llmhttp.Subject{
			{ID: llmhttp.SubjectID{Kind: "team", ID: "a"}},
			{ID: llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: "acme"}, Limits: llmhttp.Limits{Concurrent: 5}},
		},
	}
}

// changesOf returns the changes in wider of a field. Those of PerUser are those of Limits.
func changesOf(path string) (changes []func(*llmhttp.Key), ok bool) {
	name, isPerUser := strings.CutPrefix(path, "PerUser.")
	if !isPerUser {
		changes, ok = wider[path]
		return changes, ok
	}
	for _, change := range wider["Limits."+name] {
		changes = append(changes, func(k *llmhttp.Key) {
			k.Limits, k.PerUser = k.PerUser, k.Limits
			change(k)
			k.Limits, k.PerUser = k.PerUser, k.Limits
		})
	}
	return changes, len(changes) > 0
}

// wider has, for each field of a Key by its path, changes after which a key is not
// within limitedKey. Fields without rights have none, and stores keep neither Labels nor Data.
var wider = map[string][]func(*llmhttp.Key){
	"ID": {}, "Account": {}, "Labels": {}, "Data": {},
	"Scopes": {
		func(k *llmhttp.Key) { k.Scopes = nil },
		func(k *llmhttp.Key) { k.Scopes = []llmhttp.Scope{"chat", "images"} },
	},
	"Models": {
		func(k *llmhttp.Key) { k.Models = nil },
		func(k *llmhttp.Key) { k.Models = []string{"*"} },
		func(k *llmhttp.Key) { k.Models = []string{"dem*"} },
		func(k *llmhttp.Key) { k.Models = []string{"one", "two"} },
	},
	"Subjects": {
		func(k *llmhttp.Key) { k.Subjects = nil },
		func(k *llmhttp.Key) { k.Subjects = k.Subjects[:1] },
		func(k *llmhttp.Key) { k.Subjects[1].Limits.Concurrent++ },
		func(k *llmhttp.Key) { k.Subjects[1].Limits = llmhttp.Limits{} },
		func(k *llmhttp.Key) { k.Subjects[1].ID.ID = "other" },
	},
	"Expires": {
		func(k *llmhttp.Key) { k.Expires = time.Time{} },
		func(k *llmhttp.Key) { k.Expires = k.Expires.Add(1) },
	},
	"Limits.Requests.N": {
		func(k *llmhttp.Key) { k.Limits.Requests.N = 0 },
		func(k *llmhttp.Key) { k.Limits.Requests.N++ },
		func(k *llmhttp.Key) { k.Limits.Requests.N = math.MaxInt },
	},
	"Limits.Requests.Per":   {func(k *llmhttp.Key) { k.Limits.Requests.Per-- }},
	"Limits.Requests.Burst": {func(k *llmhttp.Key) { k.Limits.Requests.Burst++ }, func(k *llmhttp.Key) { k.Limits.Requests.Burst = 0 }},
	"Limits.Tokens.N":       {func(k *llmhttp.Key) { k.Limits.Tokens.N = 0 }, func(k *llmhttp.Key) { k.Limits.Tokens.N++ }},
	"Limits.Tokens.Per":     {func(k *llmhttp.Key) { k.Limits.Tokens.Per = time.Second }},
	"Limits.Tokens.Burst":   {func(k *llmhttp.Key) { k.Limits.Tokens.Burst++ }},
	"Limits.Quota.Tokens":   {func(k *llmhttp.Key) { k.Limits.Quota.Tokens = 0 }, func(k *llmhttp.Key) { k.Limits.Quota.Tokens++ }},
	"Limits.Quota.Cost": {
		func(k *llmhttp.Key) { k.Limits.Quota.Cost = 0 },
		func(k *llmhttp.Key) { k.Limits.Quota.Cost++ },
	},
	"Limits.Quota.Per":   {func(k *llmhttp.Key) { k.Limits.Quota.Per-- }, func(k *llmhttp.Key) { k.Limits.Quota.Per = 0 }},
	"Limits.Quota.Since": {func(k *llmhttp.Key) { k.Limits.Quota.Since = k.Limits.Quota.Since.Add(1) }},
	"Limits.MaxCompletionTokens": {
		func(k *llmhttp.Key) { k.Limits.MaxCompletionTokens = 0 },
		func(k *llmhttp.Key) { k.Limits.MaxCompletionTokens++ },
	},
	"Limits.Concurrent": {func(k *llmhttp.Key) { k.Limits.Concurrent = 0 }, func(k *llmhttp.Key) { k.Limits.Concurrent++ }},
}

// fieldPaths returns the paths of the fields of t and of the structs of llmhttp in it.
func fieldPaths(t reflect.Type, prefix string) (paths []string) {
	for f := range t.Fields() {
		if f.Type.Kind() == reflect.Struct && f.Type.PkgPath() == t.PkgPath() {
			paths = append(paths, fieldPaths(f.Type, prefix+f.Name+".")...)
		} else {
			paths = append(paths, prefix+f.Name)
		}
	}
	return paths
}

// No field of a Key is forgotten: each has changes that isWithin notices.
func TestIsWithin_EveryField(t *testing.T) {
	limit := limitedKey()
	same := limitedKey()
	require.True(t, isWithin(&same, &limit), "a key is within itself")
	paths := fieldPaths(reflect.TypeFor[llmhttp.Key](), "")
	isPerUser := func(path string) bool { return strings.HasPrefix(path, "PerUser.") }
	assert.Len(t, wider, len(slices.DeleteFunc(slices.Clone(paths), isPerUser)))
	for _, path := range paths {
		changes, ok := changesOf(path)
		assert.True(t, ok, "isWithin must compare %s, and wider must have a change of it", path)
		for i, change := range changes {
			k := limitedKey()
			change(&k)
			assert.False(t, isWithin(&k, &limit), "%s, change %d", path, i)
			assert.NotEqual(t, limit, k, "%s, change %d", path, i)
			assert.True(t, isWithin(&k, &k), "%s, change %d: a key is within itself", path, i)
		}
	}
}

func TestIsWithin_Unlimited(t *testing.T) {
	unlimited, limited := llmhttp.Key{}, limitedKey()
	assert.True(t, isWithin(&limited, &unlimited))
	assert.False(t, isWithin(&unlimited, &limited))
	assert.True(t, isWithin(&unlimited, &unlimited))
	none := llmhttp.Key{Scopes: []llmhttp.Scope{}, Models: []string{}}
	assert.True(t, isWithin(&none, &unlimited))
	assert.False(t, isWithin(&unlimited, &none))
}

func TestRateWithin(t *testing.T) {
	for _, test := range []struct {
		r, limit llmhttp.Rate
		want     bool
	}{
		{llmhttp.Rate{}, llmhttp.Rate{}, true},
		{llmhttp.Rate{}, llmhttp.Rate{Per: time.Hour, Burst: 5}, true},
		{llmhttp.Rate{N: 60}, llmhttp.PerMinute(60), true},
		{llmhttp.PerMinute(60), llmhttp.Rate{N: 60}, true},
		{llmhttp.Rate{N: 1, Per: time.Second}, llmhttp.PerMinute(60), true},
		{llmhttp.PerMinute(60), llmhttp.Rate{N: 1, Per: time.Second}, false}, // the burst
		{llmhttp.Rate{N: 60, Burst: 1}, llmhttp.Rate{N: 1, Per: time.Second}, true},
		{llmhttp.Rate{N: 61, Burst: 1}, llmhttp.Rate{N: 1, Per: time.Second}, false},
		{llmhttp.Rate{N: -1}, llmhttp.Rate{N: -5}, true},
		{llmhttp.Rate{N: -1, Burst: 7}, llmhttp.PerMinute(1), true},
		{llmhttp.PerMinute(1), llmhttp.Rate{N: -1}, false},
		{llmhttp.Rate{}, llmhttp.Rate{N: -1}, false},
		{llmhttp.Rate{N: math.MaxInt, Per: math.MaxInt64, Burst: 1}, llmhttp.Rate{N: math.MaxInt, Per: math.MaxInt64 - 1, Burst: 1}, true},
		{llmhttp.Rate{N: math.MaxInt, Per: math.MaxInt64 - 1, Burst: 1}, llmhttp.Rate{N: math.MaxInt, Per: math.MaxInt64, Burst: 1}, false},
	} {
		assert.Equal(t, test.want, rateWithin(test.r, test.limit), "%+v in %+v", test.r, test.limit)
	}
}

func TestQuotaWithin(t *testing.T) {
	since := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		q, limit llmhttp.Quota
		want     bool
	}{
		{llmhttp.Quota{}, llmhttp.Quota{}, true},
		{llmhttp.Quota{}, llmhttp.Quota{Tokens: 5}, false},
		{llmhttp.Quota{Tokens: 5, Since: since}, llmhttp.Quota{}, true},
		{llmhttp.Quota{Tokens: 5}, llmhttp.Quota{Tokens: 5}, true},
		{llmhttp.Quota{Tokens: 5}, llmhttp.Quota{Cost: 5}, false},
		{llmhttp.Quota{Cost: 5}, llmhttp.Quota{Tokens: 5}, false},
		{llmhttp.Quota{Tokens: 5, Cost: 1}, llmhttp.Quota{Tokens: 5}, true},
		{llmhttp.Quota{Tokens: 5, Per: 31 * day}, llmhttp.Quota{Tokens: 5}, true},
		{llmhttp.Quota{Tokens: 5, Per: 30 * day}, llmhttp.Quota{Tokens: 5}, false},
		{llmhttp.Quota{Tokens: 5}, llmhttp.Quota{Tokens: 5, Per: day}, false}, // twice as much around the end of a month
		{llmhttp.Quota{Tokens: 5, Per: 2 * day}, llmhttp.Quota{Tokens: 5, Per: day}, true},
		{llmhttp.Quota{Tokens: 5, Per: -1}, llmhttp.Quota{Tokens: 5, Per: day}, true},
		{llmhttp.Quota{Tokens: 5, Per: -2}, llmhttp.Quota{Tokens: 5, Per: -1}, true},
		{llmhttp.Quota{Tokens: 5}, llmhttp.Quota{Tokens: 5, Per: -1}, false},
		{llmhttp.Quota{Tokens: 5, Per: 1000 * day}, llmhttp.Quota{Tokens: 5, Per: -1}, false},
		{llmhttp.Quota{Tokens: 5}, llmhttp.Quota{Tokens: 5, Since: since}, true},
		{llmhttp.Quota{Tokens: 5, Since: since}, llmhttp.Quota{Tokens: 5}, false},
		{llmhttp.Quota{Tokens: -1}, llmhttp.Quota{Tokens: 5, Cost: 1, Per: -1}, true},
		{llmhttp.Quota{Tokens: 5}, llmhttp.Quota{Tokens: -1}, false},
	} {
		assert.Equal(t, test.want, quotaWithin(&test.q, &test.limit), "%+v in %+v", test.q, test.limit)
	}
}
