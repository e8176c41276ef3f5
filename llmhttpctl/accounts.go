package main

import (
	"context"
	"flag"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/manage/keytext"
	"github.com/llmhttp/llmhttp/sqlstore"
)

// accountFlags adds a flag for each setting of an account to f, and returns those that are named.
func accountFlags(f *flag.FlagSet) *settings[manage.AccountParams] {
	a := new(settings[manage.AccountParams])
	a.add(f, "name", "a `name` for display", func(p *manage.AccountParams, s string) error {
		p.Name = s
		return nil
	})
	f.BoolFunc("prepaid", "the keys may spend the credit of the account and no more; --prepaid=false ends that", func(s string) error {
		prepaid, err := strconv.ParseBool(s)
		*a = append(*a, func(p *manage.AccountParams) error { p.Prepaid = prepaid; return nil })
		return err
	})
	a.addLimits(f, "", " of all keys together", func(p *manage.AccountParams) *llmhttp.Limits { return &p.Limits })
	a.addLimits(f, "user-", " of each end user", func(p *manage.AccountParams) *llmhttp.Limits { return &p.PerUser })
	a.add(f, "label", "a label of what the keys use, `NAME=VALUE`; may be repeated", func(p *manage.AccountParams, s string) error {
		label, err := parseLabel(s)
		p.Labels = append(withoutLabel(p.Labels, label.Name), label)
		return err
	})
	a.add(f, "no-label", "the `name` of a label to remove; may be repeated", func(p *manage.AccountParams, s string) error {
		p.Labels = withoutLabel(p.Labels, s)
		return nil
	})
	return a
}

func withoutLabel(labels []llmhttp.Label, name string) []llmhttp.Label {
	return slices.DeleteFunc(labels, func(l llmhttp.Label) bool { return l.Name == name })
}

func (c *command) createAccount(ctx context.Context, args []string) error {
	f := c.newFlags()
	settings := accountFlags(f)
	id, err := c.parseAccount(f, args)
	if err != nil {
		return err
	}
	var params manage.AccountParams
	if err := settings.apply(&params); err != nil {
		return err
	}
	return c.withStore(ctx, func(s *sqlstore.Store) error {
		if _, err := s.CreateAccount(ctx, id, params); err != nil {
			return err
		}
		return c.showOneAccount(ctx, s, id)
	})
}

func (c *command) updateAccount(ctx context.Context, args []string) error {
	f := c.newFlags()
	settings := accountFlags(f)
	id, err := c.parseAccount(f, args)
	if err != nil {
		return err
	}
	if len(*settings) == 0 {
		return usageErrorf("no flag names a setting to change")
	}
	return c.withStore(ctx, func(s *sqlstore.Store) error {
		if _, err := s.UpdateAccount(ctx, id, settings.apply); err != nil {
			return err
		}
		return c.showOneAccount(ctx, s, id)
	})
}

func (c *command) showAccount(ctx context.Context, args []string) error {
	id, err := c.parseAccount(c.newFlags(), args)
	if err != nil {
		return err
	}
	return c.withStore(ctx, func(s *sqlstore.Store) error { return c.showOneAccount(ctx, s, id) })
}

// parseAccount is parse for a command with the ID of an account as its only operand.
func (c *command) parseAccount(f *flag.FlagSet, args []string) (string, error) {
	operands, err := c.parse(f, "ID", args)
	if err == nil && len(operands) != 1 {
		err = usageErrorf("expected the ID of one account")
	}
	if err != nil {
		return "", err
	}
	return operands[0], nil
}

// changeAccounts returns a command that suspends or resumes each account that its arguments name.
func (c *command) changeAccounts(state string, suspended bool) func(context.Context, []string) error {
	anyID := func(string) error { return nil }
	change := func(ctx context.Context, s *sqlstore.Store, id string) error {
		_, err := s.UpdateAccount(ctx, id, func(p *manage.AccountParams) error { p.Suspended = suspended; return nil })
		return err
	}
	return c.changeEach("an account", anyID, state, change, c.showOneAccount)
}

func (c *command) listAccounts(ctx context.Context, args []string) error {
	f := c.newFlags()
	var q manage.AccountQuery
	f.StringVar(&q.Search, "search", "", "list only accounts that contain this `text` in the ID or name")
	f.StringVar(&q.After, "after", "", "list only accounts after the one with this `ID`")
	limit := limitFlag(f, "accounts")
	if _, err := c.parse(f, "", args); err != nil {
		return err
	}
	return c.withStore(ctx, func(s *sqlstore.Store) error {
		read := func(after string, limit int) ([]manage.AccountInfo, error) {
			q.After, q.Limit = after, limit
			return s.ListAccounts(ctx, q)
		}
		return printPages(&c.out, *limit, q.After, read, func(a *manage.AccountInfo) string { return a.ID }, c.out.printAccounts)
	})
}

