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
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/sqlstore"
)

// keySettings are the settings of a key that flags name. Each function sets one.
type keySettings []func(p *manage.KeyParams) error

// addFlags adds a flag for each setting of a key to f.
func (k *keySettings) addFlags(f *flag.FlagSet) {
	add := func(name, usage string, set func(p *manage.KeyParams, s string) error) {
		f.Func(name, usage, func(s string) error {
			*k = append(*k, func(p *manage.KeyParams) error { return set(p, s) })
			return set(new(manage.KeyParams), s)
		})
	}
	add("account", "the `account` that pays; the default is the ID of the key", func(p *manage.KeyParams, s string) error {
		p.Account = s
		return nil
	})
	add("name", "a `name` for display", func(p *manage.KeyParams, s string) error {
		p.Name = s
		return nil
	})
	add("scopes", "the allowed endpoints: a comma-separated `list` of "+endpointNames()+", or all, or none", func(p *manage.KeyParams, s string) (err error) {
		p.Scopes, err = keytext.ParseList(s, llmhttp.Scopes()...)
		return err
	})
	add("models", "the allowed models: a comma-separated `list` in which * matches any text, or all, or none", func(p *manage.KeyParams, s string) (err error) {
		p.Models, err = keytext.ParseList[string](s)
		return err
	})
	add("expires", "when the key expires: a `time` such as 2030-01-31 (midnight in UTC), 2030-01-31T12:00:00Z or 30d (from now), or never", func(p *manage.KeyParams, s string) (err error) {
		p.Expires, err = keytext.ParseExpiry(s, time.Now())
		return err
	})
	limit := func(name, usage string) {
		add(name, usage, func(p *manage.KeyParams, s string) error { return keytext.SetLimit(&p.Limits, name, s) })
	}
	limit("requests", "the `limit` of requests, such as 60/min, 60/min,burst=10 or 1000/7d, or none")
	limit("tokens", "the `limit` of tokens, such as 20k/min, or none")
	limit("quota", "the `limit` of what is used in a long period: tokens, dollars or both, such as 1M/month (a calendar month in UTC), 1M/30d (the last 30 days), 1M/all (prepaid), 20usd/month or 1M,20usd/month, or none")
	limit("max-completion-tokens", "the maximum `number` of tokens of a completion, or none; a negative number permits no completions")
	limit("concurrent", "the maximum `number` of concurrent requests, or none; a negative number permits no requests")
}

// apply sets the settings in p. Other settings stay.
func (k keySettings) apply(p *manage.KeyParams) error {
	for _, set := range k {
		if err := set(p); err != nil {
			return err
		}
	}
	return nil
}

// endpointNames returns the names of all endpoints, as in "chat, images and usage".
func endpointNames() string {
	var names []string
	for _, e := range llmhttp.Scopes() {
		names = append(names, string(e))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

func (c *command) createKey(ctx context.Context, args []string) error {
	f := c.newFlags()
	var settings keySettings
	settings.addFlags(f)
	if _, err := c.parse(f, "", args); err != nil {
		return err
	}
	var params manage.KeyParams
	if err := settings.apply(&params); err != nil {
		return err
	}
	return c.withStore(ctx, func(s *sqlstore.Store) error {
		info, secret, err := s.CreateKey(ctx, params)
		if err != nil {
			return err
		}
		return c.out.printSecret(info, secret)
	})
}

func (c *command) updateKey(ctx context.Context, args []string) error {
	f := c.newFlags()
	var settings keySettings
	settings.addFlags(f)
	id, err := c.parseID(f, args)
	if err != nil {
		return err
	}
	if len(settings) == 0 {
		return usageErrorf("no flag names a setting to change")
	}
	return c.withStore(ctx, func(s *sqlstore.Store) error {
		info, err := s.UpdateKey(ctx, id, settings.apply)
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

// setSuspended returns the change that suspends or resumes a key.
func setSuspended(suspended bool) keyChange {
	return func(ctx context.Context, s *sqlstore.Store, id string) error {
		_, err := s.UpdateKey(ctx, id, func(p *manage.KeyParams) error { p.Suspended = suspended; return nil })
		return err
	}
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
	var q manage.KeyQuery
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
func readKeys(ctx context.Context, s *sqlstore.Store, q manage.KeyQuery, limit int) (keys []manage.KeyInfo, more bool, err error) {
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
