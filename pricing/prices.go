// The prices of a model by time, service tier and length of the prompt, and what a record costs.

package pricing

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/imageedit"
)

// An item is something that has a price.
type item int

const (
	itemInput item = iota
	itemCacheRead
	itemCacheWrite
	itemAudioInput
	itemImageInput
	itemOutput
	itemReasoning
	itemAudioOutput
	itemImageOutput
	itemImage
	itemPixel // of an image; only of LiteLLM's format
	itemAudio // an hour of it
	itemCharacter
	itemSearchUnit
	itemRequest
	numItems
	itemImages = numItems // images of a size and a quality, in a conflict
)

// lifetimeItem returns the item of tokens that a prompt cache keeps for a lifetime. It is more than
// itemImages, and more for a longer lifetime.
func lifetimeItem(lifetime time.Duration) item { return itemImages + item(lifetime/time.Second) }

const millisPerHour = 3_600_000

// defaults are the items whose price an item has that has none, in the order in which they are
// set. Items that are not here have no such default.
var defaults = [...]struct{ item, from item }{
	{itemCacheRead, itemInput},
	{itemCacheWrite, itemInput},
	{itemAudioInput, itemInput},
	{itemImageInput, itemInput},
	{itemReasoning, itemOutput},
	{itemAudioOutput, itemOutput},
}

// rates are the prices of items.
type rates struct {
	of     [numItems]rate
	set    [numItems]bool
	writes map[item]rate // of lifetimeItem
}

func (r *rates) get(i item) (value rate, ok bool) {
	if i < numItems {
		return r.of[i], r.set[i]
	}
	value, ok = r.writes[i]
	return value, ok
}

func (r *rates) put(i item, value rate) {
	if i < numItems {
		r.of[i], r.set[i] = value, true
		return
	}
	if r.writes == nil {
		r.writes = make(map[item]rate)
	}
	r.writes[i] = value
}

// writeItem returns the item whose price tokens have that a prompt cache keeps for a lifetime: that of
// the longest one that is not longer and has a price, or else that of all cache writes.
func (r *rates) writeItem(lifetime time.Duration) item {
	found := itemCacheWrite
	for i := range r.writes {
		if i <= lifetimeItem(lifetime) {
			found = max(found, i)
		}
	}
	return found
}

// An imagePrice is the price of an image of a size and a quality. Empty ones match all.
type imagePrice struct {
	size, quality string
	above         dimensions // matches images that are larger in both; only of LiteLLM's format
	rate          rate
}

// specificity orders the prices that match an image.
func (p *imagePrice) specificity() int {
	n := 0
	if p.size != "" || p.above != (dimensions{}) {
		n++
	}
	if p.quality != "" {
		n++
	}
	return n
}

// matches reports whether p is a price of an image of a size and a quality.
func (p *imagePrice) matches(size, quality string) bool {
	if p.above != (dimensions{}) {
		if d, ok := parseSize(size); !ok || d.width <= p.above.width || d.height <= p.above.height {
			return false
		}
	}
	return (p.size == "" || p.size == size) && (p.quality == "" || p.quality == quality)
}

// dimensions are the width and the height of an image in pixels.
type dimensions struct{ width, height int64 }

// parseSize returns the dimensions of a size such as "1024x1024". It reports false for auto.
func parseSize(size string) (d dimensions, ok bool) {
	width, height, _ := strings.Cut(size, "x")
	w, errW := strconv.ParseUint(width, 10, 16)
	h, errH := strconv.ParseUint(height, 10, 16)
	return dimensions{int64(w), int64(h)}, errW == nil && errH == nil
}

// A band has the prices of requests with more prompt tokens than above.
type band struct {
	above int64
	rates
	images []imagePrice // the most specific first
}

// A priceList has the prices of a model, or of a service tier of it, as they are written. The
// first band is above -1; the others are sorted, and have the prices that change.
type priceList struct {
	bands []band
	tiers []tier
}

type tier struct {
	name string
	priceList
}

