// LiteLLM's format of prices.

package pricing

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// liteLLMItems are the members of LiteLLM's format that are prices of a unit, and may be followed
// by a length of prompts and a service tier.
var liteLLMItems = map[string]item{
	"input_cost_per_token":                      itemInput,
	"cache_read_input_token_cost":               itemCacheRead,
	"cache_creation_input_token_cost":           itemCacheWrite,
	"cache_creation_input_token_cost_above_1hr": lifetimeItem(time.Hour),
	"input_cost_per_audio_token":                itemAudioInput,
	"input_cost_per_image_token":                itemImageInput,
	"output_cost_per_token":                     itemOutput,
	"output_cost_per_reasoning_token":           itemReasoning,
	"output_cost_per_audio_token":               itemAudioOutput,
	"output_cost_per_image_token":               itemImageOutput,
	"input_cost_per_character":                  itemCharacter,
	"input_cost_per_query":                      itemSearchUnit,
	"input_cost_per_request":                    itemRequest,
}

// liteLLMSuffix matches the end of members for service tiers and for longer prompts, in either order.
var liteLLMSuffix = regexp.MustCompile(`^(.+?)(?:_(` + liteLLMTiers + `))?(?:_above_([0-9]+)k_tokens)?(?:_(` + liteLLMTiers + `))?$`)

const liteLLMTiers = "batches|batch_requests|fast|flex|priority|ultrafast"

// liteLLMImagePrice matches members with the price of an image that is larger, or of another quality, than that of the
// member output_cost_per_image.
var liteLLMImagePrice = regexp.MustCompile(
	`^output_cost_per_image(?:_above_([0-9]+)_and_([0-9]+)_pixels)?(?:(?:_and)?_(premium)_image|_(low|medium|high|auto)_quality)?$`)

// liteLLMUnread are the members with prices of what records do not tell, or which other members
// tell too. Their names may be followed by more.
var liteLLMUnread = []string{
	"annotation_cost_per_page", "cache_creation_input_audio_token_cost", "cache_creation_input_image_token_cost",
	"cache_read_input_audio_token_cost", "cache_read_input_image_token_cost", "cache_read_input_token_cost_per_audio_token",
	"citation_cost_per_token", "code_interpreter_cost_per_session", "computer_use_", "file_search_cost_", "google_maps_grounding_cost_per_query",
	"input_cost_per_audio_per_second", "input_cost_per_character_above_", "input_cost_per_image_above_", "input_cost_per_video_",
	"input_dbu_cost_per_token", "ocr_cost_per_", "output_cost_per_character", "output_cost_per_video_", "output_cost_per_second_",
	"output_dbu_cost_per_token", "search_context_cost_per_query", "vector_store_cost_per_gb_per_day",
}

// liteLLMImage matches the names of entries for images of a size and a quality.
var liteLLMImage = regexp.MustCompile(`^(.*/)?([0-9]+)-x-([0-9]+)/([^/]+)$`)

// liteLLMQualities are the qualities of images in the names of entries, before the size.
var liteLLMQualities = []string{"low", "medium", "high", "standard", "hd"}

