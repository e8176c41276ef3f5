package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/manage/keytext"
	"github.com/llmhttp/llmhttp/sqlstore"
)

const day = 24 * time.Hour

// usageFlags are the flags of the command usage.
type usageFlags struct {
	manage.ReportQuery
	by     string
	totals bool // whether the sums of all models are added up
	csv    bool
}

// A usageLine is a line of the command usage: a sum of a group.
type usageLine struct {
	*manage.ReportRow      // without Sums
	others            bool // it is the sum of all groups without lines
	llmhttp.UsageSum
}

func (c *command) usage() *cli.Command {
	u := usageFlags{by: "day"}
	var last time.Time // the day before u.To
	check := func() error {
		if u.csv && c.out.json {
			return usageErrorf("--csv and --json are two forms of the output: leave one out")
		}
		if !last.IsZero() {
			u.To = last.AddDate(0, 0, 1)
		}
		return u.check()
	}
	return c.store(&cli.Command{Name: "usage", Usage: "print usage by day, model, key, account, end user or label", Flags: []cli.Flag{
		textFlag("account", &u.Account, "the `account`; without it, all accounts"),
		textFlag("key", &u.KeyID, "only the usage of the key with this `ID`"),
		textFlag("model", &u.Model, "only the usage of the model with this `name`, as clients write it"),
		textFlag("user", &u.User, "only the usage of this end `user`"),
		parsedFlag("label", &u.Label, "only the usage with this label, `NAME=VALUE`", parseLabel),
		textFlag("operation", &u.Operation, "only the usage of this `operation`, such as chat or images"),
		textFlag("target", &u.Target, "only the usage of this `target` of the server"),
		textFlag("status", &u.Status, "only the usage of requests with this `status`: succeeded, failed, or the class of an error such as timeout"),
		textFlag("by", &u.by, "the `group` of each line: total, model, key, account, user, or label:NAME for the values of a label; each has a line for each model. "+
			"day, the default, is the total with --interval day"),
		textFlag("interval", &u.Interval, "a line for each `hour, day or month` of each group"),
		parsedFlag("zone", &u.Location, "the time `zone` of dates, days and months, such as Europe/Berlin; the default is UTC", parseZone),
		&cli.BoolFlag{Name: "totals", Destination: &u.totals, Usage: "add up the models: one line for each other group"},
		textFlag("order", &u.Order, "print the largest groups first, by `number`: cost, tokens, requests, or a unit such as images; the default is cost"),
		limitFlag(&u.Limit, 0, "the maximum `number` of groups, of which the largest are printed, and the sum of the others except with --csv; 0 means all"),
		&cli.BoolFlag{Name: "csv", Destination: &u.csv, Usage: "write comma-separated values"},
		parsedFlag("from", &u.From, "the first day, a `date`; the default is 30 days before the end", parseDate),
		parsedFlag("to", &last, "the last day, a `date`, as in the console; the default is today", parseDate),
	}}, check, func(ctx context.Context, s *sqlstore.Store, _ []string) error {
		if u.Account != "" {
			if err := checkAccount(ctx, s, u.Account); err != nil {
				return err
			}
		}
		report, err := s.Report(ctx, u.ReportQuery)
		if err != nil {
			return err
		}
		if !report.Since.IsZero() {
			fmt.Fprintf(c.out.stderr, "What this report needs is known from %s on: older usage is missing.\n", report.Since.Format(time.DateOnly))
		}
		return c.out.printUsage(&u, newUsageLines(&report))
	})
}

// newUsageLines returns the lines of a report.
func newUsageLines(r *manage.Report) (lines []usageLine) {
	for i := range r.Rows {
		for _, sum := range r.Rows[i].Sums {
			lines = append(lines, usageLine{ReportRow: &r.Rows[i], UsageSum: sum})
		}
	}
	for _, sum := range r.Others {
		lines = append(lines, usageLine{ReportRow: new(manage.ReportRow), others: true, UsageSum: sum})
	}
	return lines
}

// parseLabel parses NAME=VALUE.
func parseLabel(s string) (llmhttp.Label, error) {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return llmhttp.Label{}, fmt.Errorf("%s is not a label such as project=search", quote(s))
	}
	return llmhttp.Label{Name: name, Value: value}, nil
}