// version has the prices of a model from a time on, ready to be used.
type version struct {
	from     time.Time // zero for always
	standard []band    // the longest prompts first; the last is above -1
	tiers    map[string][]band
	// imageTokens is the member that tells a price of completion tokens of images, if
	// the model also generates text at another price. Records of chats do not tell them apart.
	imageTokens string
}

// A modelPrices has the prices of a model.
type modelPrices struct {
	name     string
	versions []version // the latest first
	mistake  error     // why it cannot be used, or nil
}

// at returns the prices at a time, or nil.
func (m *modelPrices) at(t time.Time) *version {
	for i := range m.versions {
		if v := &m.versions[i]; !t.Before(v.from) {
			return v
		}
	}
	return nil
}

// bandOf returns the prices for a service tier and a number of prompt tokens.
func (v *version) bandOf(tier string, prompt int64) *band {
	bands, ok := v.tiers[tier]
	if !ok {
		bands = v.standard
	}
	for i := range bands {
		if b := &bands[i]; prompt > b.above {
			return b
		}
	}
	return nil // does not occur: prompt is not negative
}

// A conflict is a price of a service tier that could also be another one: above a number of
// prompt tokens, the standard price changes, and the tier tells a price for shorter prompts only.
type conflict struct {
	tier  string
	item  item
	above int64
}

// resolve returns l with all prices that each request needs. Above a number of prompt tokens,
// prices that are not told are those of shorter prompts; of a tier, they are the standard
// prices. In a conflict, the standard price is used.
func (l *priceList) resolve() (v version, conflicts []conflict) {
	v.standard, _ = combine(l.bands, nil)
	for _, t := range l.tiers {
		bands, found := combine(l.bands, t.bands)
		for _, c := range found {
			c.tier = t.name
			conflicts = append(conflicts, c)
		}
		if v.tiers == nil {
			v.tiers = make(map[string][]band)
		}
		v.tiers[t.name] = bands
	}
	return v, conflicts
}

func combine(standard, tier []band) (bands []band, conflicts []conflict) {
	limits := []int64{-1}
	for _, b := range slices.Concat(standard, tier) {
		limits = append(limits, b.above)
	}
	slices.Sort(limits)
	items := make(map[item]bool)
	for i := range numItems {
		items[i] = true
	}
	for _, b := range slices.Concat(standard, tier) {
		for i := range b.writes {
			items[i] = true
		}
	}
	sorted := slices.Sorted(maps.Keys(items))
	for _, above := range slices.Compact(limits) {
		b := band{above: above}
		for _, i := range sorted {
			has := func(b *band) bool {
				_, ok := b.get(i)
				return ok
			}
			from, t := lastWith(standard, above, has), lastWith(tier, above, has)
			switch {
			case t == nil:
			case from != nil && from.above > t.above:
				conflicts = append(conflicts, conflict{item: i, above: above})
			default:
				from = t
			}
			if from != nil {
				price, _ := from.get(i)
				b.put(i, price)
			}
		}
		hasImages := func(b *band) bool { return len(b.images) > 0 }
		s, t := lastWith(standard, above, hasImages), lastWith(tier, above, hasImages)
		switch {
		case t == nil && s == nil:
		case t == nil:
			b.images = s.images
		case s != nil && s.above > t.above:
			b.images = s.images
			conflicts = append(conflicts, conflict{item: itemImages, above: above})
		default:
			b.images = t.images
		}
		for _, d := range defaults {
			if !b.set[d.item] && b.set[d.from] {
				b.put(d.item, b.of[d.from])
			}
		}
		bands = append(bands, b)
	}
	slices.Reverse(bands)
	return bands, conflicts
}

// lastWith returns the band with the highest limit, at most above, that has something.
func lastWith(bands []band, above int64, has func(*band) bool) *band {
	for i := len(bands) - 1; i >= 0; i-- {
		if b := &bands[i]; b.above <= above && has(b) {
			return b
		}
	}
	return nil
}

