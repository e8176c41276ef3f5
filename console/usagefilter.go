// The query of the page of usage.

package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console/internal/pages"
	"github.com/llmhttp/llmhttp/manage"
)

// maxDays is the length of the longest period.
const maxDays = 366

// A usageFilter selects usage. Its form is the query of the usage pages.
type usageFilter struct {
	From, To time.Time // midnights in UTC; To is the last day
	Account  string
	KeyID    string
	Model    string
	User     string // an end user
	Label    string // the name of a label; with = and a value, only records with these are selected
	By       string // the table: day, model, key, account, user or label
	Measure  string // what the chart shows: see isMeasure

	Key *manage.KeyInfo // the key KeyID; nil if it does not exist or the user does not see it
}

// readFilter reads the query of a usage page. The result selects only what the
// user may see.
func (u *usagePages) readFilter(q *request) (f usageFilter, err error) {
	if u.reports.store == nil {
		return f, errNotFound
	}
	query := q.r.URL.Query()
	if err := f.readPeriod(query); err != nil {
		return f, err
	}
	f.By, f.Measure = "day", "tokens"
	if by := query.Get("by"); slices.Contains([]string{"model", "key", "account", "user", "label"}, by) {
		f.By = by
	}
	if measure := query.Get("measure"); isMeasure(measure) {
		f.Measure = measure
	}
	f.Account, f.KeyID = strings.TrimSpace(query.Get("account")), strings.TrimSpace(query.Get("key"))
	f.Model, f.User, f.Label = strings.TrimSpace(
		query.Get("model"),
	), strings.TrimSpace(
		query.Get("user"),
	), strings.TrimSpace(
		query.Get("label"),
	)
	if f.By == "label" && f.Label == "" {
		f.By = "day"
	}
	if !q.user.Admin {
		f.Account = q.user.Account
		if f.By == "account" {
			f.By = "day"
		}
	}
	if f.KeyID != "" {
		if info, err := q.findKey(u.keys, f.KeyID); err == nil {
			f.Key = &info
		}
	}
	return f, nil
}

// readPeriod sets From and To. The default is the last defaultDays days.
func (f *usageFilter) readPeriod(query url.Values) (err error) {
	if f.To, err = readDate(query.Get("to"), time.Now().UTC().Truncate(day)); err != nil {
		return err
	}
	if f.From, err = readDate(query.Get("from"), f.To.Add(-(defaultDays-1)*day)); err != nil {
		return err
	}
	if f.From.After(f.To) || f.To.Sub(f.From) >= maxDays*day {
		return &pageError{http.StatusBadRequest, "Choose a period of 1 to 366 days."}
	}
	return nil
}

func readDate(text string, byDefault time.Time) (time.Time, error) {
	if text == "" {
		return byDefault, nil
	}
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return t, &pageError{http.StatusBadRequest, "A date must have the form YYYY-MM-DD."}
	}
	return t, nil
}

// label returns the name in f.Label, and the label to select, which is zero if there is none.
func (f *usageFilter) label() (name string, selected llmhttp.Label) {
	name, value, selects := strings.Cut(f.Label, "=")
	if name = strings.TrimSpace(name); selects {
		selected = llmhttp.Label{Name: name, Value: strings.TrimSpace(value)}
	}
	return name, selected
}

// SelectsDetail reports whether f selects by end user or label, so that older usage may be missing.
func (f *usageFilter) SelectsDetail() bool {
	_, label := f.label()
	return f.User != "" || label.Name != ""
}

// query returns the query of the page for f. Only administrators choose the account.
func (f usageFilter) query(admin bool) string {
	v := url.Values{"from": {pages.FormatDate(f.From)}, "to": {pages.FormatDate(f.To)}, "by": {f.By}, "measure": {f.Measure}}
	if f.Account != "" && admin {
		v.Set("account", f.Account)
	}
	if f.KeyID != "" {
		v.Set("key", f.KeyID)
	}
	for name, value := range map[string]string{"model": f.Model, "user": f.User, "label": f.Label} {
		if value != "" {
			v.Set(name, value)
		}
	}
	return "?" + v.Encode()
}
