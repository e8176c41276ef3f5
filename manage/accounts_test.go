package manage_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
)

func TestAccountParams_Validate(t *testing.T) {
	quota := llmhttp.Limits{Quota: llmhttp.Quota{Cost: llm.MoneyUnit}}
	for _, test := range []struct {
		params manage.AccountParams
		err    string
	}{
		{params: manage.AccountParams{}},
		{params: manage.AccountParams{Name: strings.Repeat("x", 512), Limits: quota, PerUser: quota, Labels: []llmhttp.Label{{Name: "a"}}, Suspended: true}},
		{params: manage.AccountParams{Prepaid: true, Limits: llmhttp.Limits{Concurrent: 1}, PerUser: quota}},
		{manage.AccountParams{Name: strings.Repeat("x", 513)}, "AccountParams.Name: must be text of 0 to 512 bytes without control characters"},
		{manage.AccountParams{Name: "\xff"}, "AccountParams.Name: must be text"},
		{manage.AccountParams{Limits: llmhttp.Limits{Tokens: llmhttp.Rate{Burst: 1}}}, "AccountParams.Limits.Tokens.N: is zero"},
		{manage.AccountParams{PerUser: llmhttp.Limits{Tokens: llmhttp.Rate{Burst: 1}}}, "AccountParams.PerUser: Limits.Tokens.N: is zero"},
		{manage.AccountParams{Labels: []llmhttp.Label{{}}}, "AccountParams.Labels: llmhttp: the name of label 0 must be"},
		{manage.AccountParams{Prepaid: true, Limits: quota}, "AccountParams.Limits.Quota: must be empty, because the account is prepaid"},
	} {
		err := test.params.Validate()
		if test.err == "" {
			assert.NoError(t, err, "%+v", test.params)
		} else {
			assert.ErrorContains(t, err, test.err)
		}
	}
}

func TestCreditEntry_Validate(t *testing.T) {
	valid := manage.CreditEntry{ID: "a", Amount: -1}
	assert.NoError(t, valid.Validate())
	for _, test := range []struct {
		entry manage.CreditEntry
		err   string
	}{
		{manage.CreditEntry{Amount: 1}, "CreditEntry.ID: must be text of 1 to 512 bytes"},
		{manage.CreditEntry{ID: "a\n", Amount: 1}, "CreditEntry.ID: must be text"},
		{manage.CreditEntry{ID: "a", Amount: 1, Note: "\x00"}, "CreditEntry.Note: must be text of 0 to 512 bytes"},
		{manage.CreditEntry{ID: "a"}, "CreditEntry.Amount: must not be zero"},
	} {
		assert.ErrorContains(t, test.entry.Validate(), test.err)
	}
}

// An account that is prepaid may use its credit, and nothing without one.
func TestAccountInfo_Subject(t *testing.T) {
	a := manage.AccountInfo{ID: "acme", Credit: 7}
	a.Limits.Concurrent = 3
	want := llmhttp.Subject{ID: llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: "acme"}, Limits: llmhttp.Limits{Concurrent: 3}}
	assert.Equal(t, want, a.Subject())
	a.Prepaid = true
	for credit, cost := range map[llm.Money]llm.Money{7: 7, 0: -1, -7: -1, math.MinInt64: -1, math.MaxInt64: math.MaxInt64} {
		a.Credit, want.Limits.Quota = credit, llmhttp.Quota{Cost: cost, Per: -1}
		assert.Equal(t, want, a.Subject())
	}
}
