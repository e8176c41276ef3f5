package main

import (
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage/keytext"
)

// funcFlag returns a flag that calls set with each of its values.
func funcFlag(name, usage string, set func(text string) error) cli.Flag {
	return &cli.StringFlag{Name: name, Usage: usage, Validator: set} // Validator is called with each value, in order
}

// textFlag returns a flag that sets text.
func textFlag[T ~string](name string, text *T, usage string) cli.Flag {
	return funcFlag(name, usage, func(s string) error { *text = T(s); return nil })
}

// parsedFlag returns a flag that sets v to what parse returns.
func parsedFlag[T any](name string, v *T, usage string, parse func(text string) (T, error)) cli.Flag {
	return funcFlag(name, usage, func(s string) (err error) { *v, err = parse(s); return err })
}

// settings are those of a key or an account that flags name: P is manage.KeyParams or
// manage.AccountParams. Each function sets one.
type settings[P any] []func(p *P) error

// flag returns a flag that sets a setting.
func (s *settings[P]) flag(name, usage string, set func(p *P, text string) error) cli.Flag {
	return funcFlag(name, usage, func(text string) error {
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

// limits returns a flag for each limit. Its name begins with prefix, and its usage tells whose
// limit it is.
func (s *settings[P]) limits(prefix, whose string, limits func(p *P) *llmhttp.Limits) (flags []cli.Flag) {
	for _, name := range keytext.LimitNames() {
		flags = append(flags, s.flag(prefix+name, fmt.Sprintf(limitUsage[name], whose),
			func(p *P, text string) error { return keytext.SetLimit(limits(p), name, text) }))
	}
	return flags
}

// check returns an error if no flag names a setting.
func (s *settings[P]) check() error {
	if len(*s) == 0 {
		return usageErrorf("no flag names a setting to change")
	}
	return nil
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
