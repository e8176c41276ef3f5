// Parameters that the model of a target does not take.

package route

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// ParamRules say what happens to parameters that the model of a target does not take. They have
// the names that members of a request have in JSON, in OpenAI's API whatever the client
// uses: "max_tokens", or "top_k" in Extra. Other members than those of the request itself have no
// rules. A parameter that the client has not set, or has set to null, needs none.
//
// The reply has the header X-Dropped-Params with the parameters that were dropped, and
// X-Renamed-Params with those that have another name for the model, such as
// "max_tokens=max_completion_tokens". Several are separated by commas. The headers are those of the
// target that was tried last, so one is empty if only an earlier target had something to tell. They
// are missing if a keep-alive has begun the reply before the target was tried.
type ParamRules struct {
	// Rename maps names to those under which the model takes the parameters. If the client has
	// set both, the new name keeps its value and the other one is dropped.
	Rename map[string]string

	// Drop lists parameters that are left out.
	Drop []string

	// Refuse lists parameters with which the target is not used for a request. If no other
	// target is left, the client gets a 400 that names the parameter.
	Refuse []string
}

// The headers of replies that tell how parameters were changed.
const (
	headerDropped = "X-Dropped-Params"
	headerRenamed = "X-Renamed-Params"
)

// clone returns a copy of r, or nil if there are no rules.
func (r *ParamRules) clone() *ParamRules {
	if len(r.Rename)+len(r.Drop)+len(r.Refuse) == 0 {
		return nil
	}
	return &ParamRules{maps.Clone(r.Rename), slices.Clone(r.Drop), slices.Clone(r.Refuse)}
}

// requiredParams are parameters without which a request has no meaning.
var requiredParams = []string{"model", "messages", "prompt", "input", "file", "image", "images", "query", "documents"}

// check returns an error if a rule has no meaning. It calls the rules field.
func (r *ParamRules) check(field string) error {
	seen := make(map[string]string) // the field of the rule for a name
	add := func(name, field string) error {
		switch {
		case name == "":
			return fmt.Errorf("route: %s: the name of a parameter must not be empty", field)
		case slices.Contains(requiredParams, name):
			return fmt.Errorf("route: %s: the parameter %q cannot be changed", field, name)
		case seen[name] != "":
			return fmt.Errorf("route: %s: %s has a rule for %q too", field, seen[name], name)
		}
		seen[name] = field
		return nil
	}
	for _, list := range []struct {
		field string
		names []string
	}{{"drop", r.Drop}, {"refuse", r.Refuse}, {"rename", slices.Sorted(maps.Keys(r.Rename))}} {
		for _, name := range list.names {
			if err := add(name, field+"."+list.field); err != nil {
				return err
			}
		}
	}
	for _, from := range slices.Sorted(maps.Keys(r.Rename)) {
		if err := add(r.Rename[from], fmt.Sprintf("%s.rename[%q]", field, from)); err != nil {
			return err
		}
	}
	return nil
}

// refusal returns the error for a request with a parameter that is refused, or nil. r may be nil.
func (r *ParamRules) refusal(body any) error {
	if r == nil {
		return nil
	}
	for _, name := range r.Refuse {
		if p := findParam(body, name); p.isSet() {
			e := llm.Errorf(
				http.StatusBadRequest,
				"unsupported_parameter",
				"Unsupported parameter: '%s' is not supported with this model.",
				name,
			)
			e.Param = name
			return e
		}
	}
	return nil
}

// apply changes the parameters of a request, which is a pointer to a struct. It returns what the
// headers tell.
func (r *ParamRules) apply(body any) (dropped, renamed []string, err error) {
	for _, name := range r.Drop {
		if p := findParam(body, name); p.isSet() {
			p.remove()
			dropped = append(dropped, name)
		}
	}
	for _, from := range slices.Sorted(maps.Keys(r.Rename)) {
		p, to := findParam(body, from), findParam(body, r.Rename[from])
		switch {
		case !p.isSet():
		case to.isSet():
			p.remove()
			dropped = append(dropped, from)
		default:
			if err := to.set(p); err != nil {
				return nil, nil, &llm.Error{Status: http.StatusBadRequest, Code: "invalid_type", Param: from, Err: err,
					Message: fmt.Sprintf("Invalid type for '%s'.", from)}
			}
			p.remove()
			renamed = append(renamed, from+"="+r.Rename[from])
		}
	}
	if checked, ok := body.(interface{ Validate() error }); ok && len(renamed) > 0 {
		err = checked.Validate() // a member of Extra that has become a parameter was not checked before
	}
	return dropped, renamed, err
}

// A param is a parameter of a request: a field, or a member of Extra.
type param struct {
	name  string
	field reflect.Value // the zero Value if it is a member of Extra
	extra *llm.Extra
}

// findParam returns the parameter of a request, which is a pointer to a struct, or nil.
func findParam(body any, name string) param {
	p := param{name: name, extra: new(llm.Extra)}
	v := reflect.Indirect(reflect.ValueOf(body))
	if v.Kind() != reflect.Struct {
		return p
	}
	if p.field = fieldOf(v, name); p.field.IsValid() {
		return p
	}
	if extra := v.FieldByName("Extra"); extra.IsValid() && extra.CanAddr() {
		if e, ok := extra.Addr().Interface().(*llm.Extra); ok {
			p.extra = e
		}
	}
	return p
}

// fieldOf returns the field of a struct, or of one embedded in it, whose name in JSON is name, or the zero Value.
func fieldOf(v reflect.Value, name string) reflect.Value {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			return v.Field(i)
		}
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			if field := fieldOf(v.Field(i), name); field.IsValid() {
				return field
			}
		}
	}
	return reflect.Value{}
}

func (p param) isSet() bool {
	if p.field.IsValid() {
		return !p.field.IsZero()
	}
	raw := (*p.extra)[p.name]
	return raw != nil && string(raw) != "null"
}

func (p param) remove() {
	if p.field.IsValid() {
		p.field.SetZero()
		return
	}
	delete(*p.extra, p.name)
}

// set sets p to the value of another parameter.
func (p param) set(from param) error {
	if p.field.IsValid() && from.field.IsValid() && p.field.Type() == from.field.Type() {
		p.field.Set(from.field)
		return nil
	}
	raw := (*from.extra)[from.name]
	if from.field.IsValid() {
		var err error
		if raw, err = json.Marshal(from.field.Interface()); err != nil {
			return err
		}
	}
	if p.field.IsValid() {
		return json.Unmarshal(raw, p.field.Addr().Interface())
	}
	if *p.extra == nil {
		*p.extra = make(llm.Extra)
	}
	(*p.extra)[p.name] = raw
	return nil
}

// changeParams applies the rules of the target to a copy of the request, which is a pointer to a
// struct, and tells the client what was changed.
func (t *try) changeParams(ctx context.Context, body any) error {
	var dropped, renamed []string
	if t.target.params != nil {
		var err error
		if dropped, renamed, err = t.target.params.apply(body); err != nil {
			return err
		}
	}
	t.call.tell(ctx, headerDropped, dropped, &t.call.toldDropped)
	t.call.tell(ctx, headerRenamed, renamed, &t.call.toldRenamed)
	return nil
}

// tell sets a header of the reply to a list of parameters. Told reports whether an earlier try has
// set it.
func (c *call) tell(ctx context.Context, header string, params []string, told *bool) {
	if len(params) == 0 && !*told {
		return
	}
	*told = true
	// It fails if the reply has begun with a keep-alive, or if there is no Handler.
	_ = llmhttp.SetReplyHeader(ctx, header, strings.Join(params, ", "))
}
