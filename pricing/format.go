// The package's own format, which docs/pricing.md describes.

package pricing

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/internal/lifetime"
)

// A price of a member is for per times 10^units of an item.
type memberPrice struct {
	item  item
	units int
	per   int64 // how many times the rate of the item this price is
}

// priceMembers are the members that are prices, in JSON, besides those of lifetimes of caches.
var priceMembers = map[string]memberPrice{
	"input":        {itemInput, 6, 1},
	"cache_read":   {itemCacheRead, 6, 1},
	"cache_write":  {itemCacheWrite, 6, 1},
	"audio_input":  {itemAudioInput, 6, 1},
	"image_input":  {itemImageInput, 6, 1},
	"output":       {itemOutput, 6, 1},
	"reasoning":    {itemReasoning, 6, 1},
	"audio_output": {itemAudioOutput, 6, 1},
	"image_output": {itemImageOutput, 6, 1},
	"image":        {itemImage, 0, 1},
	"audio_second": {itemAudio, 0, 3600},
	"audio_minute": {itemAudio, 0, 60},
	"audio_hour":   {itemAudio, 0, 1},
	"characters":   {itemCharacter, 6, 1},
	"search_unit":  {itemSearchUnit, 0, 1},
	"request":      {itemRequest, 0, 1},
}

// itemNames are the members of items, for errors about conflicts.
var itemNames = func() map[item]string {
	names := make(map[item]string)
	for name, p := range priceMembers {
		names[p.item] = name
	}
	names[itemAudio], names[itemImages] = "audio", "images"
	return names
}()

// itemName returns the member of an item.
func itemName(i item) string {
	if i > itemImages {
		return cacheWritePrefix + lifetime.Format(time.Duration(i-itemImages)*time.Second)
	}
	return itemNames[i]
}

// cacheWritePrefix precedes the lifetime in the members of prices for tokens that a cache keeps for it.
const cacheWritePrefix = "cache_write_"

// priceMember returns what the member with a name is the price of.
func priceMember(name string) (p memberPrice, ok bool) {
	if of, found := strings.CutPrefix(name, cacheWritePrefix); found {
		d, ok := lifetime.Parse(of)
		return memberPrice{lifetimeItem(d), 6, 1}, ok
	}
	p, ok = priceMembers[name]
	return p, ok
}

// maxMistakes is how many mistakes an error of Parse tells.
const maxMistakes = 20

// Parse reads prices in the format of the package's documentation. It accepts only what it
// understands: the error tells mistakes with the model and the member, and is no
// [*llm.Error]. opts may be nil.
func Parse(data []byte, opts *Options) (*Table, error) {
	t, err := newTable(opts)
	if err != nil {
		return nil, err
	}
	doc, err := readObject(data)
	if err != nil {
		return nil, err
	}
	p := &parser{table: t}
	p.parse(doc)
	if n := len(p.mistakes) - maxMistakes; n > 0 {
		p.mistakes = append(p.mistakes[:maxMistakes], fmt.Errorf("pricing: there are %d more mistakes", n))
	}
	if err := errors.Join(p.mistakes...); err != nil {
		return nil, err
	}
	return t, nil
}

// A parser reads the format of this package, and collects its mistakes.
type parser struct {
	table    *Table
	mistakes []error
	where    string // what is read, such as `model "m"`
}

func (p *parser) add(member, format string, args ...any) {
	err := fmt.Errorf(format, args...)
	if member != "" {
		err = fmt.Errorf("member %q: %w", member, err)
	}
	if p.where != "" {
		err = fmt.Errorf("%s: %w", p.where, err)
	}
	p.mistakes = append(p.mistakes, fmt.Errorf("pricing: %w", err))
}

// object returns the object v, and complains about members that occur twice.
func (p *parser) object(path string, v document) object {
	o, ok := v.(object)
	if !ok {
		p.add(path, "must be an object, not %s", kind(v))
	}
	for i, m := range o {
		if slices.ContainsFunc(o[:i], func(other member) bool { return other.name == m.name }) {
			p.add(join(path, m.name), "occurs twice")
		}
	}
	return o
}

func (p *parser) array(path string, v document) []any {
	list, ok := v.([]any)
	if !ok {
		p.add(path, "must be an array, not %s", kind(v))
	}
	return list
}