// ParseLiteLLM reads prices in the JSON format of the file model_prices_and_context_window.json
// of LiteLLM. An entry that cannot be understood does not prevent the others from being
// used: see [Table.Mistakes]. The names of models are not patterns. The error tells that data is
// no object, or has no prices at all. opts may be nil.
func ParseLiteLLM(data []byte, opts *Options) (*Table, error) {
	t, err := newTable(opts)
	if err != nil {
		return nil, err
	}
	doc, err := readObject(data)
	if err != nil {
		return nil, err
	}
	p := liteLLMParser{lists: make(map[string]*liteLLMEntry)}
	images := make(map[string][]imagePrice)
	for _, m := range doc {
		if m.name == "sample_spec" {
			continue
		}
		e := p.entry(m.value)
		if e == nil {
			continue // has no prices
		}
		p.lists[m.name] = e
		if model, price, ok := e.imageOf(m.name); ok {
			images[model] = append(images[model], price...)
		}
	}
	for model, prices := range images {
		p.addImages(model, prices)
	}
	for name, e := range p.lists {
		m := e.resolve(name)
		t.models.addExact(name, m)
		if m.mistake != nil {
			t.mistakes = append(t.mistakes, m.mistake)
		}
	}
	if len(t.models.exact) == 0 {
		return nil, errors.New("pricing: there is no model with a price; is this LiteLLM's format?")
	}
	slices.SortFunc(t.mistakes, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return t, nil
}

type liteLLMParser struct {
	lists map[string]*liteLLMEntry
}

// A liteLLMEntry is what an entry of LiteLLM's format tells about prices.
type liteLLMEntry struct {
	list     priceList
	complete []priceList  // of tiered_pricing: the prices of each length
	images   []imagePrice // of members for sizes and qualities
	pixel    rate
	hasPixel bool
	member   string // which member has the mistake; empty for the whole entry
	mistake  error
}

func (e *liteLLMEntry) fail(member string, err error) {
	if e.mistake == nil {
		e.member, e.mistake = member, err
	}
}

// entry reads an entry. It returns nil if it has no prices.
func (p *liteLLMParser) entry(v document) *liteLLMEntry {
	e := &liteLLMEntry{list: priceList{bands: []band{{above: -1}}}}
	o, ok := v.(object)
	if !ok {
		e.fail("", fmt.Errorf("must be an object, not %s", kind(v)))
		return e
	}
	mode, _ := o.get("mode").(string)
	found := false
	var seconds, perImage [2]*rate // of input and of output
	for _, m := range o {
		if m.value == nil || m.name != "tiered_pricing" && !strings.Contains(m.name, "cost") {
			continue
		}
		found = true
		switch m.name {
		case "tiered_pricing":
			e.readTiers(m.value)
		case "input_cost_per_second":
			seconds[0] = e.rate(m, 3600)
		case "output_cost_per_second":
			seconds[1] = e.rate(m, 3600)
		case "input_cost_per_image":
			if mode == "image_generation" || mode == "image_edit" { // of other models, images that are sent
				perImage[0] = e.rate(m, 1)
			}
		case "output_cost_per_image":
			perImage[1] = e.rate(m, 1)
		case "input_cost_per_pixel", "output_cost_per_pixel":
			if r := e.rate(m, 1); r != nil && r.compare(e.pixel) > 0 {
				e.pixel, e.hasPixel = *r, true
			}
		case "input_cost_per_token_cache_hit":
			if o.get("cache_read_input_token_cost") == nil {
				e.put(member{"cache_read_input_token_cost", m.value})
			}
		default:
			e.put(m)
		}
	}
	if !found {
		return nil
	}
	standard := &e.list.bands[0]
	if price := larger(seconds); price != nil {
		switch {
		case strings.HasPrefix(mode, "audio_"):
			standard.put(itemAudio, *price)
		case mode != "video_generation" && !price.isZero() && !standard.set[itemInput]:
			e.fail("input_cost_per_second", errors.New("is a price for the time of a server, which records do not tell"))
		}
	}
	switch {
	case perImage[1] != nil: // the other one is for images that are sent
		standard.put(itemImage, *perImage[1])
	case perImage[0] != nil:
		standard.put(itemImage, *perImage[0])
	}
	if e.images != nil {
		if err := sortImages(e.images); err != nil {
			e.fail("", err)
		}
		standard.images = e.images
	}
	return e
}

// larger returns the larger price of the same second.
func larger(prices [2]*rate) *rate {
	if prices[0] == nil || prices[1] != nil && prices[1].compare(*prices[0]) > 0 {
		return prices[1]
	}
	return prices[0]
}

// rate returns the value of a member times per. It returns nil if that is a mistake.
func (e *liteLLMEntry) rate(m member, per int64) *rate {
	s, err := number(m.value)
	if err == nil {
		var r rate
		if r, err = parseRate(s, 0, per); err == nil {
			return &r
		}
	}
	e.fail(m.name, err)
	return nil
}

// put sets the price of a member whose name tells the item, the length of prompts and the tier.
func (e *liteLLMEntry) put(m member) {
	name, above, tierName := m.name, int64(-1), ""
	i, ok := liteLLMItems[name]
	if !ok {
		if parts := liteLLMSuffix.FindStringSubmatch(name); parts != nil {
			i, ok = liteLLMItems[parts[1]]
			if parts[3] != "" {
				thousands, err := strconv.ParseInt(parts[3], 10, 32)
				if err != nil || thousands == 0 {
					ok = false
				}
				above = thousands * 1000
			}
			if tierName = parts[2] + parts[4]; tierName == "batches" || tierName == "batch_requests" {
				tierName = "batch"
			}
			ok = ok && (parts[2] == "" || parts[4] == "")
		}
	}
	if !ok && e.putImage(m) {
		return
	}
	if !ok {
		unread := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if s, err := number(m.value); !slices.ContainsFunc(liteLLMUnread, unread) {
			if r, invalid := parseRate(s, 0, 1); err != nil || invalid != nil || !r.isZero() {
				e.fail(name, errors.New("is unknown, and may be a price"))
			}
		}
		return
	}
	if r := e.rate(m, 1); r != nil {
		e.list.bandFor(tierName, above).put(i, *r)
	}
}

// putImage adds the price of a member that is for images of a size and a quality. It reports false for other members.
func (e *liteLLMEntry) putImage(m member) bool {
	parts := liteLLMImagePrice.FindStringSubmatch(m.name)
	if parts == nil {
		return false
	}
	price := imagePrice{quality: parts[4]}
	if parts[3] != "" {
		price.quality = "hd" // which LiteLLM calls premium
	}
	if parts[1] != "" {
		var ok bool
		if price.above, ok = parseSize(parts[1] + "x" + parts[2]); !ok {
			return false
		}
	}
	if r := e.rate(m, 1); r != nil {
		price.rate = *r
		e.images = append(e.images, price)
	}
	return true
}

// bandFor returns the prices of a service tier above a number of prompt tokens. It adds them if
// they are missing.
func (l *priceList) bandFor(name string, above int64) *band {
	if name != "" {
		i := slices.IndexFunc(l.tiers, func(t tier) bool { return t.name == name })
		if i < 0 {
			i = len(l.tiers)
			l.tiers = append(l.tiers, tier{name: name})
		}
		return l.tiers[i].bandFor("", above)
	}
	i := 0
	for i < len(l.bands) && l.bands[i].above < above {
		i++
	}
	if i == len(l.bands) || l.bands[i].above != above {
		l.bands = slices.Insert(l.bands, i, band{above: above})
	}
	return &l.bands[i]
}

// readTiers reads tiered_pricing: an array of objects with the prices of requests whose prompts
// have more tokens than the first number of "range", and at most as many as the second.
func (e *liteLLMEntry) readTiers(v document) {
	const name = "tiered_pricing"
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		e.fail(name, errors.New("must be an array of objects"))
		return
	}
	for i, v := range list {
		o, _ := v.(object)
		bounds, _ := o.get("range").([]any)
		switch {
		case len(bounds) != 2 && o.get("max_results_range") != nil:
			e.fail(name, errors.New("is a price for the number of results, which records do not tell"))
			return
		case len(bounds) != 2:
			e.fail(name, errors.New(`needs a "range" of prompt tokens in each element`))
			return
		}
		of := liteLLMEntry{list: priceList{bands: []band{{above: -1}}}}
		for _, m := range o {
			if m.name != "range" && m.value != nil {
				of.put(m)
			}
		}
		if of.mistake != nil {
			e.fail(name+"."+of.member, of.mistake)
			return
		}
		if s, err := number(bounds[0]); i > 0 || err != nil {
			var n int64
			if err == nil {
				n, err = parseTokens(s)
			}
			if err != nil || i > 0 && n <= e.complete[i-1].bands[0].above {
				e.fail(name, errors.New(`the elements must be sorted by "range"`))
				return
			}
			of.list.bands[0].above = n
		}
		e.complete = append(e.complete, of.list)
	}
}

