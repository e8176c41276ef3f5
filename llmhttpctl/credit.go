package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/manage/keytext"
	"github.com/llmhttp/llmhttp/sqlstore"
)

func (c *command) addCredit(ctx context.Context, args []string) error {
	f := c.newFlags()
	e := manage.CreditEntry{ID: "credit_" + strings.ToLower(rand.Text()[:20])}
	f.Func("amount", "the `amount` to add, such as 20usd, or -5usd to correct an entry", func(s string) (err error) {
		e.Amount, err = keytext.ParseMoney(s)
		return err
	})
	f.StringVar(&e.Note, "note", "", "a `text` for people")
	f.Func(
		"id",
		"the `ID` of the entry, such as that of a payment: adding it again does nothing; the default is random",
		func(s string) error {
			e.ID = s
			return nil
		},
	)
	account, err := c.parseAccount(f, args)
	if err != nil {
		return err
	}
	if e.Amount == 0 {
		return usageErrorf("--amount is missing")
	}
	e.Account = account
	return c.withStore(ctx, func(s *sqlstore.Store) error {
		added, err := s.AddCredit(ctx, e)
		if err != nil {
			return err
		}
		info, err := s.Account(ctx, account)
		if err != nil {
			return err
		}
		if !info.Prepaid {
			fmt.Fprintln(c.out.stderr, "The account is not prepaid: its credit limits nothing.")
		}
		return c.out.printCredit([]manage.CreditEntry{added})
	})
}

func (c *command) listCredit(ctx context.Context, args []string) error {
	f := c.newFlags()
	var q manage.CreditQuery
	f.StringVar(&q.After, "after", "", "list only entries after the one with this `ID`")
	f.BoolVar(&q.Newest, "newest", false, "list the newest first")
	limit := limitFlag(f, "entries")
	account, err := c.parseAccount(f, args)
	if err != nil {
		return err
	}
	q.Account = account
	return c.withStore(ctx, func(s *sqlstore.Store) error {
		read := func(after string, limit int) ([]manage.CreditEntry, error) {
			q.After, q.Limit = after, limit
			return s.ListCredit(ctx, q)
		}
		return printPages(&c.out, *limit, q.After, read, func(e *manage.CreditEntry) string { return e.ID }, c.out.printCredit)
	})
}

// creditJSON is the JSON form of a credit entry.
type creditJSON struct {
	ID      string    `json:"id"`
	Account string    `json:"account"`
	Amount  llm.Money `json:"amount"`
	Total   llm.Money `json:"total"`
	Note    string    `json:"note"`
	Time    string    `json:"time"`
}

// printCredit prints a line for each entry.
func (p *printer) printCredit(entries []manage.CreditEntry) error {
	rows := [][]string{{"TIME", "AMOUNT", "TOTAL", "ID", "NOTE"}}
	for i := range entries {
		e := &entries[i]
		j := creditJSON{e.ID, e.Account, e.Amount, e.Total, e.Note, keytext.FormatTime(e.Time)}
		if p.json {
			if err := p.writeJSON(j); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{j.Time, keytext.FormatMoney(j.Amount), keytext.FormatMoney(j.Total), j.ID, j.Note})
	}
	if p.json {
		return nil
	}
	return p.writeTable(rows)
}