// join returns the path of a member of the object at path.
func join(path, member string) string {
	if path == "" {
		return member
	}
	return path + "." + member
}

func (p *parser) parse(doc object) {
	for _, m := range p.object("", doc) {
		if !slices.Contains([]string{"models", "aliases", "accounts", "default"}, m.name) {
			p.add(m.name, "is unknown")
		}
	}
	t := p.table
	seen := make(map[string]bool)
	models, ok := doc.get("models").(object)
	if v := doc.get("models"); !ok && v != nil {
		p.add("models", "must be an object, not %s", kind(v))
	}
	for _, m := range models {
		p.where = fmt.Sprintf("model %q", m.name)
		switch {
		case m.name == "" || strings.Trim(m.name, "*") == "":
			p.add("", `is no name of a model; prices of all other models are the member "default"`)
		case seen[m.name]:
			p.add("", "occurs twice")
		}
		seen[m.name] = true
		t.models.add(m.name, p.model(m.name, m.value))
	}
	p.where = ""
	p.mistakes = append(p.mistakes, t.models.ties("model")...)
	if v := doc.get("default"); v != nil {
		p.where = `member "default"`
		t.byDef = p.model("default", v)
		p.where = ""
	}
	if v := doc.get("accounts"); v != nil {
		p.accounts(v)
	}
	if v := doc.get("aliases"); v != nil {
		p.aliases(v, seen)
	}
}

func (p *parser) accounts(v document) {
	for _, m := range p.object("accounts", v) {
		p.where = fmt.Sprintf("account %q", m.name)
		s, err := number(m.value)
		var f factor
		if err == nil {
			f, err = parseFactor(s)
		}
		if err != nil {
			p.add("", "%w", err)
		}
		p.table.accounts.add(m.name, f)
		p.where = ""
	}
	p.mistakes = append(p.mistakes, p.table.accounts.ties("account")...)
}

func (p *parser) aliases(v document, models map[string]bool) {
	targets := make(map[string]*modelPrices)
	for _, m := range p.object("aliases", v) {
		p.where = fmt.Sprintf("alias %q", m.name)
		name, ok := m.value.(string)
		switch {
		case m.name == "" || strings.Contains(m.name, "*"):
			p.add("", "is no name of a model")
		case models[m.name]:
			p.add("", "is also a model")
		case !ok:
			p.add("", "must be the name of a model, not %s", kind(m.value))
		case p.table.find(name) == nil:
			p.add("", "the model %q has no price", name)
		}
		targets[m.name] = p.table.find(name)
		p.where = ""
	}
	for name, m := range targets {
		p.table.models.addExact(name, m)
	}
}

// model reads the prices of a model: an object, or an array of objects with different times.
func (p *parser) model(name string, v document) *modelPrices {
	m := &modelPrices{name: name}
	list, ok := v.([]any)
	if !ok {
		m.versions = append(m.versions, p.version("", v))
		return m
	}
	if len(list) == 0 {
		p.add("", "has no prices")
	}
	for i, v := range list {
		m.versions = append(m.versions, p.version(fmt.Sprintf("[%d]", i), v))
	}
	slices.SortStableFunc(m.versions, func(a, b version) int { return b.from.Compare(a.from) })
	for i, v := range m.versions {
		if i > 0 && v.from.Equal(m.versions[i-1].from) {
			p.add("from", "two entries begin at the same time")
		}
	}
	return m
}

func (p *parser) version(path string, v document) version {
	o := p.object(path, v)
	var from time.Time
	if v := o.get("from"); v != nil {
		from = p.time(join(path, "from"), v)
	}
	list := p.priceList(path, o, "from", "service_tiers")
	if tiers := o.get("service_tiers"); tiers != nil {
		path := join(path, "service_tiers")
		for _, m := range p.object(path, tiers) {
			path := join(path, m.name)
			t := tier{m.name, p.priceList(path, p.object(path, m.value))}
			if m.name == "" {
				p.add(path, "a service tier needs a name")
			}
			list.tiers = append(list.tiers, t)
		}
	}
	resolved, conflicts := list.resolve()
	for _, c := range conflicts {
		p.add(
			join(path, "service_tiers."+c.tier+"."+itemName(c.item)),
			"needs a price above %d prompt tokens, as the standard price has one",
			c.above,
		)
	}
	resolved.from = from
	return resolved
}

