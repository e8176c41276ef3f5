package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/manage/keytext"
	"github.com/llmhttp/llmhttp/sqlstore"
)

// quotaUseJSON is the JSON form of how much of its quota a key has used.
type quotaUseJSON struct {
	ID    string `json:"id"`
	Quota string `json:"quota"` // in the syntax of the flag; empty means none
	Since string `json:"since"` // the start of the period, or the reset if that was later
	Used  int64  `json:"used_tokens"`
	Left  *int64 `json:"left_tokens,omitempty"` // nil without a limit of tokens

	UsedCost llm.Money  `json:"used_cost,omitzero"`
	LeftCost *llm.Money `json:"left_cost,omitempty"` // nil without a limit of money
}

func (c *command) showQuota() *cli.Command {
	reset := &cli.BoolFlag{Name: "reset", Usage: "count from now on"}
	return c.store(&cli.Command{
		Name: "quota", ArgsUsage: "ID", Usage: "print how much of its quota a key has used, or reset that", Flags: []cli.Flag{reset},
	}, nil, func(ctx context.Context, s *sqlstore.Store, ids []string) error {
		if reset.Get() == true {
			if err := resetQuota(ctx, s, ids[0]); err != nil {
				return err
			}
		}
		use, err := readQuotaUse(ctx, s, ids[0])
		if err != nil {
			return err
		}
		return c.out.printQuotaUse(use)
	})
}

// resetQuota makes the quota of a key count from now on.
func resetQuota(ctx context.Context, s *sqlstore.Store, id string) error {
	_, err := s.UpdateKey(ctx, id, func(p *manage.KeyParams) error {
		if p.Limits.Quota.Tokens == 0 && p.Limits.Quota.Cost == 0 {
			return errors.New("the key has no quota")
		}
		p.Limits.Quota.Since = time.Now()
		return nil
	})
	return err
}

// readQuotaUse returns how much of its quota a key has used.
func readQuotaUse(ctx context.Context, s *sqlstore.Store, id string) (*quotaUseJSON, error) {
	info, err := s.Key(ctx, id)
	if err != nil {
		return nil, err
	}
	quota := info.Limits.Quota
	u, err := readUse(ctx, s, info.Account, llmhttp.Subject{ID: llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: id}, Limits: info.Limits})
	if err != nil {
		return nil, err
	}
	used := &quotaUseJSON{ID: id, Quota: keytext.FormatQuota(quota), Since: keytext.FormatTime(u.from), Used: u.tokens, UsedCost: u.cost}
	if quota.Tokens != 0 {
		left := max(int64(quota.Tokens)-used.Used, 0)
		used.Left = &left
	}
	if quota.Cost != 0 {
		left := max(max(quota.Cost, 0).Sub(used.UsedCost), 0)
		used.LeftCost = &left
	}
	return used, nil
}

func (p *printer) printQuotaUse(q *quotaUseJSON) error {
	if p.json {
		return p.writeJSON(q)
	}
	rows := [][]string{{"id", q.ID}, {"quota", q.Quota}, {"since", q.Since}, {"used", fmt.Sprint(q.Used)}}
	if q.Left != nil {
		rows = append(rows, []string{"left", fmt.Sprint(*q.Left)})
	}
	if q.UsedCost != 0 || q.LeftCost != nil {
		rows = append(rows, []string{"cost", keytext.FormatMoney(q.UsedCost)})
	}
	if q.LeftCost != nil {
		rows = append(rows, []string{"cost left", keytext.FormatMoney(*q.LeftCost)})
	}
	return p.writeTable(rows)
}
