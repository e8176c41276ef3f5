package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/keytext"
	"github.com/llmhttp/llmhttp/sqlstore"
)

// keyFlags are the flags that set the settings of a key.
type keyFlags struct {
	flags  *flag.FlagSet
	params sqlstore.KeyParams
}

// endpointNames returns the names of all endpoints, as in "chat, images and usage".
func endpointNames() string {
	var names []string
	for _, e := range llmhttp.Endpoints() {
		names = append(names, string(e))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// addKeyFlags adds the flags to f.
func addKeyFlags(f *flag.FlagSet) *keyFlags {
	k := &keyFlags{flags: f}
	p := &k.params
	f.StringVar(&p.Account, "account", "", "the `account` that pays; the default is the ID of the key")
	f.StringVar(&p.Name, "name", "", "a `name` for display")
	f.Func("scopes", "the allowed endpoints: a comma-separated `list` of "+endpointNames()+", or all, or none", func(s string) (err error) {
		p.Scopes, err = keytext.ParseScopes(s)
		return err
	})
	f.Func("models", "the allowed models: a comma-separated `list` in which * matches any text, or all, or none", func(s string) (err error) {
		p.Models, err = keytext.ParseList[string](s)
		return err
	})
	f.Func("expires", "when the key expires: a `time` such as 2030-01-31 (midnight in UTC), 2030-01-31T12:00:00Z or 30d (from now), or never", func(s string) (err error) {
		p.Expires, err = keytext.ParseExpiry(s, time.Now())
		return err
	})
	limit := func(name, usage string) {
		f.Func(name, usage, func(s string) error { return keytext.SetLimit(&p.Limits, name, s) })
	}
	limit("requests", "the `limit` of requests, such as 60/min, 60/min,burst=10 or 1000/7d, or none")
	limit("tokens", "the `limit` of tokens, such as 20k/min, or none")
	limit("quota", "the `limit` of what is used in a long period: tokens, dollars or both, such as 1M/month (a calendar month in UTC), 1M/30d (the last 30 days), 1M/all (prepaid), 20usd/month or 1M,20usd/month, or none")
	limit("max-completion-tokens", "the maximum `number` of tokens of a completion, or none")
	limit("concurrent", "the maximum `number` of concurrent requests, or none; a negative number admits no requests")
	return k
}

// apply copies the settings whose flags were given to p. It returns how many
// there were.
func (k *keyFlags) apply(p *sqlstore.KeyParams) (n int) {
	setters := map[string]func(){
		"account":  func() { p.Account = k.params.Account },
		"name":     func() { p.Name = k.params.Name },
		"scopes":   func() { p.Scopes = k.params.Scopes },
		"models":   func() { p.Models = k.params.Models },
		"expires":  func() { p.Expires = k.params.Expires },
		"requests": func() { p.Limits.Requests = k.params.Limits.Requests },
		"tokens":   func() { p.Limits.Tokens = k.params.Limits.Tokens },
		"quota": func() {
			k.params.Limits.Quota.Since = p.Limits.Quota.Since
			p.Limits.Quota = k.params.Limits.Quota
		},
		"max-completion-tokens": func() { p.Limits.MaxCompletionTokens = k.params.Limits.MaxCompletionTokens },
		"concurrent":            func() { p.Limits.Concurrent = k.params.Limits.Concurrent },
	}
	k.flags.Visit(func(f *flag.Flag) {
		if set, ok := setters[f.Name]; ok {
			set()
			n++
		}
	})
	return n
}

func (c *command) createKey(ctx context.Context, args []string) error {
	f := c.newFlags()
	settings := addKeyFlags(f)
	if _, err := c.parse(f, "", args); err != nil {
		return err
	}
	return c.withStore(ctx, func(s *sqlstore.Store) error {
		info, secret, err := s.CreateKey(ctx, settings.params)
		if err != nil {
			return err
		}
		return c.out.printSecret(info, secret)
	})
}

func (c *command) updateKey(ctx context.Context, args []string) error {
	f := c.newFlags()
	settings := addKeyFlags(f)
	id, err := c.parseID(f, args)
	if err != nil {
		return err
	}
	if settings.apply(new(sqlstore.KeyParams)) == 0 {
		return usageErrorf("no flag names a setting to change")
	}
	return c.withStore(ctx, func(s *sqlstore.Store) error {
		info, err := s.UpdateKey(ctx, id, func(p *sqlstore.KeyParams) error {
			settings.apply(p)
			return nil
		})
		if err != nil {
			return err
		}
		return c.out.printKey(info, "")
	})
}

func (c *command) rotateKey(ctx context.Context, args []string) error {
	f := c.newFlags()
	var overlap time.Duration
	f.Func("overlap", "how `long` the old secret keeps working, such as 24h or 7d; the default is 0", func(s string) (err error) {
		overlap, err = keytext.ParsePeriod(s)
		return err
	})
	id, err := c.parseID(f, args)
	if err != nil {
		return err
	}
	return c.withStore(ctx, func(s *sqlstore.Store) error {
		info, secret, err := s.RotateKey(ctx, id, overlap)
		if err != nil {
			return err
		}
		return c.out.printSecret(info, secret)
	})
}

// A keyChange changes the key with the given ID.
type keyChange func(ctx context.Context, s *sqlstore.Store, id string) error

func suspendKey(ctx context.Context, s *sqlstore.Store, id string) error {
	return setSuspended(ctx, s, id, true)
}

func resumeKey(ctx context.Context, s *sqlstore.Store, id string) error {
	return setSuspended(ctx, s, id, false)
}

func setSuspended(ctx context.Context, s *sqlstore.Store, id string, suspended bool) error {
	_, err := s.UpdateKey(ctx, id, func(p *sqlstore.KeyParams) error { p.Suspended = suspended; return nil })
	return err
}

func revokeKey(ctx context.Context, s *sqlstore.Store, id string) error { return s.RevokeKey(ctx, id) }

// changeKeys returns a command that changes each key that its arguments name, and
// reports that it has the new state.
func (c *command) changeKeys(state string, change keyChange) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		ids, err := c.parse(c.newFlags(), "ID...", args)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			return usageErrorf("expected the ID of a key")
		}
		for _, id := range ids {
			if err := checkID(id); err != nil {
				return err
			}
		}
		return c.withStore(ctx, func(s *sqlstore.Store) error {
			var errs []error
			for _, id := range ids {
				errs = append(errs, c.changeKey(ctx, s, id, state, change))
			}
			return errors.Join(errs...)
		})
	}
}

