package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/manage/keytext"
	"github.com/llmhttp/llmhttp/sqlstore"
)

// keyFlags adds a flag for each setting of a key to f, and returns those that are named.
func keyFlags(f *flag.FlagSet) *settings[manage.KeyParams] {
	k := new(settings[manage.KeyParams])
	k.add(f, "account", "the `account` that pays; the default is the ID of the key", func(p *manage.KeyParams, s string) error {
		p.Account = s
		return nil
	})
	k.add(f, "name", "a `name` for display", func(p *manage.KeyParams, s string) error {
		p.Name = s
		return nil
	})
	k.add(
		f,
		"scopes",
		"the allowed endpoints: a comma-separated `list` of "+endpointNames()+" and the scopes of your own endpoints, or all, or none",
		func(p *manage.KeyParams, s string) (err error) {
			p.Scopes, err = keytext.ParseScopes(s)
			return err
		},
	)
	k.add(
		f,
		"models",
		"the allowed models: a comma-separated `list` in which * matches any text, or all, or none",
		func(p *manage.KeyParams, s string) (err error) {
			p.Models, err = keytext.ParseList[string](s)
			return err
		},
	)
	k.add(
		f,
		"expires",
		"when the key expires: a `time` such as 2030-01-31 (midnight in UTC), 2030-01-31T12:00:00Z or 30d (from now), or never",
		func(p *manage.KeyParams, s string) (err error) {
			p.Expires, err = keytext.ParseExpiry(s, time.Now())
			return err
		},
	)
	k.addLimits(f, "", "", func(p *manage.KeyParams) *llmhttp.Limits { return &p.Limits })
	return k
}

// endpointNames returns the scopes of the endpoints of llmhttp, as in "chat, images, usage".
func endpointNames() string {
	var names []string
	for _, e := range llmhttp.Scopes() {
		names = append(names, string(e))
	}
	return strings.Join(names, ", ")
}

func (c *command) createKey(ctx context.Context, args []string) error {
	f := c.newFlags()
	settings := keyFlags(f)
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
		c.out.hintScopes(info.Scopes)
		return c.out.printSecret(info, secret)
	})
}

func (c *command) updateKey(ctx context.Context, args []string) error {
	f := c.newFlags()
	settings := keyFlags(f)
	id, err := c.parseID(f, args)
	if err != nil {
		return err
	}
	if len(*settings) == 0 {
		return usageErrorf("no flag names a setting to change")
	}
	return c.withStore(ctx, func(s *sqlstore.Store) error {
		info, err := s.UpdateKey(ctx, id, settings.apply)
		if err != nil {
			return err
		}
		c.out.hintScopes(info.Scopes)
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

// A change changes the key or the account with the given ID.
type change func(ctx context.Context, s *sqlstore.Store, id string) error

// setSuspended returns the change that suspends or resumes a key.
func setSuspended(suspended bool) change {
	return func(ctx context.Context, s *sqlstore.Store, id string) error {
		_, err := s.UpdateKey(ctx, id, func(p *manage.KeyParams) error { p.Suspended = suspended; return nil })
		return err
	}
}

func revokeKey(ctx context.Context, s *sqlstore.Store, id string) error { return s.RevokeKey(ctx, id) }

// changeKeys returns a command that changes each key that its arguments name, and
// reports that it has the new state.
func (c *command) changeKeys(state string, change change) func(context.Context, []string) error {
	return c.changeEach("a key", checkID, state, change, c.showOneKey)
}

// changeEach returns a command that changes each key or account, which kind says, that its
// arguments name. check returns an error if an ID cannot be one. Afterwards the command
// reports the new state or, with --json, calls show.
func (c *command) changeEach(
	kind string,
	check func(id string) error,
	state string,
	change, show change,
) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		ids, err := c.parse(c.newFlags(), "ID...", args)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			return usageErrorf("expected the ID of %s", kind)
		}
		for _, id := range ids {
			if err := check(id); err != nil {
				return err
			}
		}
		return c.withStore(ctx, func(s *sqlstore.Store) error {
			var errs []error
			for _, id := range ids {
				err := change(ctx, s, id)
				switch {
				case err != nil:
					err = fmt.Errorf("%s: %w", printable(id), err)
				case c.out.json:
					err = show(ctx, s, id)
				default:
					_, err = fmt.Fprintf(c.out.stdout, "%s is %s\n", printable(id), state)
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		})
	}
}

func (c *command) showKey(ctx context.Context, args []string) error {
	id, err := c.parseID(c.newFlags(), args)
	if err != nil {
		return err
	}
	return c.withStore(ctx, func(s *sqlstore.Store) error { return c.showOneKey(ctx, s, id) })
}

// showOneKey prints the key with the given ID.
func (c *command) showOneKey(ctx context.Context, s *sqlstore.Store, id string) error {
	info, err := s.Key(ctx, id)
	if err != nil {
		return err
	}
	return c.out.printKey(info, "")
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

func (c *command) listKeys(ctx context.Context, args []string) error {
	f := c.newFlags()
	var q manage.KeyQuery
	f.StringVar(&q.Account, "account", "", "list only keys of this `account`")
	f.StringVar(&q.Search, "search", "", "list only keys that contain this `text` in the ID, account, name or prefix")
	f.StringVar(&q.After, "after", "", "list only keys after the key with this `ID`")
	limit := limitFlag(f, "keys")
	if _, err := c.parse(f, "", args); err != nil {
		return err
	}
	return c.withStore(ctx, func(s *sqlstore.Store) error {
		read := func(after string, limit int) ([]manage.KeyInfo, error) {
			q.After, q.Limit = after, limit
			return s.ListKeys(ctx, q)
		}
		id := func(k *manage.KeyInfo) string { return k.ID }
		return printPages(&c.out, *limit, q.After, read, id, func(keys []manage.KeyInfo) error {
			if len(keys) == 0 && q.Account != "" {
				if err := checkAccount(ctx, s, q.Account); err != nil {
					return err
				}
			}
			return c.out.printKeys(keys)
		})
	})
}
