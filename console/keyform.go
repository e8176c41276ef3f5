package console

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/keytext"
	"github.com/llmhttp/llmhttp/manage"
)

// keyFieldNames are the names of the fields of a keyForm. Their values have the
// syntax of the flags of llmhttpctl.
var keyFieldNames = append([]string{"name", "account", "expires", "scopes", "models"}, keytext.LimitNames...)

// A keyForm holds the settings of a key as texts. Only the fields that a person
// changed take effect, so that two people can change different settings at the
// same time.
type keyForm struct {
	Values   map[string]string // by field, as the maps below
	Original map[string]string // the Values when the form was first shown
	Errors   map[string]string
	Scopes   []scopeBox
	admin    bool // whether an administrator sent the form
}

// A formField is what the template of a field shows.
type formField struct {
	Name, Label, Placeholder, Help string
	Value, Original, Error         string
	Focus                          bool // whether it is the first field with an error
}

// Field returns the field with the given name and the texts that describe it.
func (f *keyForm) Field(name, label, placeholder, help string) formField {
	return formField{
		Name: name, Label: label, Placeholder: placeholder, Help: help,
		Value: f.Values[name], Original: f.Original[name], Error: f.Errors[name], Focus: f.firstError() == name,
	}
}

// firstError returns the name of the first field with an error in the order of the page,
// or "" if there is none.
func (f *keyForm) firstError() string {
	for _, name := range keyFieldNames {
		if f.Errors[name] != "" {
			return name
		}
	}
	return ""
}

// errInvalidForm means that the form has Errors.
var errInvalidForm = errors.New("console: the form has mistakes")

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
	for _, name := range keytext.LimitNames {
		fields[name] = keytext.FormatLimit(&p.Limits, name)
	}
	return fields
}

// newKeyForm returns a form with the settings of a key.
func newKeyForm(k *manage.KeyInfo, admin bool) *keyForm {
	params := k.Params()
	fields := keyFields(&params)
	f := &keyForm{Values: fields, Original: fields, Errors: make(map[string]string), admin: admin}
	f.setScopes()
	return f
}

// readKeyForm reads the form that a browser sent.
func readKeyForm(values url.Values, admin bool) *keyForm {
	f := &keyForm{Values: make(map[string]string), Original: make(map[string]string), Errors: make(map[string]string), admin: admin}
	for _, name := range keyFieldNames {
		f.Values[name] = strings.TrimSpace(values.Get(name))
		f.Original[name] = values.Get("was." + name)
	}
	scopes := values["scopes"]
	switch {
	case slices.Contains(scopes, "all"):
		f.Values["scopes"] = "all"
	case len(scopes) == 0 && f.Original["scopes"] != "": // the form has checkboxes, and none is checked
		f.Values["scopes"] = "none"
	default:
		f.Values["scopes"] = strings.Join(scopes, ",")
	}
	f.setScopes()
	return f
}

// setScopes sets a checkbox for each scope of the API and for other scopes of the
// key.
func (f *keyForm) setScopes() {
	checked := strings.Split(f.Values["scopes"], ",")
	names := []string{"all"}
	for _, e := range llmhttp.Scopes() {
		names = append(names, string(e))
	}
	for _, name := range strings.Split(f.Original["scopes"], ",") {
		if name != "" && name != "none" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		f.Scopes = append(f.Scopes, scopeBox{name, slices.Contains(checked, name)})
	}
}

// apply sets the settings in p whose fields were changed and that the person may
// change. If a field is not valid, it sets Errors and returns errInvalidForm.
func (f *keyForm) apply(p *manage.KeyParams, now time.Time) error {
	clear(f.Errors)
	for _, name := range keyFieldNames {
		permitted := f.admin || name == "name" || name == "expires"
		value := f.Values[name]
		if !permitted || value == f.Original[name] {
			continue
		}
		if err := f.applyField(p, name, value, now); err != nil {
			f.Errors[name] = err.Error()
		}
	}
	if len(f.Errors) > 0 {
		return errInvalidForm
	}
	return nil
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
		p.Scopes, err = f.parseScopes(value)
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

func (f *keyForm) parseScopes(value string) ([]llmhttp.Scope, error) {
	known := llmhttp.Scopes()
	for _, box := range f.Scopes {
		known = append(known, llmhttp.Scope(box.Scope))
	}
	return keytext.ParseList(value, known...)
}

// maxText is the maximum length of a name or an account in bytes.
const maxText = 512

// checkText returns an error if s is too long or is not text.
func checkText(s string) error {
	if len(s) > maxText || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return fmt.Errorf("enter at most %d bytes of text", maxText)
	}
	return nil
}

// status returns the status of a reply that shows the form.
func (f *keyForm) status() int {
	if len(f.Errors) > 0 {
		return http.StatusUnprocessableEntity
	}
	return http.StatusOK
}

// describeChange lists the settings that differ, for the audit log.
func describeChange(before, after *manage.KeyParams) string {
	var changes []string
	from, to := keyFields(before), keyFields(after)
	for _, name := range keyFieldNames {
		if from[name] != to[name] {
			changes = append(changes, name+": "+quoteValue(from[name])+" to "+quoteValue(to[name]))
		}
	}
	return strings.Join(changes, "; ")
}

func quoteValue(s string) string {
	if s == "" {
		return "none"
	}
	return strconv.Quote(s)
}
