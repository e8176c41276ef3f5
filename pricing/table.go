// Table and Options: which prices a record is billed by.

package pricing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// Unknown says what [Table.Price] does with a record of a model that has no price.
type Unknown int

const (
	Refuse Unknown = iota // return an error, which refuses a request before it is served
	Free                  // return no cost
)

// Options configure a [Table]. A nil *Options is the zero value.
type Options struct {
	// Unknown is for models without a price. Zero means Refuse. It has no effect if
	// the Table or its Fallback has a "default".
	Unknown Unknown

	// Fallback has the prices of models for which the Table has none. Its accounts are not
	// used. May be nil.
	Fallback *Table

	// Name returns the name under which the price of a record is looked up first, for example
	// one with the Target in front. If it is empty, or has no price, the ServedModel
	// and the Model follow. It must be safe for concurrent use and neither modify nor keep the
	// record. May be nil.
	Name func(*llmhttp.UsageRecord) string
}

// A Table has prices of models. It cannot be changed, and its methods may be called
// concurrently. Make one with [Parse], [ReadFile], [ParseLiteLLM] or [ReadLiteLLMFile].
type Table struct {
	opts     Options
	models   names[*modelPrices]
	byDef    *modelPrices // nil if there is none
	accounts names[factor]
	mistakes []error
}

func newTable(opts *Options) (*Table, error) {
	t := new(Table)
	if opts != nil {
		t.opts = *opts
	}
	if u := t.opts.Unknown; u != Refuse && u != Free {
		return nil, fmt.Errorf("pricing: Options.Unknown is %d, which is neither Refuse nor Free", u)
	}
	return t, nil
}

// ReadFile reads a file for [Parse].
func ReadFile(name string, opts *Options) (*Table, error) { return readFile(name, opts, Parse) }

// ReadLiteLLMFile reads a file for [ParseLiteLLM].
func ReadLiteLLMFile(name string, opts *Options) (*Table, error) {
	return readFile(name, opts, ParseLiteLLM)
}

func readFile(name string, opts *Options, parse func([]byte, *Options) (*Table, error)) (*Table, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("pricing: %w", err)
	}
	t, err := parse(data, opts)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

// Mistakes returns why entries for models cannot be used, each of which names the model and the
// member. To [Table.Price] these models have no price, and it returns that error. Only
// [ParseLiteLLM] leaves such entries in a Table; a host should log them. Those of
// the Fallback are not included. The slice is not to be modified.
func (t *Table) Mistakes() []error { return t.mistakes }

// Price returns what a request costs, for [llmhttp.Options]. It does not change or keep r. A
// record without Units costs nothing.
//
// The price is that of the first of these that has one: Options.Name, r.ServedModel, r.Model,
// the default. An error is an [*llm.Error] that a client may get, and its text for
// logs names the model and what is missing: a 404 if there is no price for the model or for
// what r used, and a 400 if there is none for the size and the quality of images.
func (t *Table) Price(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
	if r.Units.IsZero() {
		return llmhttp.Cost{}, nil
	}
	m := t.pricesOf(r)
	if m == nil {
		if t.opts.Unknown == Free {
			return llmhttp.Cost{}, nil
		}
		return llmhttp.Cost{}, refuse(r, mistakef(served(r), "", "has no price"))
	}
	if m.mistake != nil {
		return llmhttp.Cost{}, refuse(r, m.mistake)
	}
	v := m.at(r.Time)
	if v == nil {
		return llmhttp.Cost{}, refuse(r, mistakef(m.name, "", "%w", errNotYet))
	}
	cost, err := v.cost(r, t.factorOf(r.Account))
	if err != nil {
		return llmhttp.Cost{}, refuse(r, mistakef(m.name, "", "%w", err))
	}
	return cost, nil
}

// Check returns an error that names the models of b that have no price now, whatever Options.Unknown
// says. A program calls it when it starts and when it has read prices or routes again, because a
// model that was renamed, or whose name is an alias, is otherwise found when somebody has used it.
// Check lists the models of b, which may call other servers, and returns the error of that too.
//
// Options.Name gets a record that has only the Model and the Time. Check does not tell whether a price
// is for what the model does: an entry with the price of an image is one.
func (t *Table) Check(ctx context.Context, b llmhttp.Backend) error {
	lister, ok := llmhttp.As[llmhttp.ModelLister](ctx, b)
	if !ok {
		return fmt.Errorf("pricing: the models are not known: the Backend is no ModelLister: %w", errors.ErrUnsupported)
	}
	models, err := lister.ListModels(ctx)
	if err != nil {
		return fmt.Errorf("pricing: the models are not known: %w", err)
	}
	now := time.Now()
	var missing []string
	for i := range models {
		m := t.pricesOf(&llmhttp.UsageRecord{Model: models[i].ID, Time: now})
		if m == nil || m.mistake != nil || m.at(now) == nil {
			missing = append(missing, models[i].ID)
		}
	}
	if missing != nil {
		return fmt.Errorf("pricing: these models have no price: %q", missing)
	}
	return nil
}

// pricesOf returns the prices that r is billed by, or nil.
func (t *Table) pricesOf(r *llmhttp.UsageRecord) *modelPrices {
	if t.opts.Name != nil {
		if name := t.opts.Name(r); name != "" {
			if m := t.find(name); m != nil {
				return m
			}
		}
	}
	if r.ServedModel != "" {
		if m := t.find(r.ServedModel); m != nil {
			return m
		}
	}
	if m := t.find(r.Model); m != nil {
		return m
	}
	for ; t != nil; t = t.opts.Fallback {
		if t.byDef != nil {
			return t.byDef
		}
	}
	return nil
}

// find returns the prices for a name in t or its Fallback, or nil.
func (t *Table) find(name string) *modelPrices {
	for ; t != nil; t = t.opts.Fallback {
		if m, ok := t.models.find(name); ok {
			return m
		}
	}
	return nil
}

func (t *Table) factorOf(account string) factor {
	if f, ok := t.accounts.find(account); ok {
		return f
	}
	return one
}

// served returns the name of the model that r is about.
func served(r *llmhttp.UsageRecord) string {
	if r.ServedModel != "" {
		return r.ServedModel
	}
	return r.Model
}

// refuse returns the error for a client whose request has no price.
func refuse(r *llmhttp.UsageRecord, cause error) error {
	e := llm.ModelNotFound(r.Model)
	if errors.Is(cause, errImages) {
		e = llm.Errorf(http.StatusBadRequest, "invalid_value", "Images of this size and quality are not available from this model.")
		e.Param = "size"
	}
	e.Err = cause
	return e
}

// mistakef returns an error about a member of the entry of a model. An empty member means the
// whole entry.
func mistakef(model, member, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if member != "" {
		return fmt.Errorf("pricing: model %q: member %q: %w", model, member, err)
	}
	return fmt.Errorf("pricing: model %q: %w", model, err)
}
