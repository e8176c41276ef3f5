package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/manage/keytext"
)

// A printer writes what commands print: a line of JSON for each value, or a table.
type printer struct {
	stdout, stderr io.Writer
	json           bool
}

func (p *printer) writeJSON(v any) error {
	e := json.NewEncoder(p.stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// writeTable writes rows of cells in aligned columns.
func (p *printer) writeTable(rows [][]string) error {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, text := range row {
			row[i] = printable(text)
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// printable returns text in a form that cannot control a terminal. The empty text becomes "-".
func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return strconv.Quote(text)
	}
	if text == "" {
		return "-"
	}
	return text
}

// keyJSON is the JSON form of a key. Limits have the syntax of the flags.
type keyJSON struct {
	ID        string          `json:"id"`
	Account   string          `json:"account"`
	Name      string          `json:"name"`
	Prefix    string          `json:"prefix"`
	Status    string          `json:"status"`
	Scopes    []llmhttp.Scope `json:"scopes"` // null means all
	Models    []string        `json:"models"` // null means all
	Limits    limitsJSON      `json:"limits"`
	CreatedAt string          `json:"created_at"`
	UsedAt    string          `json:"last_used_at,omitempty"`
	ExpiresAt string          `json:"expires_at,omitempty"`
	RevokedAt string          `json:"revoked_at,omitempty"`
	Secret    string          `json:"secret,omitempty"`
}

type limitsJSON struct {
	Requests   string `json:"requests,omitempty"`
	Tokens     string `json:"tokens,omitempty"`
	Quota      string `json:"quota,omitempty"`
	Completion int    `json:"max_completion_tokens,omitempty"`
	Concurrent int    `json:"concurrent,omitempty"`
}

func newLimitsJSON(l *llmhttp.Limits) limitsJSON {
	return limitsJSON{
		Requests: keytext.FormatRate(l.Requests), Tokens: keytext.FormatRate(l.Tokens), Quota: keytext.FormatQuota(l.Quota),
		Completion: l.MaxCompletionTokens, Concurrent: l.Concurrent,
	}
}

// newKeyJSON returns the JSON form of k. The secret is empty unless it is new.
func newKeyJSON(k manage.KeyInfo, secret string) keyJSON {
	return keyJSON{
		ID:        k.ID,
		Account:   k.Account,
		Name:      k.Name,
		Prefix:    k.Prefix,
		Status:    string(k.Status(time.Now())),
		Scopes:    k.Scopes,
		Models:    k.Models,
		Limits:    newLimitsJSON(&k.Limits),
		CreatedAt: keytext.FormatTime(k.Created),
		UsedAt:    keytext.FormatTime(k.LastUsed),
		ExpiresAt: keytext.FormatTime(k.Expires),
		RevokedAt: keytext.FormatTime(k.Revoked),
		Secret:    secret,
	}
}

// printKeys prints a line for each key.
func (p *printer) printKeys(keys []manage.KeyInfo) error {
	rows := [][]string{{"ID", "ACCOUNT", "NAME", "PREFIX", "STATUS", "LIMITS", "CREATED", "USED", "EXPIRES"}}
	for _, info := range keys {
		k := newKeyJSON(info, "")
		if p.json {
			if err := p.writeJSON(k); err != nil {
				return err
			}
			continue
		}
		rows = append(
			rows,
			[]string{k.ID, k.Account, k.Name, k.Prefix, k.Status, limitsText(&info.Limits), k.CreatedAt, k.UsedAt, k.ExpiresAt},
		)
	}
	if p.json {
		return nil
	}
	return p.writeTable(rows)
}

func limitsText(l *llmhttp.Limits) string {
	var texts []string
	for _, name := range keytext.LimitNames() {
		if text := keytext.FormatLimit(l, name); text != "" {
			texts = append(texts, name+" "+text)
		}
	}
	return strings.Join(texts, "; ")
}

// printKey prints all fields of a key. The secret is empty unless it is new.
func (p *printer) printKey(info manage.KeyInfo, secret string) error {
	k := newKeyJSON(info, secret)
	if p.json {
		return p.writeJSON(k)
	}
	rows := [][]string{
		{"id", k.ID}, {"account", k.Account}, {"name", k.Name}, {"prefix", k.Prefix}, {"status", k.Status},
		{"scopes", keytext.FormatList(k.Scopes)}, {"models", keytext.FormatList(k.Models)},
	}
	rows = append(rows, limitRows("", &info.Limits)...)
	for _, row := range [][]string{
		{"created", k.CreatedAt}, {"used", k.UsedAt}, {"expires", k.ExpiresAt}, {"revoked", k.RevokedAt}, {"secret", k.Secret},
	} {
		if row[1] != "" {
			rows = append(rows, row)
		}
	}
	return p.writeTable(rows)
}

// limitRows returns a row for each limit that is set, with the name of its flag.
func limitRows(prefix string, l *llmhttp.Limits) (rows [][]string) {
	for _, name := range keytext.LimitNames() {
		if text := keytext.FormatLimit(l, name); text != "" {
			rows = append(rows, []string{prefix + name, text})
		}
	}
	return rows
}

// hintScopes prints a warning if a scope of a key may be a typing error. It may also be that of an
// endpoint of the host.
func (p *printer) hintScopes(scopes []llmhttp.Scope) {
	if hint := keytext.ScopeHint(scopes); hint != "" {
		fmt.Fprintf(p.stderr, "llmhttpctl: warning: %s\n", hint)
	}
}

// printSecret prints a key that has a new secret.
func (p *printer) printSecret(k manage.KeyInfo, secret string) error {
	// SIGPIPE would end the process before it can report that the secret is lost.
	signal.Ignore(syscall.SIGPIPE)
	if err := p.printKey(k, secret); err != nil {
		return fmt.Errorf("%s has a new secret, but it could not be written; rotate or revoke the key: %w", k.ID, err)
	}
	if !p.json {
		fmt.Fprintln(p.stderr, "Keep the secret now: it cannot be shown again.")
	}
	return nil
}
