// The settings of a key as a form.

package console

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/manage/keytext"
)

// keyFieldNames are the names of the fields of a keyForm. Their values have the
// syntax of the flags of llmhttpctl.
var keyFieldNames = append([]string{"name", "account", "expires", "scopes", "models"}, limitFieldNames("")...)

// A keyForm holds the settings of a key.
type keyForm struct {
	form
	Scopes      []scopeBox
	OtherScopes string // names that were entered and are no scopes, which the form shows again
	admin       bool   // whether an administrator sent the form
}

// A scopeBox is a checkbox for a scope.
type scopeBox struct {
	Scope   string
	Checked bool
}

// keyFields returns the texts of the settings in p.
func keyFields(p *manage.KeyParams) map[string]string {
	fields := map[string]string{
		"name": p.Name, "account": p.Account, "expires": keytext.FormatTime(p.Expires),
		"scopes": keytext.FormatList(p.Scopes), "models": keytext.FormatList(p.Models),
	}
	addLimits(fields, "", &p.Limits)
	return fields
}

// newKeyForm returns a form with the settings of a key.
func newKeyForm(k *manage.KeyInfo, admin bool) *keyForm {
	params := k.Params()
	f := &keyForm{form: newForm(keyFieldNames, keyFields(&params)), admin: admin}
	f.setScopes()
	return f
}

// readKeyForm reads the form that a browser sent.
func readKeyForm(values url.Values, admin bool) *keyForm {
	f := &keyForm{form: readForm(keyFieldNames, values), admin: admin}
	scopes := slices.DeleteFunc(slices.Clone(values["scopes"]), func(s string) bool { return strings.TrimSpace(s) == "" })
	switch {
	case slices.Contains(scopes, "all"):
		f.Values["scopes"] = "all"
	case len(scopes) == 0 && f.Original["scopes"] != "": // the form has checkboxes, and none is checked or entered
		f.Values["scopes"] = "none"
	default:
		f.Values["scopes"] = strings.Join(scopes, ",")
	}
	f.setScopes()
	return f
}

// setScopes sets a checkbox for each scope of the endpoints of llmhttp, and for other scopes of the
// key and of the form.
func (f *keyForm) setScopes() {
	checked, before := splitScopes(f.Values["scopes"]), splitScopes(f.Original["scopes"])
	names := []string{"all"}
	for _, e := range llmhttp.Scopes() {
		names = append(names, string(e))
	}
	var others []string
	for i, name := range slices.Concat(before, checked) {
		switch {
		case slices.Contains(names, name):
		case i < len(before) || llmhttp.Scope(name).Validate() == nil:
			names = append(names, name)
		case !slices.Contains(others, name):
			others = append(others, name)
		}
	}
	f.OtherScopes = strings.Join(others, ", ")
	for _, name := range names {
		f.Scopes = append(f.Scopes, scopeBox{name, slices.Contains(checked, name)})
	}
}

// splitScopes returns the items of a list of scopes, without the word none.
func splitScopes(s string) (names []string) {
	for name := range strings.SplitSeq(s, ",") {
		if name = strings.TrimSpace(name); name != "" && name != "none" {
			names = append(names, name)
		}
	}
	return names
}

// apply sets the settings in p whose fields were changed and that the person may
// change. If a field is not valid, it sets Errors and returns errInvalidForm.
func (f *keyForm) apply(p *manage.KeyParams, now time.Time) error {
	return f.form.apply(func(name, value string) error {
		if !f.admin && name != "name" && name != "expires" {
			return nil
		}
		return f.applyField(p, name, value, now)
	})
}

// applyField sets one setting in p.
func (f *keyForm) applyField(p *manage.KeyParams, name, value string, now time.Time) (err error) {
	switch name {
	case "name":
		p.Name, err = value, checkText(value)
	case "account":
		p.Account, err = value, checkText(value)
	case "expires":
		return f.applyExpiry(p, value, now)
	case "scopes":
		p.Scopes, err = keytext.ParseScopes(value)
	case "models":
		if p.Models, err = keytext.ParseList[string](cmp.Or(value, "all")); err == nil {
			for _, model := range p.Models {
				err = cmp.Or(err, checkText(model))
			}
		}
	default:
		err = keytext.SetLimit(&p.Limits, name, value)
	}
	return err
}

// applyExpiry sets the expiry. Only administrators may set a later one.
func (f *keyForm) applyExpiry(p *manage.KeyParams, value string, now time.Time) error {
	t, err := keytext.ParseExpiry(cmp.Or(value, "never"), now)
	if err != nil {
		return err
	}
	if !f.admin && !p.Expires.IsZero() && (t.IsZero() || t.After(p.Expires)) {
		return fmt.Errorf("you can set %s at the latest", keytext.FormatTime(p.Expires))
	}
	p.Expires = t
	return nil
}

// describeChange lists the settings that differ, for the audit log.
func describeChange(before, after *manage.KeyParams) string {
	return describeFields(keyFieldNames, keyFields(before), keyFields(after))
}
