package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/llmhttp/llmhttp"
)

// A price is what a model costs, in US dollars per million tokens.
type price struct {
	Input       float64  `json:"input"`
	CachedInput *float64 `json:"cached_input"` // for input that was read from a prompt cache; if missing, as Input
	Output      float64  `json:"output"`
	Image       float64  `json:"image"` // of each image
}

// prices are the prices of models by ID. Those of * are for all other models,
// which cost nothing without it.
type prices map[string]price

// newCost returns the Cost of [llmhttp.Options]. It is nil without the flag -prices.
func (c *config) newCost() (func(llmhttp.UsageSum) float64, error) {
	if c.prices == "" {
		return nil, nil
	}
	list, err := readPrices(c.prices)
	if err != nil {
		return nil, err
	}
	return list.cost, nil
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

func (list prices) cost(s llmhttp.UsageSum) float64 {
	p, ok := list[s.Model]
	if !ok {
		p = list["*"]
	}
	cached := p.Input
	if p.CachedInput != nil {
		cached = *p.CachedInput
	}
	const million = 1e6
	return (float64(s.PromptTokens-s.CachedTokens)*p.Input+float64(s.CachedTokens)*cached+float64(s.CompletionTokens)*p.Output)/million + float64(s.Images)*p.Image
}
