package main

import (
	"errors"
	"flag"
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/sqlstore"
)

// A keyView is a key in JSON. Limits are as the flags take them.
type keyView struct {
	ID        string             `json:"id"`
	Account   string             `json:"account"`
	Name      string             `json:"name"`
	Prefix    string             `json:"prefix"`
	Status    string             `json:"status"`
	Scopes    []llmhttp.Endpoint `json:"scopes"` // null means all
	Models    []string           `json:"models"` // null means all
	Limits    limitsView         `json:"limits"`
	CreatedAt string             `json:"created_at"`
	UsedAt    string             `json:"last_used_at,omitempty"`
	ExpiresAt string             `json:"expires_at,omitempty"`
	RevokedAt string             `json:"revoked_at,omitempty"`
	Secret    string             `json:"secret,omitempty"`
}

type limitsView struct {
	Requests   string `json:"requests,omitempty"`
	Tokens     string `json:"tokens,omitempty"`
	Quota      string `json:"quota,omitempty"`
	Concurrent int    `json:"concurrent,omitempty"`
}

func viewOf(k sqlstore.KeyInfo, secret string) keyView {
	return keyView{
		ID: k.ID, Account: k.Account, Name: k.Name, Prefix: k.Prefix, Status: status(k), Scopes: k.Scopes, Models: k.Models,
		Limits: limitsView{
			Requests: formatRate(k.Limits.Requests), Tokens: formatRate(k.Limits.Tokens), Quota: formatRate(k.Limits.Quota),
			Concurrent: k.Limits.Concurrent,
		},
		CreatedAt: formatTime(k.Created), UsedAt: formatTime(k.LastUsed), ExpiresAt: formatTime(k.Expires), RevokedAt: formatTime(k.Revoked),
		Secret: secret,
	}
}

func status(k sqlstore.KeyInfo) string {
	switch {
	case !k.Revoked.IsZero():
		return "revoked"
	case !k.Expires.IsZero() && !time.Now().Before(k.Expires):
		return "expired"
	}
	return "active"
}

// showSecret writes all of a key that has a new secret.
func (c *command) showSecret(k sqlstore.KeyInfo, secret string) error {
	// Who reads what is written may be gone, and is to be told.
	signal.Ignore(syscall.SIGPIPE)
	if err := c.showKey(k, secret); err != nil {
		return fmt.Errorf("%s has a new secret, which cannot be shown, so rotate or revoke it: %w", k.ID, err)
	}
	if !c.json {
		fmt.Fprintln(c.err, "Keep the secret now: it cannot be shown again.")
	}
	return nil
}

// showKey writes all of a key. secret is empty if it has no new one.
func (c *command) showKey(k sqlstore.KeyInfo, secret string) error {
	v := viewOf(k, secret)
	if c.json {
		return c.writeJSON(v)
	}
	rows := [][]string{
		{"id", v.ID}, {"account", v.Account}, {"name", v.Name}, {"prefix", v.Prefix}, {"status", v.Status},
		{"scopes", formatList(v.Scopes)}, {"models", formatList(v.Models)},
	}
	concurrent := ""
	if v.Limits.Concurrent != 0 {
		concurrent = fmt.Sprint(v.Limits.Concurrent)
	}
	for _, row := range [][]string{
		{"requests", v.Limits.Requests}, {"tokens", v.Limits.Tokens}, {"quota", v.Limits.Quota}, {"concurrent", concurrent},
		{"created", v.CreatedAt}, {"used", v.UsedAt}, {"expires", v.ExpiresAt}, {"revoked", v.RevokedAt}, {"secret", v.Secret},
	} {
		if row[1] != "" {
			rows = append(rows, row)
		}
	}
	return c.table(rows)
}

