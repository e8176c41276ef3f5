package console

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// Two people change different settings of a key with forms that they opened at the
// same time.
func TestKeyForm_ConcurrentEdits(t *testing.T) {
	now := time.Now()
	params := manage.KeyParams{Name: "a", Models: []string{"one, two"}, Expires: now.Add(-time.Hour)}
	shown := keyFields(&params)
	send := func(field, value string) {
		form := make(map[string][]string)
		for name, v := range shown {
			form[name], form["was."+name] = []string{v}, []string{v}
		}
		form[field] = []string{value}
		assert.NoError(t, readKeyForm(form, true).apply(&params, now))
	}
	send("name", "b")
	send("requests", "60/min")
	assert.Equal(t, "b", params.Name)
	assert.Equal(t, llmhttp.PerMinute(60), params.Limits.Requests)
	assert.Equal(t, []string{"one, two"}, params.Models, "a setting that was not changed stays, even if no form can express it")
	assert.Equal(t, `name: "a" to "b"`, describeChange(&manage.KeyParams{Name: "a"}, &manage.KeyParams{Name: "b"}))
}
