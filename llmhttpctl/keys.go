package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/manage/keytext"
	"github.com/llmhttp/llmhttp/sqlstore"
)

// keyFlags returns a flag for each setting of a key, which adds to k.
func keyFlags(k *settings[manage.KeyParams]) []cli.Flag {
	return append([]cli.Flag{
		k.flag("account", "the `account` that pays; the default is the ID of the key", func(p *manage.KeyParams, s string) error { p.Account = s; return nil }),
		k.flag("name", "a `name` for display", func(p *manage.KeyParams, s string) error { p.Name = s; return nil }),
		k.flag("scopes", "the allowed endpoints: a comma-separated `list` of "+endpointNames()+" and the scopes of your own endpoints, or all, or none",
			func(p *manage.KeyParams, s string) (err error) {
				p.Scopes, err = keytext.ParseScopes(s)
				return err
			}),
		k.flag("models", "the allowed models: a comma-separated `list` in which * matches any text, or all, or none",
			func(p *manage.KeyParams, s string) (err error) {
				p.Models, err = keytext.ParseList[string](s)
				return err
			}),
		k.flag("expires", "when the key expires: a `time` such as 2030-01-31 (midnight in UTC), 2030-01-31T12:00:00Z or 30d (from now), or never",
			func(p *manage.KeyParams, s string) (err error) {
				p.Expires, err = keytext.ParseExpiry(s, time.Now())
				return err
			}),
	}, k.limits("", "", func(p *manage.KeyParams) *llmhttp.Limits { return &p.Limits })...)
}

// endpointNames returns the scopes of the endpoints of llmhttp, as in "chat, images, usage".
func endpointNames() string {
	var names []string
	for _, e := range llmhttp.Scopes() {
		names = append(names, string(e))
	}
	return strings.Join(names, ", ")
}

func (c *command) createKey() *cli.Command {
	var settings settings[manage.KeyParams]
	return c.store(&cli.Command{
		Name: "create", Usage: "create a key and print its secret once", Flags: keyFlags(&settings),
	}, nil, func(ctx context.Context, s *sqlstore.Store, _ []string) error {
		var params manage.KeyParams
		if err := settings.apply(&params); err != nil {
			return err
		}
		info, secret, err := s.CreateKey(ctx, params)
		if err != nil {
			return err
		}
		c.out.hintScopes(info.Scopes)
		return c.out.printSecret(info, secret)
	})
}

func (c *command) updateKey() *cli.Command {
	var settings settings[manage.KeyParams]
	return c.store(&cli.Command{
		Name: "update", ArgsUsage: "ID", Usage: "change the settings that the flags name", Flags: keyFlags(&settings),
	}, settings.check, func(ctx context.Context, s *sqlstore.Store, ids []string) error {
		info, err := s.UpdateKey(ctx, ids[0], settings.apply)
		if err != nil {
			return err
		}
		c.out.hintScopes(info.Scopes)
		return c.out.printKey(info, "")
	})
}

func (c *command) rotateKey() *cli.Command {
	var overlap time.Duration
	return c.store(&cli.Command{
		Name: "rotate", ArgsUsage: "ID", Usage: "give a key a new secret and print it once", Flags: []cli.Flag{
			parsedFlag("overlap", &overlap, "how `long` the old secret keeps working, such as 24h or 7d; the default is 0", keytext.ParsePeriod),
		},
	}, nil, func(ctx context.Context, s *sqlstore.Store, ids []string) error {
		info, secret, err := s.RotateKey(ctx, ids[0], overlap)
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
func (c *command) changeKeys(name, usage, state string, change change) *cli.Command {
	return c.changeEach(name, usage, state, change, c.showOneKey)
}

// changeEach returns a command that changes each key or account that its arguments name.
// Afterwards the command reports the new state or, with --json, calls show.
func (c *command) changeEach(name, usage, state string, change, show change) *cli.Command {
	return c.store(&cli.Command{Name: name, ArgsUsage: "ID...", Usage: usage}, nil, func(ctx context.Context, s *sqlstore.Store, ids []string) error {
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

func (c *command) showKey() *cli.Command {
	return c.store(&cli.Command{
		Name: "show", ArgsUsage: "ID", Usage: "print the settings of a key",
	}, nil, func(ctx context.Context, s *sqlstore.Store, ids []string) error { return c.showOneKey(ctx, s, ids[0]) })
}

// showOneKey prints the key with the given ID.
func (c *command) showOneKey(ctx context.Context, s *sqlstore.Store, id string) error {
	info, err := s.Key(ctx, id)
	if err != nil {
		return err
	}
	return c.out.printKey(info, "")
}

func (c *command) listKeys() *cli.Command {
	var q manage.KeyQuery
	var limit int
	return c.store(&cli.Command{
		Name: "list", Usage: "list keys, oldest first", Flags: append(listFlags(&q.After, &limit, "keys"),
			textFlag("account", &q.Account, "list only keys of this `account`"),
			textFlag("search", &q.Search, "list only keys that contain this `text` in the ID, account, name or prefix"),
		),
	}, nil, func(ctx context.Context, s *sqlstore.Store, _ []string) error {
		read := func(after string, limit int) ([]manage.KeyInfo, error) {
			q.After, q.Limit = after, limit
			return s.ListKeys(ctx, q)
		}
		id := func(k *manage.KeyInfo) string { return k.ID }
		return printPages(&c.out, limit, q.After, read, id, func(keys []manage.KeyInfo) error {
			if len(keys) == 0 && q.Account != "" {
				if err := checkAccount(ctx, s, q.Account); err != nil {
					return err
				}
			}
			return c.out.printKeys(keys)
		})
	})
}
