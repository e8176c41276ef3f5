// Settings as texts, of which those that were changed take effect.

package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage/keytext"
)

// A form holds settings as texts. Only the fields that a person changed take effect, so that
// two people can change different settings at the same time.
type form struct {
	names    []string          // of the fields, in the order of the page
	Values   map[string]string // by field, as the maps below
	Original map[string]string // the Values when the form was first shown
	Errors   map[string]string
}

// A formField is what the template of a field shows.
type formField struct {
	Name, Label, Placeholder, Help string
	Value, Original, Error         string
	Focus                          bool // whether it is the first field with an error
}

// newForm returns a form that shows fields.
func newForm(names []string, fields map[string]string) form {
	return form{names: names, Values: fields, Original: fields, Errors: make(map[string]string)}
}

// readForm reads the form that a browser sent.
func readForm(names []string, values url.Values) form {
	f := form{names: names, Values: make(map[string]string), Original: make(map[string]string), Errors: make(map[string]string)}
	for _, name := range names {
		f.Values[name] = strings.TrimSpace(values.Get(name))
		f.Original[name] = values.Get("was." + name)
	}
	return f
}

// Field returns the field with the given name and the texts that describe it.
func (f *form) Field(name, label, placeholder, help string) formField {
	return formField{
		Name: name, Label: label, Placeholder: placeholder, Help: help,
		Value: f.Values[name], Original: f.Original[name], Error: f.Errors[name], Focus: f.firstError() == name,
	}
}

// firstError returns the name of the first field with an error in the order of the page,
// or "" if there is none.
func (f *form) firstError() string {
	for _, name := range f.names {
		if f.Errors[name] != "" {
			return name
		}
	}
	return ""
}

// errInvalidForm means that the form has Errors.
var errInvalidForm = errors.New("console: the form has mistakes")

// apply calls set for each field that was changed. If set returns errors, it sets Errors
// and returns errInvalidForm.
func (f *form) apply(set func(name, value string) error) error {
	clear(f.Errors)
	for _, name := range f.names {
		if value := f.Values[name]; value != f.Original[name] {
			f.fail(name, set(name, value))
		}
	}
	return f.err()
}

// fail sets the error of a field, unless err is nil or the field has one already.
func (f *form) fail(name string, err error) {
	if err != nil && f.Errors[name] == "" {
		f.Errors[name] = strings.TrimPrefix(err.Error(), "llmhttp: ")
	}
}

// err returns errInvalidForm if f has Errors.
func (f *form) err() error {
	if len(f.Errors) > 0 {
		return errInvalidForm
	}
	return nil
}

// status returns the status of a reply that shows the form.
func (f *form) status() int {
	if len(f.Errors) > 0 {
		return http.StatusUnprocessableEntity
	}
	return http.StatusOK
}

// describeFields lists the fields that differ, for the audit log.
func describeFields(names []string, from, to map[string]string) string {
	var changes []string
	for _, name := range names {
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

// maxText is the maximum length of a name or an account in bytes.
const maxText = 512

// checkText returns an error if s is too long or is not text.
func checkText(s string) error {
	if len(s) > maxText || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return fmt.Errorf("enter at most %d bytes of text", maxText)
	}
	return nil
}

// limitTexts describe the fields of limits, by the names of keytext.LimitNames.
var limitTexts = map[string]struct{ label, help string }{
	"requests":              {"Requests", "Such as 60/min or 60/min,burst=10."},
	"tokens":                {"Tokens", "Such as 20k/min."},
	"quota":                 {"Quota", "Tokens or dollars in a long period, such as 1M/month, 20usd/month or 1M/30d."},
	"max-completion-tokens": {"Tokens of a completion", "Such as 4000. A negative number permits none."},
	"concurrent":            {"Concurrent requests", "Such as 4. A negative number permits none."},
}

// LimitFields returns the fields of limits, whose names begin with prefix.
func (f *form) LimitFields(prefix string) (fields []formField) {
	for _, name := range keytext.LimitNames() {
		fields = append(fields, f.Field(prefix+name, limitTexts[name].label, "none", limitTexts[name].help))
	}
	return fields
}

// limitFieldNames returns the names of the fields of limits.
func limitFieldNames(prefix string) (names []string) {
	for _, name := range keytext.LimitNames() {
		names = append(names, prefix+name)
	}
	return names
}

// addLimits adds the texts of limits to fields.
func addLimits(fields map[string]string, prefix string, l *llmhttp.Limits) {
	for _, name := range keytext.LimitNames() {
		fields[prefix+name] = keytext.FormatLimit(l, name)
	}
}