func (c *command) changeKey(ctx context.Context, s *sqlstore.Store, id, state string, change keyChange) error {
	if err := change(ctx, s, id); err != nil {
		return fmt.Errorf("%s: %w", printable(id), err)
	}
	if !c.out.json {
		_, err := fmt.Fprintf(c.out.stdout, "%s is %s\n", id, state)
		return err
	}
	info, err := s.Key(ctx, id)
	if err != nil {
		return err
	}
	return c.out.printKey(info, "")
}

func (c *command) showKey(ctx context.Context, args []string) error {
	id, err := c.parseID(c.newFlags(), args)
	if err != nil {
		return err
	}
	return c.withStore(ctx, func(s *sqlstore.Store) error {
		info, err := s.Key(ctx, id)
		if err != nil {
			return err
		}
		return c.out.printKey(info, "")
	})
}

// parseID is parse for a command with the ID of a key as its only operand.
func (c *command) parseID(f *flag.FlagSet, args []string) (string, error) {
	operands, err := c.parse(f, "ID", args)
	if err != nil {
		return "", err
	}
	if len(operands) != 1 {
		return "", usageErrorf("expected the ID of one key")
	}
	return operands[0], checkID(operands[0])
}

// checkID returns an error if id cannot be the ID of a key. The error does not
// contain id, which may be a secret that was mistaken for an ID.
func checkID(id string) error {
	if !strings.HasPrefix(id, "key_") {
		return usageErrorf("the ID of a key begins with key_: \"llmhttpctl keys list\" shows it next to the beginning of the secret")
	}
	return nil
}

// listPage is the number of keys that one call of ListKeys returns.
const listPage = 500

func (c *command) listKeys(ctx context.Context, args []string) error {
	f := c.newFlags()
	var q sqlstore.KeyQuery
	f.StringVar(&q.Account, "account", "", "list only keys of this `account`")
	f.StringVar(&q.Search, "search", "", "list only keys that contain this `text` in the ID, account, name or prefix")
	f.StringVar(&q.After, "after", "", "list only keys after the key with this `ID`")
	limit := f.Int("limit", 100, "the maximum `number` of keys; 0 means all")
	if _, err := c.parse(f, "", args); err != nil {
		return err
	}
	if *limit < 0 {
		return usageErrorf("the limit is negative")
	}
	return c.withStore(ctx, func(s *sqlstore.Store) error {
		keys, more, err := readKeys(ctx, s, q, *limit)
		if err == nil && len(keys) == 0 && q.Account != "" {
			err = checkAccount(ctx, s, q.Account)
		}
		if err != nil {
			return err
		}
		if err := c.out.printKeys(keys); err != nil {
			return err
		}
		if more {
			fmt.Fprintf(c.out.stderr, "There may be more: --after %s\n", keys[len(keys)-1].ID)
		}
		return nil
	})
}

// readKeys reads up to limit keys, or all keys if limit is 0. It reports
// whether there may be more.
func readKeys(ctx context.Context, s *sqlstore.Store, q sqlstore.KeyQuery, limit int) (keys []sqlstore.KeyInfo, more bool, err error) {
	for {
		q.Limit = listPage
		if limit > 0 {
			q.Limit = min(limit-len(keys), listPage)
		}
		page, err := s.ListKeys(ctx, q)
		if err != nil {
			return nil, false, err
		}
		keys = append(keys, page...)
		if len(page) < q.Limit {
			return keys, false, nil
		}
		if len(keys) == limit {
			return keys, true, nil
		}
		q.After = keys[len(keys)-1].ID
	}
}