// keyFlags adds the flags that say what a key is, and returns what applies
// those that were given.
func keyFlags(f *flag.FlagSet) (apply func(*sqlstore.KeyParams) error) {
	var changes []func(*sqlstore.KeyParams)
	set := func(name, usage string, parse func(s string) (func(*sqlstore.KeyParams), error)) {
		f.Func(name, usage, func(s string) error {
			change, err := parse(s)
			changes = append(changes, change)
			return err
		})
	}
	set("account", "the `account` that pays; without one, the key is an account for itself", func(s string) (func(*sqlstore.KeyParams), error) {
		return func(p *sqlstore.KeyParams) { p.Account = s }, nil
	})
	set("name", "a `name`, for people", func(s string) (func(*sqlstore.KeyParams), error) {
		return func(p *sqlstore.KeyParams) { p.Name = s }, nil
	})
	set("scopes", "what it may call: a `list` of chat, images, embeddings, models and usage, or all, or none", func(s string) (func(*sqlstore.KeyParams), error) {
		list, err := parseList(s, scopes...)
		return func(p *sqlstore.KeyParams) { p.Scopes = list }, err
	})
	set("models", "the models it may use: a `list` in which * stands for any text, or all, or none", func(s string) (func(*sqlstore.KeyParams), error) {
		list, err := parseList[string](s)
		return func(p *sqlstore.KeyParams) { p.Models = list }, err
	})
	set("expires", "when it expires: a `time` such as 2030-01-31, which is when that day begins in UTC, 2030-01-31T12:00:00Z or 30d from now on, or never", func(s string) (func(*sqlstore.KeyParams), error) {
		t, err := parseExpiry(s, time.Now())
		return func(p *sqlstore.KeyParams) { p.Expires = t }, err
	})
	for name, limit := range map[string]struct {
		usage string
		rate  func(*sqlstore.KeyParams) *llmhttp.Rate
	}{
		"requests": {"a `limit` of requests such as 60/m, 60/m,burst=10 or 1000/7d, or none", func(p *sqlstore.KeyParams) *llmhttp.Rate { return &p.Limits.Requests }},
		"tokens":   {"a `limit` of tokens such as 20000/m, or none", func(p *sqlstore.KeyParams) *llmhttp.Rate { return &p.Limits.Tokens }},
		"quota":    {"a `limit` of tokens over a long time such as 1000000/30d, or none", func(p *sqlstore.KeyParams) *llmhttp.Rate { return &p.Limits.Quota }},
	} {
		set(name, limit.usage, func(s string) (func(*sqlstore.KeyParams), error) {
			r, err := parseRate(s)
			return func(p *sqlstore.KeyParams) { *limit.rate(p) = r }, err
		})
	}
	var concurrent int
	f.IntVar(&concurrent, "concurrent", 0, "the `number` of requests at a time; 0 is no limit, and a negative one admits none")
	return func(p *sqlstore.KeyParams) error {
		for _, change := range changes {
			change(p)
		}
		f.Visit(func(g *flag.Flag) {
			if g.Name == "concurrent" {
				p.Limits.Concurrent = concurrent
			}
		})
		return nil
	}
}

func (c *command) createKey(args []string) error {
	f := c.flags("")
	apply := keyFlags(f)
	operands, err := c.parse(f, args)
	if err != nil {
		return err
	}
	if len(operands) > 0 {
		return unexpected(operands)
	}
	var params sqlstore.KeyParams
	if err := apply(&params); err != nil {
		return err
	}
	return c.open(func(s *sqlstore.Store) error {
		info, secret, err := s.CreateKey(c.ctx, params)
		if err != nil {
			return err
		}
		return c.showSecret(info, secret)
	})
}

// oneID returns the only operand.
func oneID(operands []string) (string, error) {
	if len(operands) != 1 {
		return "", usageErrorf("the ID of one key is expected")
	}
	return operands[0], checkID(operands[0])
}

// checkID returns an error unless id may be that of a key. What is given in its
// place is often the secret, which an error must not tell.
func checkID(id string) error {
	if !strings.HasPrefix(id, "key_") {
		return usageErrorf("the ID of a key begins with key_: \"llmhttpctl keys list\" shows it beside what the secret begins with")
	}
	return nil
}