// sortImages sorts the prices of images, and returns an error if there are two for the same
// image, of which none is the more specific.
func sortImages(images []imagePrice) error {
	slices.SortStableFunc(images, func(a, b imagePrice) int {
		return cmp.Or(cmp.Compare(b.specificity(), a.specificity()), cmp.Compare(b.above.width, a.above.width), cmp.Compare(b.above.height, a.above.height))
	})
	has := func(size, quality string) bool {
		return slices.ContainsFunc(images, func(p imagePrice) bool { return p.size == size && p.quality == quality })
	}
	for i, a := range images {
		for _, b := range images[:i] {
			switch {
			case a.size == b.size && a.quality == b.quality && a.above == b.above:
				return fmt.Errorf("two prices are for size %q and quality %q", a.size, a.quality)
			case a.specificity() == 1 && b.specificity() == 1 && (a.size == "") != (b.size == "") && !has(a.size+b.size, a.quality+b.quality):
				return fmt.Errorf(
					"two prices match size %q and quality %q, which need a price of their own",
					a.size+b.size,
					a.quality+b.quality,
				)
			}
		}
	}
	return nil
}

// auto is the size or the quality of images whose request leaves it to the model.
const auto = "auto"

// image returns the price of an image.
func (b *band) image(size, quality string) (rate, bool) {
	size, quality = cmp.Or(size, auto), cmp.Or(quality, auto)
	for i := range b.images {
		if p := &b.images[i]; p.matches(size, quality) {
			return p.rate, true
		}
	}
	if !b.set[itemPixel] || b.set[itemImage] {
		return b.of[itemImage], b.set[itemImage]
	}
	d, ok := parseSize(size)
	if !ok {
		return rate{}, false
	}
	price, err := b.of[itemPixel].times(d.width * d.height)
	return price, err == nil
}

// The mistakes that pricing a record finds.
var (
	errNotYet      = errors.New("has no price at the time of the request")
	errPrompt      = errors.New("has no price for prompt tokens")
	errCompletion  = errors.New("has no price for completion tokens")
	errUnits       = errors.New("has no price for what the request used")
	errImages      = errors.New("has no price for images of this size and quality")
	errImageTokens = errors.New("has a price for completion tokens of images, which records of chats do not tell from other tokens")
)