func parseZone(s string) (*time.Location, error) {
	zone, err := time.LoadLocation(s)
	if err != nil {
		err = fmt.Errorf("%s is not a time zone such as Europe/Berlin", quote(s))
	}
	return zone, err
}

func parseDate(s string) (time.Time, error) {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		err = fmt.Errorf("%q is not a date such as 2030-01-31", s)
	}
	return t, err
}

// check completes the query and returns an error if the flags do not make one.
func (u *usageFlags) check() error {
	loc := cmp.Or(u.Location, time.UTC)
	midnight := func(t time.Time, days int) time.Time {
		year, month, day := t.Date()
		return time.Date(year, month, day+days, 0, 0, 0, 0, loc)
	}
	if u.To.IsZero() {
		u.To = midnight(time.Now().In(loc), 1)
	}
	if u.To = midnight(u.To, 0); u.From.IsZero() {
		u.From = midnight(u.To, -30)
	}
	if u.From = midnight(u.From, 0); !u.From.Before(u.To) {
		return usageErrorf("the range is empty: --from %s is after --to %s", u.From.Format(time.DateOnly), u.To.AddDate(0, 0, -1).Format(time.DateOnly))
	}
	label, byLabel := strings.CutPrefix(u.by, "label:")
	switch {
	case u.by == "total":
		u.By = manage.ByTotal
	case u.by == "day" && (u.Interval == manage.NoInterval || u.Interval == manage.EveryDay):
		u.Interval = manage.EveryDay
	case u.by == "day":
		return usageErrorf("--by day divides by days: use --by total with --interval")
	case slices.Contains([]string{"model", "key", "account", "user"}, u.by):
		u.By = manage.ReportGroup(u.by)
	case byLabel && label != "":
		u.By, u.GroupLabel = manage.ByLabel, label
	default:
		return usageErrorf("--by %s is not day, total, model, key, account, user or label:NAME", quote(u.by))
	}
	if _, err := u.Intervals(); errors.Is(err, errors.ErrUnsupported) {
		return usageErrorf("--interval %s is not hour, day or month", quote(string(u.Interval)))
	} else if err != nil {
		return usageErrorf("there are more than %d intervals: choose a shorter range", manage.MaxIntervals)
	}
	if u.Order == "cost" {
		u.Order = manage.OrderByCost
	}
	if _, err := u.Order.Number(new(llmhttp.UsageSum)); err != nil {
		return usageErrorf("--order %s is not cost, tokens, requests or a unit such as images", quote(string(u.Order)))
	}
	if u.totals && u.By == manage.ByModel {
		return usageErrorf("--totals adds up the models; it cannot be used with --by model")
	}
	u.PerModel = !u.totals && u.By != manage.ByModel
	return nil
}

// checkAccount returns an error if nothing in the store has the account, which is
// probably misspelled.
func checkAccount(ctx context.Context, s *sqlstore.Store, account string) error {
	if _, err := s.Account(ctx, account); !errors.Is(err, manage.ErrAccountNotFound) {
		return err
	}
	keys, err := s.ListKeys(ctx, manage.KeyQuery{Account: account, Limit: 1})
	if err != nil || len(keys) > 0 {
		return err
	}
	sums, err := s.Query(ctx, llmhttp.UsageQuery{Account: account, From: time.UnixMicro(0), To: time.Now().Add(day)})
	if err == nil && len(sums) == 0 {
		err = errors.New("no key and no usage has the account " + printable(account))
	}
	return err
}

// usageJSON is the JSON form of a sum. Only sums of all models have no model, and only those by
// user or label have a user or the value of a label. The sum of all groups without lines has only Others.
type usageJSON struct {
	Start    string  `json:"start"`
	Account  string  `json:"account,omitempty"`
	Key      string  `json:"key,omitempty"`
	User     *string `json:"user,omitempty"`
	Label    *string `json:"label,omitempty"`
	Model    *string `json:"model,omitempty"`
	Others   bool    `json:"others,omitempty"`
	Requests int64   `json:"requests"`
	Unpriced int64   `json:"unpriced"`
	llmhttp.Units
	Cost      llm.Money    `json:"cost"`
	CostParts llmhttp.Cost `json:"cost_parts"`
}