func (c *command) updateKey(args []string) error {
	f := c.flags("ID")
	apply := keyFlags(f)
	operands, err := c.parse(f, args)
	if err != nil {
		return err
	}
	id, err := oneID(operands)
	if err != nil {
		return err
	}
	changes := 0
	f.Visit(func(g *flag.Flag) {
		if g.Name != "dsn" && g.Name != "json" {
			changes++
		}
	})
	if changes == 0 {
		return usageErrorf("no flag says what to change")
	}
	return c.open(func(s *sqlstore.Store) error {
		info, err := s.UpdateKey(c.ctx, id, apply)
		if err != nil {
			return err
		}
		return c.showKey(info, "")
	})
}

func (c *command) rotateKey(args []string) error {
	f := c.flags("ID")
	var overlap time.Duration
	f.Func("overlap", "how `long` the old secret goes on working, such as 24h or 7d; without it, it ends at once", func(s string) (err error) {
		overlap, err = parsePeriod(s)
		return err
	})
	operands, err := c.parse(f, args)
	if err != nil {
		return err
	}
	id, err := oneID(operands)
	if err != nil {
		return err
	}
	return c.open(func(s *sqlstore.Store) error {
		info, secret, err := s.RotateKey(c.ctx, id, overlap)
		if err != nil {
			return err
		}
		return c.showSecret(info, secret)
	})
}

func (c *command) revokeKeys(args []string) error {
	ids, err := c.parse(c.flags("ID..."), args)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return usageErrorf("the ID of a key is expected")
	}
	for _, id := range ids {
		if err := checkID(id); err != nil {
			return err
		}
	}
	return c.open(func(s *sqlstore.Store) error {
		var errs []error
		for _, id := range ids {
			errs = append(errs, c.revokeKey(s, id))
		}
		return errors.Join(errs...)
	})
}

func (c *command) revokeKey(s *sqlstore.Store, id string) error {
	if err := s.RevokeKey(c.ctx, id); err != nil {
		return fmt.Errorf("%s: %w", cell(id), err)
	}
	if !c.json {
		_, err := fmt.Fprintf(c.out, "%s is revoked\n", id)
		return err
	}
	info, err := s.Key(c.ctx, id)
	if err != nil {
		return err
	}
	return c.writeJSON(viewOf(info, ""))
}

// listPage is how many keys are asked for at a time.
const listPage = 500

func (c *command) listKeys(args []string) error {
	f := c.flags("")
	var q sqlstore.KeyQuery
	f.StringVar(&q.Account, "account", "", "only those of this `account`")
	f.StringVar(&q.After, "after", "", "only those after the key of this `ID`")
	limit := f.Int("limit", 100, "at most this `number`; 0 is all")
	operands, err := c.parse(f, args)
	switch {
	case err != nil:
		return err
	case len(operands) > 0:
		return unexpected(operands)
	case *limit < 0:
		return usageErrorf("the limit is negative")
	}
	return c.open(func(s *sqlstore.Store) error {
		rows := [][]string{{"ID", "ACCOUNT", "NAME", "PREFIX", "STATUS", "CREATED", "USED", "EXPIRES"}}
		for n := 0; *limit == 0 || n < *limit; {
			q.Limit = listPage
			if *limit > 0 {
				q.Limit = min(*limit-n, listPage)
			}
			page, err := s.ListKeys(c.ctx, q)
			if err != nil {
				return err
			}
			for _, k := range page {
				v := viewOf(k, "")
				q.After = v.ID
				if !c.json {
					rows = append(rows, []string{v.ID, v.Account, v.Name, v.Prefix, v.Status, v.CreatedAt, v.UsedAt, v.ExpiresAt})
				} else if err := c.writeJSON(v); err != nil {
					return err
				}
			}
			n += len(page)
			if len(page) < q.Limit {
				break
			}
			if n == *limit {
				fmt.Fprintf(c.err, "There may be more: --after %s\n", q.After)
			}
		}
		if c.json {
			return nil
		}
		return c.table(rows)
	})
}
