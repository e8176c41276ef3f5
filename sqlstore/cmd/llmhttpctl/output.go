package main

import (
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/sqlstore"
)

// keyJSON is the JSON form of a key. Limits have the syntax of the flags.
type keyJSON struct {
	ID        string             `json:"id"`
	Account   string             `json:"account"`
	Name      string             `json:"name"`
	Prefix    string             `json:"prefix"`
	Status    string             `json:"status"`
	Scopes    []llmhttp.Endpoint `json:"scopes"` // null means all
	Models    []string           `json:"models"` // null means all
	Limits    limitsJSON         `json:"limits"`
	CreatedAt string             `json:"created_at"`
	UsedAt    string             `json:"last_used_at,omitempty"`
	ExpiresAt string             `json:"expires_at,omitempty"`
	RevokedAt string             `json:"revoked_at,omitempty"`
	Secret    string             `json:"secret,omitempty"`
}

type limitsJSON struct {
	Requests   string `json:"requests,omitempty"`
	Tokens     string `json:"tokens,omitempty"`
	Quota      string `json:"quota,omitempty"`
	Completion int    `json:"max_completion_tokens,omitempty"`
	Concurrent int    `json:"concurrent,omitempty"`
}

// newKeyJSON returns the JSON form of k. The secret is empty unless it is new.
func newKeyJSON(k sqlstore.KeyInfo, secret string) keyJSON {
	return keyJSON{
		ID:      k.ID,
		Account: k.Account,
		Name:    k.Name,
		Prefix:  k.Prefix,
		Status:  status(k),
		Scopes:  k.Scopes,
		Models:  k.Models,
		Limits: limitsJSON{
			Requests:   formatRate(k.Limits.Requests),
			Tokens:     formatRate(k.Limits.Tokens),
			Quota:      formatQuota(k.Limits.Quota),
			Completion: k.Limits.MaxCompletionTokens,
			Concurrent: k.Limits.Concurrent,
		},
		CreatedAt: formatTime(k.Created),
		UsedAt:    formatTime(k.LastUsed),
		ExpiresAt: formatTime(k.Expires),
		RevokedAt: formatTime(k.Revoked),
		Secret:    secret,
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

// printKeys prints a line for each key.
func (c *command) printKeys(keys []sqlstore.KeyInfo) error {
	rows := [][]string{{"ID", "ACCOUNT", "NAME", "PREFIX", "STATUS", "CREATED", "USED", "EXPIRES"}}
	for _, info := range keys {
		k := newKeyJSON(info, "")
		if c.json {
			if err := c.writeJSON(k); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{k.ID, k.Account, k.Name, k.Prefix, k.Status, k.CreatedAt, k.UsedAt, k.ExpiresAt})
	}
	if c.json {
		return nil
	}
	return c.writeTable(rows)
}

// printKey prints all fields of a key. The secret is empty unless it is new.
func (c *command) printKey(info sqlstore.KeyInfo, secret string) error {
	k := newKeyJSON(info, secret)
	if c.json {
		return c.writeJSON(k)
	}
	rows := [][]string{
		{"id", k.ID}, {"account", k.Account}, {"name", k.Name}, {"prefix", k.Prefix}, {"status", k.Status},
		{"scopes", formatList(k.Scopes)}, {"models", formatList(k.Models)},
	}
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	for _, row := range [][]string{
		{"requests", k.Limits.Requests}, {"tokens", k.Limits.Tokens}, {"quota", k.Limits.Quota}, {"max completion", number(k.Limits.Completion)}, {"concurrent", number(k.Limits.Concurrent)},
		{"created", k.CreatedAt}, {"used", k.UsedAt}, {"expires", k.ExpiresAt}, {"revoked", k.RevokedAt}, {"secret", k.Secret},
	} {
		if row[1] != "" {
			rows = append(rows, row)
		}
	}
	return c.writeTable(rows)
}

// printSecret prints a key that has a new secret.
func (c *command) printSecret(k sqlstore.KeyInfo, secret string) error {
	// SIGPIPE would end the process before it can report that the secret is lost.
	signal.Ignore(syscall.SIGPIPE)
	if err := c.printKey(k, secret); err != nil {
		return fmt.Errorf("%s has a new secret, but it could not be written; rotate or revoke the key: %w", k.ID, err)
	}
	if !c.json {
		fmt.Fprintln(c.stderr, "Keep the secret now: it cannot be shown again.")
	}
	return nil
}

// usageJSON is the JSON form of a sum.
type usageJSON struct {
	Start            string `json:"start"`
	Model            string `json:"model"`
	Requests         int64  `json:"requests"`
	PromptTokens     int64  `json:"prompt_tokens"`
	CompletionTokens int64  `json:"completion_tokens"`
	Images           int64  `json:"images"`
}

func (c *command) printUsage(sums []llmhttp.UsageSum) error {
	rows := [][]string{{"FROM", "MODEL", "REQUESTS", "PROMPT", "COMPLETION", "IMAGES"}}
	for _, u := range sums {
		if c.json {
			err := c.writeJSON(usageJSON{formatTime(u.Start), u.Model, u.Requests, u.PromptTokens, u.CompletionTokens, u.Images})
			if err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{
			u.Start.Format(time.DateOnly), u.Model,
			fmt.Sprint(u.Requests), fmt.Sprint(u.PromptTokens), fmt.Sprint(u.CompletionTokens), fmt.Sprint(u.Images),
		})
	}
	if c.json {
		return nil
	}
	return c.writeTable(rows)
}
