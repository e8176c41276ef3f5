package main

import (
	"flag"
	"fmt"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage/keytext"
)

// settings are those of a key or an account that flags name: P is manage.KeyParams or
// manage.AccountParams. Each function sets one.
type settings[P any] []func(p *P) error

// add adds a flag that sets a setting to f.
func (s *settings[P]) add(f *flag.FlagSet, name, usage string, set func(p *P, text string) error) {
	f.Func(name, usage, func(text string) error {
		*s = append(*s, func(p *P) error { return set(p, text) })
		return set(new(P), text)
	})
}

// limitUsage has the usage of a flag for each of keytext.LimitNames, in which %s stands for whose
// limit it is.
var limitUsage = map[string]string{
	"requests":              "the `limit` of requests%s, such as 60/min, 60/min,burst=10 or 1000/7d, or none",
	"tokens":                "the `limit` of tokens%s, such as 20k/min, or none",
	"quota":                 "the `limit` of what is used in a long period%s: tokens, dollars or both, such as 1M/month (a calendar month in UTC), 1M/30d (the last 30 days), 1M/all (prepaid), 20usd/month or 1M,20usd/month, or none",
	"max-completion-tokens": "the maximum `number` of tokens of a completion%s, or none; a negative number permits no completions",
	"concurrent":            "the maximum `number` of concurrent requests%s, or none; a negative number permits no requests",
}

// addLimits adds a flag for each limit to f. Its name begins with prefix, and its usage tells
// whose limit it is.
func (s *settings[P]) addLimits(f *flag.FlagSet, prefix, whose string, limits func(p *P) *llmhttp.Limits) {
	for _, name := range keytext.LimitNames() {
		s.add(
			f,
			prefix+name,
			fmt.Sprintf(limitUsage[name], whose),
			func(p *P, text string) error { return keytext.SetLimit(limits(p), name, text) },
		)
	}
}

// apply sets the settings in p. Other settings stay.
func (s settings[P]) apply(p *P) error {
	for _, set := range s {
		if err := set(p); err != nil {
			return err
		}
	}
	return nil
}