// time reads a time or a date, which means its beginning in UTC.
func (p *parser) time(path string, v document) time.Time {
	s, ok := v.(string)
	if !ok {
		p.add(path, "must be a time, not %s", kind(v))
		return time.Time{}
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t
		}
	}
	p.add(path, `must be a time such as "2026-01-31T12:00:00Z" or a date, not %q`, s)
	return time.Time{}
}

// priceList reads the prices in o. others are members that the caller reads.
func (p *parser) priceList(path string, o object, others ...string) priceList {
	list := priceList{bands: []band{p.band(path, o, append(others, "above")...)}}
	list.bands[0].above = -1
	if v := o.get("above"); v != nil {
		for i, v := range p.array(join(path, "above"), v) {
			path := fmt.Sprintf("%s[%d]", join(path, "above"), i)
			o := p.object(path, v)
			b := p.band(path, o, "prompt_tokens")
			b.above = p.tokens(join(path, "prompt_tokens"), o.get("prompt_tokens"))
			list.bands = append(list.bands, b)
		}
	}
	slices.SortStableFunc(list.bands, func(a, b band) int { return int(max(-1, min(1, a.above-b.above))) })
	for i, b := range list.bands {
		if i > 0 && b.above == list.bands[i-1].above {
			p.add(join(path, "above"), "%d prompt tokens occur twice", b.above)
		}
	}
	return list
}

func (p *parser) tokens(path string, v document) int64 {
	s, err := number(v)
	if err != nil {
		p.add(path, "%w", err)
		return 0
	}
	n, err := parseTokens(s)
	if err != nil {
		p.add(path, "%w", err)
	}
	return n
}

// parseTokens reads a positive number of tokens.
func parseTokens(s string) (int64, error) {
	n, err := parseDecimal(s, 0)
	switch {
	case err != nil:
		return 0, err
	case n.Sign() == 0 || !n.IsInt64() || n.Int64() == math.MaxInt64:
		return 0, errors.New("the number of tokens must be positive, and not too large")
	}
	return n.Int64(), nil
}

func (p *parser) band(path string, o object, others ...string) band {
	var b band
	found := false
	for _, m := range o {
		path := join(path, m.name)
		price, ok := priceMember(m.name)
		switch {
		case ok:
			found = true
			switch _, told := b.get(price.item); {
			case told && price.item == itemAudio:
				p.add(path, "the price of audio is told twice")
			case told && price.item > itemImages:
				p.add(path, "the price of this lifetime is told twice")
			}
			b.put(price.item, p.rate(path, m.value, price))
		case m.name == "images":
			found = true
			b.images = p.images(path, m.value)
		case !slices.Contains(others, m.name):
			p.add(path, "is unknown")
		}
	}
	if !found && o != nil {
		p.add(path, "has no prices")
	}
	return b
}

func (p *parser) rate(path string, v document, price memberPrice) rate {
	s, err := number(v)
	var r rate
	if err == nil {
		r, err = parseRate(s, price.units, price.per)
	}
	if err != nil {
		p.add(path, "%w", err)
	}
	return r
}

func (p *parser) images(path string, v document) []imagePrice {
	var images []imagePrice
	for i, v := range p.array(path, v) {
		path := fmt.Sprintf("%s[%d]", path, i)
		var price imagePrice
		o := p.object(path, v)
		for _, m := range o {
			path := join(path, m.name)
			switch m.name {
			case "size":
				price.size = p.text(path, m.value)
			case "quality":
				price.quality = p.text(path, m.value)
			case "price":
				price.rate = p.rate(path, m.value, memberPrice{itemImage, 0, 1})
			default:
				p.add(path, "is unknown")
			}
		}
		if o != nil && o.get("price") == nil {
			p.add(join(path, "price"), "is missing")
		}
		images = append(images, price)
	}
	if err := sortImages(images); err != nil {
		p.add(path, "%w", err)
	}
	return images
}

func (p *parser) text(path string, v document) string {
	s, ok := v.(string)
	if !ok || s == "" {
		p.add(path, "must be a text that is not empty")
	}
	return s
}
