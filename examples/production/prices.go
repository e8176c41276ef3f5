package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/llmhttp/llmhttp"
)

// A price is what a model costs, in US dollars per million tokens.
type price struct {
	Input       amount  `json:"input"`
	CachedInput *amount `json:"cached_input"` // for input that was read from a prompt cache; if missing, as Input
	Output      amount  `json:"output"`
	Image       amount  `json:"image"` // of each image
}

// An amount is a number of US dollars in JSON, which may have an exponent.
type amount llmhttp.Money

func (a *amount) UnmarshalJSON(b []byte) error {
	var dollars float64
	if err := json.Unmarshal(b, &dollars); err != nil {
		return err
	}
	return (*llmhttp.Money)(a).UnmarshalText(strconv.AppendFloat(nil, dollars, 'f', 9, 64))
}

// prices are the prices of models by ID. Those of * are for all other models.
type prices map[string]price

// newPrice returns the Price of [llmhttp.Options]. It is nil without the flag -prices.
func (c *config) newPrice() (func(*llmhttp.UsageRecord) (llmhttp.Cost, error), error) {
	if c.prices == "" {
		return nil, nil
	}
	list, err := readPrices(c.prices)
	if err != nil {
		return nil, err
	}
	return list.price, nil
}

func readPrices(file string) (prices, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("-prices: %w", err)
	}
	defer f.Close()
	var list prices
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		return nil, fmt.Errorf("-prices: %w", err)
	}
	for model, p := range list {
		if p.Input < 0 || p.Output < 0 || p.Image < 0 || p.CachedInput != nil && *p.CachedInput < 0 {
			return nil, fmt.Errorf("-prices: model %q: a price is negative", model)
		}
	}
	return list, nil
}

// price returns what a request costs. The price is that of the name which the client used, or
// of the model that served the request.
func (list prices) price(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
	p, ok := list[r.Model]
	if !ok {
		p, ok = list[r.ServedModel]
	}
	if !ok {
		p, ok = list["*"]
	}
	if !ok {
		return llmhttp.Cost{}, fmt.Errorf("the model %q has no price", r.Model)
	}
	cached := p.Input
	if p.CachedInput != nil {
		cached = *p.CachedInput
	}
	tokens := func(price amount, n int64) llmhttp.Money { return llmhttp.Money(price).Scale(n, 1_000_000) }
	return llmhttp.Cost{
		Input:     tokens(p.Input, r.Units.PromptTokens-r.Units.CachedTokens),
		CacheRead: tokens(cached, r.Units.CachedTokens),
		Output:    tokens(p.Output, r.Units.CompletionTokens).Add(llmhttp.Money(p.Image).Scale(r.Units.Images, 1)),
	}, nil
}