// imageOf reports whether an entry is about images of one size, and maybe one quality, of a
// model, and returns its name and the prices.
func (e *liteLLMEntry) imageOf(name string) (model string, prices []imagePrice, ok bool) {
	parts := liteLLMImage.FindStringSubmatch(name)
	if parts == nil {
		return "", nil, false
	}
	prefix, width, height, model, quality := parts[1], parts[2], parts[3], parts[4], ""
	for _, q := range liteLLMQualities {
		if rest, ok := strings.CutSuffix(prefix, q+"/"); ok && (rest == "" || strings.HasSuffix(rest, "/")) {
			prefix, quality = rest, q
			break
		}
	}
	price, set := e.list.bands[0].of[itemImage], e.list.bands[0].set[itemImage]
	size := width + "x" + height
	if !set && e.hasPixel {
		d, ok := parseSize(size)
		var err error
		if price, err = e.pixel.times(d.width * d.height); !ok || err != nil {
			return "", nil, false
		}
		e.list.bands[0].put(itemImage, price)
		set = true
	}
	if !set || e.mistake != nil {
		return "", nil, false
	}
	switch quality {
	case "":
		prices = []imagePrice{{size: size, rate: price}}
	case "standard": // what the model uses if the request names no quality
		prices = []imagePrice{{size: size, quality: quality, rate: price}, {size: size, quality: auto, rate: price}}
	default:
		prices = []imagePrice{{size: size, quality: quality, rate: price}}
	}
	return prefix + model, prices, true
}

// addImages adds prices of images to the entry of a model, which may be missing.
func (p *liteLLMParser) addImages(model string, prices []imagePrice) {
	e := p.lists[model]
	if e == nil {
		e = &liteLLMEntry{list: priceList{bands: []band{{above: -1}}}}
		p.lists[model] = e
	}
	if err := sortImages(prices); err != nil {
		e.fail("", err)
	}
	e.list.bands[0].images = prices
}

// resolve returns the prices of the model that the entry is for.
func (e *liteLLMEntry) resolve(name string) *modelPrices {
	m := &modelPrices{name: name}
	if standard := &e.list.bands[0]; e.hasPixel && !standard.set[itemImage] && len(standard.images) == 0 && !e.pixel.isZero() {
		standard.put(itemPixel, e.pixel)
	}
	if e.mistake != nil {
		m.mistake = mistakef(name, e.member, "%w", e.mistake)
		return m
	}
	// Above a number of prompt tokens, a tier without a price for that has the standard price of
	// such prompts.
	v, _ := e.list.resolve()
	if e.complete != nil {
		v.standard = nil
		for _, list := range slices.Backward(e.complete) {
			above := list.bands[0].above
			list.bands[0].above = -1
			of, _ := combine(e.list.bands, list.bands)
			of[len(of)-1].above = above
			v.standard = append(v.standard, of[len(of)-1])
		}
	}
	b := &v.standard[len(v.standard)-1]
	if b.set[itemOutput] && b.set[itemImageOutput] && b.of[itemOutput] != b.of[itemImageOutput] {
		v.imageTokens = "output_cost_per_image_token"
	}
	m.versions = []version{v}
	return m
}