// cost returns what r costs, multiplied by f.
func (v *version) cost(r *llmhttp.UsageRecord, f factor) (llmhttp.Cost, error) {
	u := nonNegative(&r.Units)
	b := v.bandOf(r.ServiceTier, u.PromptTokens)
	var input, cacheRead, cacheWrite, output, other sum
	billed := false // something besides tokens has a price

	// Of a request for images, the tokens are those of the images, so that only one of both is
	// billed.
	completion, completionItem := u.CompletionTokens, itemOutput
	ofImages := r.Operation == llmhttp.OperationImages || r.Operation == imageedit.Operation
	switch {
	case ofImages && completion > 0 && b.set[itemImageOutput]:
		completionItem = itemImageOutput
	case u.Images > 0:
		price, ok := b.image(r.ImageSize, r.ImageQuality)
		switch {
		case ok:
			output.add(price, u.Images)
			billed = true
			if ofImages {
				completion = 0
			}
		case !ofImages || completion == 0 || !b.set[itemOutput]:
			return llmhttp.Cost{}, errImages
		}
	case !ofImages && completion > 0 && v.imageTokens != "":
		return llmhttp.Cost{}, fmt.Errorf("member %q: %w", v.imageTokens, errImageTokens)
	}

	// Audio is counted in characters, in tokens or by its duration, and billed once.
	per := uint64(1)
	pricedTokens := completion > 0 && (b.set[itemOutput] || b.set[itemAudioOutput] && u.CompletionAudioTokens >= completion)
	switch {
	case u.Characters > 0 && b.set[itemCharacter]:
		output.add(b.of[itemCharacter], u.Characters)
		billed = true
	case u.AudioMillis > 0 && b.set[itemAudio] && (!pricedTokens || r.Estimated && r.Operation == audio.OperationSpeech):
		per = millisPerHour
		output.multiply(per)
		output.add(b.of[itemAudio], u.AudioMillis)
		billed = true
	}
	if billed && r.Estimated && r.Operation == audio.OperationSpeech { // the tokens are an estimate of the same
		u.PromptTokens, completion = 0, 0
	}
	if u.SearchUnits > 0 && b.set[itemSearchUnit] {
		other.add(b.of[itemSearchUnit], u.SearchUnits)
		billed = true
	}
	if b.set[itemRequest] && r.Part == 0 {
		other.add(b.of[itemRequest], 1)
		billed = true
	}

	// What is counted as two kinds of tokens is billed as the kind that comes first here.
	prompt := remaining(u.PromptTokens)
	unpriced := false
	bill := func(s *sum, i item, n int64) {
		price, ok := b.get(i)
		if n > 0 && !ok {
			unpriced = true
		}
		s.add(price, n)
	}
	bill(&cacheRead, itemCacheRead, prompt.take(u.CachedTokens))
	written := remaining(prompt.take(u.CacheWriteTokens))
	var lifetimes []time.Duration
	for lifetime := range u.CacheWrites.All() {
		lifetimes = append(lifetimes, lifetime)
	}
	for _, lifetime := range slices.Backward(lifetimes) { // the longest first, which cost the most
		bill(&cacheWrite, b.writeItem(lifetime), written.take(u.CacheWrites[lifetime]))
	}
	bill(&cacheWrite, itemCacheWrite, int64(written))
	bill(&input, itemAudioInput, prompt.take(u.PromptAudioTokens))
	bill(&input, itemImageInput, prompt.take(u.PromptImageTokens))
	bill(&input, itemInput, int64(prompt))
	if unpriced && !billed {
		return llmhttp.Cost{}, errPrompt
	}

	unpriced = false
	tokens := remaining(completion)
	var generated sum
	if completionItem == itemOutput {
		bill(&generated, itemReasoning, tokens.take(u.ReasoningTokens))
		bill(&generated, itemAudioOutput, tokens.take(u.CompletionAudioTokens))
	}
	bill(&generated, completionItem, int64(tokens))
	if unpriced && !billed {
		return llmhttp.Cost{}, errCompletion
	}
	if u.Tokens() == 0 && !billed {
		return llmhttp.Cost{}, errUnits
	}
	generated.multiply(per)
	output.plus(&generated)
	return llmhttp.Cost{
		Input: input.money(f, 1), CacheRead: cacheRead.money(f, 1), CacheWrite: cacheWrite.money(f, 1),
		Output: output.money(f, per), Other: other.money(f, 1),
	}, nil
}

// remaining is a number of tokens of which no price is known yet.
type remaining int64

// take returns n, or what remains if that is less, and subtracts it.
func (r *remaining) take(n int64) int64 {
	n = min(n, int64(*r))
	*r -= remaining(n)
	return n
}

// nonNegative returns u with zero for what is negative.
func nonNegative(u *llmhttp.Units) llmhttp.Units {
	return llmhttp.Units{
		PromptTokens: max(u.PromptTokens, 0), CachedTokens: max(u.CachedTokens, 0),
		CacheWriteTokens: max(u.CacheWriteTokens, 0), CacheWrites: u.CacheWrites,
		PromptAudioTokens: max(u.PromptAudioTokens, 0), PromptImageTokens: max(u.PromptImageTokens, 0),
		CompletionTokens: max(u.CompletionTokens, 0), ReasoningTokens: max(u.ReasoningTokens, 0),
		CompletionAudioTokens: max(u.CompletionAudioTokens, 0),
		Images: max(
			u.Images,
			0,
		), AudioMillis: max(u.AudioMillis, 0), Characters: max(u.Characters, 0), SearchUnits: max(u.SearchUnits, 0),
	}
}