// printUsage prints lines, and in a table their total.
func (p *printer) printUsage(u *usageFlags, lines []usageLine) error {
	switch {
	case p.json:
		return p.printUsageJSON(u, lines)
	case u.csv:
		w := keytext.NewUsageCSV(p.stdout, u.columns())
		for i := range lines {
			if line := &lines[i]; !line.others {
				w.Write(u.values(line), &line.UsageSum)
			}
		}
		return w.Flush()
	}
	return p.writeTable(usageTable(u, lines))
}

// usageTable returns a table with a header, lines, and a row for their total. It
// has the numbers that most hosts use, and others that are not zero in the total.
func usageTable(u *usageFlags, lines []usageLine) [][]string {
	var total llmhttp.UsageSum
	for i := range lines {
		total.Add(lines[i].UsageSum)
	}
	var shown []int // indices in UsageNumbers
	header := u.columns()
	for i, n := range keytext.UsageNumbers(&total) {
		switch n.Name {
		case "requests", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "images":
		default:
			if n.Text == "0" || n.Text == "" || strings.HasPrefix(n.Name, "cost_") {
				continue
			}
		}
		shown = append(shown, i)
		header = append(header, strings.TrimSuffix(n.Name, "_tokens"))
	}
	for i := range header {
		header[i] = strings.ToUpper(header[i])
	}
	row := func(values []string, s *llmhttp.UsageSum) []string {
		numbers := keytext.UsageNumbers(s)
		for _, i := range shown {
			values = append(values, numbers[i].Text)
		}
		return values
	}
	rows := [][]string{header}
	for i := range lines {
		values := u.values(&lines[i])
		if lines[i].others {
			for j, column := range u.columns() {
				if column != "from" && (column != "model" || u.By == manage.ByModel) {
					values[j] = "OTHERS"
				}
			}
		}
		rows = append(rows, row(values, &lines[i].UsageSum))
	}
	if len(lines) > 0 {
		values := []string{"TOTAL"}
		for range len(u.columns()) - 1 {
			values = append(values, " ")
		}
		rows = append(rows, row(values, &total))
	}
	return rows
}

func (p *printer) printUsageJSON(u *usageFlags, lines []usageLine) error {
	for i := range lines {
		l := &lines[i]
		var user, label, model *string
		switch {
		case l.others:
		case u.By == manage.ByUser:
			user = &l.User
		case u.By == manage.ByLabel:
			label = &l.Label
		}
		if u.PerModel || u.By == manage.ByModel && !l.others {
			model = &l.UsageSum.Model
		}
		err := p.writeJSON(usageJSON{
			Start: keytext.FormatTime(l.Start), Account: l.Account, Key: l.KeyID, User: user, Label: label, Model: model, Others: l.others,
			Requests: l.Requests, Unpriced: l.Unpriced, Units: l.Units, Cost: l.Cost.Total(), CostParts: l.Cost,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// columns returns the names of the columns that identify a line.
func (u *usageFlags) columns() (columns []string) {
	if u.Interval != manage.NoInterval || u.By == manage.ByTotal || u.By == manage.ByModel {
		columns = []string{"from"}
	}
	switch u.By {
	case manage.ByKey:
		columns = append(columns, "account", "key")
	case manage.ByAccount:
		columns = append(columns, "account")
	case manage.ByUser:
		columns = append(columns, "account", "user")
	case manage.ByLabel:
		columns = append(columns, "label")
	}
	if u.PerModel || u.By == manage.ByModel {
		columns = append(columns, "model")
	}
	return columns
}

// values returns the values of columns for l.
func (u *usageFlags) values(l *usageLine) (values []string) {
	start := l.Start.Format(time.DateOnly)
	if u.Interval == manage.EveryHour {
		start = l.Start.Format(time.RFC3339)
	}
	all := map[string]string{"from": start, "account": l.Account, "key": l.KeyID, "user": l.User, "label": l.Label, "model": l.UsageSum.Model}
	for _, column := range u.columns() {
		values = append(values, all[column])
	}
	return values
}