// showOneAccount prints the account with the given ID and, if it is prepaid, what it has used.
func (c *command) showOneAccount(ctx context.Context, s *sqlstore.Store, id string) error {
	info, err := s.Account(ctx, id)
	if err != nil {
		return err
	}
	a := newAccountJSON(info)
	if info.Prepaid {
		used, err := readUse(ctx, s, id, info.Subject())
		if err != nil {
			return err
		}
		left := info.Credit.Sub(used.cost)
		a.Used, a.Left = &used.cost, &left
	}
	return c.out.printAccount(&info, a)
}

// accountJSON is the JSON form of an account. Limits have the syntax of the flags.
type accountJSON struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Status    string            `json:"status"`
	Limits    limitsJSON        `json:"limits"`
	PerUser   limitsJSON        `json:"user_limits"`
	Labels    map[string]string `json:"labels"`
	Prepaid   bool              `json:"prepaid"`
	Credit    llm.Money         `json:"credit"`
	Used      *llm.Money        `json:"used,omitempty"` // nil unless the account is prepaid and shown alone
	Left      *llm.Money        `json:"left,omitempty"` // Credit less Used; nil as Used
	CreatedAt string            `json:"created_at"`
}

func newAccountJSON(a manage.AccountInfo) *accountJSON {
	labels := make(map[string]string, len(a.Labels))
	for _, l := range a.Labels {
		labels[l.Name] = l.Value
	}
	return &accountJSON{
		ID: a.ID, Name: a.Name, Status: string(a.Status()), Limits: newLimitsJSON(&a.Limits), PerUser: newLimitsJSON(&a.PerUser), Labels: labels,
		Prepaid: a.Prepaid, Credit: a.Credit, CreatedAt: keytext.FormatTime(a.Created),
	}
}

// labelsText returns the labels as in the flag of each.
func (a *accountJSON) labelsText() string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(a.Labels)) {
		texts = append(texts, name+"="+a.Labels[name])
	}
	return strings.Join(texts, " ")
}

// printAccounts prints a line for each account.
func (p *printer) printAccounts(accounts []manage.AccountInfo) error {
	rows := [][]string{{"ID", "NAME", "STATUS", "CREDIT", "LIMITS", "USER LIMITS", "LABELS", "CREATED"}}
	for _, info := range accounts {
		a := newAccountJSON(info)
		if p.json {
			if err := p.writeJSON(a); err != nil {
				return err
			}
			continue
		}
		credit := ""
		if a.Prepaid {
			credit = keytext.FormatMoney(a.Credit)
		}
		rows = append(
			rows,
			[]string{a.ID, a.Name, a.Status, credit, limitsText(&info.Limits), limitsText(&info.PerUser), a.labelsText(), a.CreatedAt},
		)
	}
	if p.json {
		return nil
	}
	return p.writeTable(rows)
}

// printAccount prints all fields of an account, of which a is the JSON form.
func (p *printer) printAccount(info *manage.AccountInfo, a *accountJSON) error {
	if p.json {
		return p.writeJSON(a)
	}
	rows := append([][]string{{"id", a.ID}, {"name", a.Name}, {"status", a.Status}}, limitRows("", &info.Limits)...)
	rows = append(rows, limitRows("user-", &info.PerUser)...)
	if labels := a.labelsText(); labels != "" {
		rows = append(rows, []string{"labels", labels})
	}
	if a.Prepaid || a.Credit != 0 {
		rows = append(rows, []string{"prepaid", strconv.FormatBool(a.Prepaid)}, []string{"credit", keytext.FormatMoney(a.Credit)})
	}
	if a.Used != nil {
		rows = append(rows, []string{"used", keytext.FormatMoney(*a.Used)}, []string{"left", keytext.FormatMoney(*a.Left)})
	}
	return p.writeTable(append(rows, []string{"created", a.CreatedAt}))
}

// A use is what a key or an account has used.
type use struct {
	from   time.Time
	tokens int64
	cost   llm.Money
}

// readUse returns what counts toward the quota of a subject of an account.
func readUse(ctx context.Context, s *sqlstore.Store, account string, subject llmhttp.Subject) (u use, err error) {
	now := time.Now()
	u.from = subject.Limits.Quota.Start(now)
	sums, err := s.Query(
		ctx,
		llmhttp.UsageQuery{Account: account, Subject: subject.ID, From: u.from, To: now.UTC().Truncate(day).Add(2 * day)},
	)
	for i := range sums {
		u.tokens += sums[i].Units.Tokens()
		u.cost = u.cost.Add(sums[i].Cost.Total())
	}
	return u, err
}
