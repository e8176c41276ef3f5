package main

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/manage/keytext"
	"github.com/llmhttp/llmhttp/sqlstore"
)

// accountFlags returns a flag for each setting of an account, which adds to a.
func accountFlags(a *settings[manage.AccountParams]) []cli.Flag {
	return slices.Concat([]cli.Flag{
		a.flag("name", "a `name` for display", func(p *manage.AccountParams, s string) error { p.Name = s; return nil }),
		&cli.BoolFlag{
			Name: "prepaid", Usage: "the keys may spend the credit of the account and no more; --prepaid=false ends that", HideDefault: true,
			Validator: func(prepaid bool) error {
				*a = append(*a, func(p *manage.AccountParams) error { p.Prepaid = prepaid; return nil })
				return nil
			},
		},
	}, a.limits("", " of all keys together", func(p *manage.AccountParams) *llmhttp.Limits { return &p.Limits }),
		a.limits("user-", " of each end user", func(p *manage.AccountParams) *llmhttp.Limits { return &p.PerUser }),
		[]cli.Flag{
			a.flag("label", "a label of what the keys use, `NAME=VALUE`; may be repeated", func(p *manage.AccountParams, s string) error {
				label, err := parseLabel(s)
				p.Labels = append(withoutLabel(p.Labels, label.Name), label)
				return err
			}),
			a.flag("no-label", "the `name` of a label to remove; may be repeated", func(p *manage.AccountParams, s string) error {
				p.Labels = withoutLabel(p.Labels, s)
				return nil
			}),
		})
}

func withoutLabel(labels []llmhttp.Label, name string) []llmhttp.Label {
	return slices.DeleteFunc(labels, func(l llmhttp.Label) bool { return l.Name == name })
}

func (c *command) createAccount() *cli.Command {
	var settings settings[manage.AccountParams]
	return c.store(&cli.Command{
		Name: "create", ArgsUsage: "ID", Usage: "create an account, whose keys share limits and credit", Flags: accountFlags(&settings),
	}, nil, func(ctx context.Context, s *sqlstore.Store, ids []string) error {
		var params manage.AccountParams
		if err := settings.apply(&params); err != nil {
			return err
		}
		if _, err := s.CreateAccount(ctx, ids[0], params); err != nil {
			return err
		}
		return c.showOneAccount(ctx, s, ids[0])
	})
}

func (c *command) updateAccount() *cli.Command {
	var settings settings[manage.AccountParams]
	return c.store(&cli.Command{
		Name: "update", ArgsUsage: "ID", Usage: "change the settings that the flags name", Flags: accountFlags(&settings),
	}, settings.check, func(ctx context.Context, s *sqlstore.Store, ids []string) error {
		if _, err := s.UpdateAccount(ctx, ids[0], settings.apply); err != nil {
			return err
		}
		return c.showOneAccount(ctx, s, ids[0])
	})
}

func (c *command) showAccount() *cli.Command {
	return c.store(&cli.Command{
		Name: "show", ArgsUsage: "ID", Usage: "print the settings of an account, and what is left of its credit",
	}, nil, func(ctx context.Context, s *sqlstore.Store, ids []string) error {
		return c.showOneAccount(ctx, s, ids[0])
	})
}

// changeAccounts returns a command that suspends or resumes each account that its arguments name.
func (c *command) changeAccounts(name, usage, state string, suspended bool) *cli.Command {
	change := func(ctx context.Context, s *sqlstore.Store, id string) error {
		_, err := s.UpdateAccount(ctx, id, func(p *manage.AccountParams) error { p.Suspended = suspended; return nil })
		return err
	}
	return c.changeEach(name, usage, state, change, c.showOneAccount)
}

func (c *command) listAccounts() *cli.Command {
	var q manage.AccountQuery
	var limit int
	return c.store(&cli.Command{
		Name: "list", Usage: "list accounts, oldest first",
		Flags: append(listFlags(&q.After, &limit, "accounts"), textFlag("search", &q.Search, "list only accounts that contain this `text` in the ID or name")),
	}, nil, func(ctx context.Context, s *sqlstore.Store, _ []string) error {
		read := func(after string, limit int) ([]manage.AccountInfo, error) {
			q.After, q.Limit = after, limit
			return s.ListAccounts(ctx, q)
		}
		return printPages(&c.out, limit, q.After, read, func(a *manage.AccountInfo) string { return a.ID }, c.out.printAccounts)
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
