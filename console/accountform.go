// The settings of an account as a form.

package console

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console/internal/session"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/manage/keytext"
)

// perUserPrefix begins the names of the fields for the limits of each end user.
const perUserPrefix = "user-"

// accountFieldNames are the names of the fields of an accountForm.
var accountFieldNames = slices.Concat(
	[]string{"id", "name", "labels", "prepaid", "suspended"},
	limitFieldNames(""),
	limitFieldNames(perUserPrefix),
)

// An accountForm holds the settings of an account, and the ID of a new one.
type accountForm struct{ form }

// accountFields returns the texts of the settings in p.
func accountFields(p *manage.AccountParams) map[string]string {
	fields := map[string]string{
		"name":      p.Name,
		"labels":    formatLabels(p.Labels),
		"prepaid":   checkbox(p.Prepaid),
		"suspended": checkbox(p.Suspended),
	}
	addLimits(fields, "", &p.Limits)
	addLimits(fields, perUserPrefix, &p.PerUser)
	return fields
}

// checkbox returns the value that a browser sends of a checkbox.
func checkbox(checked bool) string {
	if checked {
		return "yes"
	}
	return ""
}

// newAccountForm returns a form with the settings in p.
func newAccountForm(p *manage.AccountParams) *accountForm {
	return &accountForm{newForm(accountFieldNames, accountFields(p))}
}

// readAccountForm reads the form that a browser sent.
func readAccountForm(values url.Values) *accountForm {
	return &accountForm{readForm(accountFieldNames, values)}
}

// apply sets the settings in p whose fields were changed. If a field is not valid, it sets
// Errors and returns errInvalidForm.
func (f *accountForm) apply(p *manage.AccountParams) error {
	_ = f.form.apply(func(name, value string) error { return setAccountField(p, name, value) })
	quota := manage.AccountParams{Prepaid: p.Prepaid, Limits: llmhttp.Limits{Quota: p.Limits.Quota}}
	f.fail("quota", withoutField(quota.Validate()))
	return cmp.Or(f.err(), p.Validate())
}

// setAccountField sets one setting in p. The ID is none.
func setAccountField(p *manage.AccountParams, name, value string) (err error) {
	switch name {
	case "id":
	case "name":
		p.Name, err = value, withoutField((&manage.AccountParams{Name: value}).Validate())
	case "labels":
		p.Labels, err = parseLabels(value)
	case "prepaid":
		p.Prepaid = value != ""
	case "suspended":
		p.Suspended = value != ""
	default:
		if limit, ok := strings.CutPrefix(name, perUserPrefix); ok {
			return keytext.SetLimit(&p.PerUser, limit, value)
		}
		err = keytext.SetLimit(&p.Limits, name, value)
	}
	return err
}

// withoutField returns err, which may be nil, without the name of a field at its beginning.
func withoutField(err error) error {
	if err == nil {
		return nil
	}
	_, text, _ := strings.Cut(err.Error(), ": ")
	return errors.New(text)
}

// parseLabels parses labels of the form name=value, separated by commas.
func parseLabels(s string) (labels []llmhttp.Label, err error) {
	if s == "" {
		return nil, nil
	}
	for text := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fmt.Errorf("%q has no value, unlike team=red", strings.TrimSpace(text))
		}
		labels = append(labels, llmhttp.Label{Name: strings.TrimSpace(name), Value: strings.TrimSpace(value)})
	}
	return labels, llmhttp.ValidateLabels(labels)
}

// formatLabels is the inverse of parseLabels, except for labels with commas.
func formatLabels(labels []llmhttp.Label) string {
	texts := make([]string, len(labels))
	for i, l := range labels {
		texts[i] = l.Name + "=" + l.Value
	}
	return strings.Join(texts, ", ")
}

// describeAccountChange lists the settings that differ, for the audit log.
func describeAccountChange(before, after *manage.AccountParams) string {
	return describeFields(accountFieldNames, accountFields(before), accountFields(after))
}

// creditFieldNames are the names of the fields of a form that adds to the credit of an account.
var creditFieldNames = []string{"amount", "note"}

// A creditForm adds to the credit of an account. Entry is the ID of the credit entry, which
// makes it harmless to send the form twice.
type creditForm struct {
	form
	Entry string
}

func newCreditForm() *creditForm {
	return &creditForm{newForm(creditFieldNames, make(map[string]string)), session.NewNonce()}
}

// readCreditForm reads the form that a browser sent.
func readCreditForm(values url.Values) *creditForm {
	return &creditForm{readForm(creditFieldNames, values), values.Get("entry")}
}

// entry returns the entry to add to an account. If a field is not valid, it sets Errors and
// returns errInvalidForm.
func (f *creditForm) entry(a *manage.AccountInfo) (e manage.CreditEntry, err error) {
	e = manage.CreditEntry{ID: "console_" + f.Entry, Account: a.ID, Note: f.Values["note"]}
	f.fail("amount", e.Amount.UnmarshalText([]byte(strings.Replace(f.Values["amount"], "$", "", 1))))
	f.fail("note", withoutField((&manage.CreditEntry{ID: e.ID, Amount: 1, Note: e.Note}).Validate()))
	f.fail("amount", withoutField((&manage.CreditEntry{ID: e.ID, Amount: e.Amount}).Validate()))
	if a.Credit.Add(e.Amount).Sub(e.Amount) != a.Credit {
		f.fail("amount", errors.New("the credit would become too large"))
	}
	return e, f.err()
}
