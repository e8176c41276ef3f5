package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/manage/keytext"
	"github.com/llmhttp/llmhttp/sqlstore"
)

func (c *command) addCredit() *cli.Command {
	e := manage.CreditEntry{ID: "credit_" + strings.ToLower(rand.Text()[:20])}
	return c.store(&cli.Command{
		Name: "add", ArgsUsage: "ID", Usage: "add an amount to the credit of an account", Flags: []cli.Flag{
			parsedFlag("amount", &e.Amount, "the `amount` to add, such as 20usd, or -5usd to correct an entry", keytext.ParseMoney),
			textFlag("note", &e.Note, "a `text` for people"),
			textFlag("id", &e.ID, "the `ID` of the entry, such as that of a payment: adding it again does nothing; the default is random"),
		},
	}, func() error {
		if e.Amount == 0 {
			return usageErrorf("--amount is missing")
		}
		return nil
	}, func(ctx context.Context, s *sqlstore.Store, ids []string) error {
		e.Account = ids[0]
		added, err := s.AddCredit(ctx, e)
		if err != nil {
			return err
		}
		info, err := s.Account(ctx, e.Account)
		if err != nil {
			return err
		}
		if !info.Prepaid {
			fmt.Fprintln(c.out.stderr, "The account is not prepaid: its credit limits nothing.")
		}
		return c.out.printCredit([]manage.CreditEntry{added})
	})
}

func (c *command) listCredit() *cli.Command {
	var q manage.CreditQuery
	var limit int
	return c.store(&cli.Command{
		Name: "list", ArgsUsage: "ID", Usage: "list what was added to the credit of an account, oldest first",
		Flags: append(listFlags(&q.After, &limit, "entries"), &cli.BoolFlag{Name: "newest", Destination: &q.Newest, Usage: "list the newest first"}),
	}, nil, func(ctx context.Context, s *sqlstore.Store, ids []string) error {
		q.Account = ids[0]
		read := func(after string, limit int) ([]manage.CreditEntry, error) {
			q.After, q.Limit = after, limit
			return s.ListCredit(ctx, q)
		}
		return printPages(&c.out, limit, q.After, read, func(e *manage.CreditEntry) string { return e.ID }, c.out.printCredit)
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
