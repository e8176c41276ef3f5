// Vectors.

package simulator

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/llm"
)

const (
	defaultDimensions = 256
	maxDimensions     = 3072
)

// Embed implements [llmhttp.Embedder].
func (b *Backend) Embed(ctx context.Context, req *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	if req.Model != ModelEmbed {
		return nil, llm.ModelNotFound(req.Model)
	}
	dimensions := defaultDimensions
	if req.Dimensions != nil {
		dimensions = *req.Dimensions
	}
	if dimensions < 1 || dimensions > maxDimensions {
		e := llm.Errorf(
			http.StatusBadRequest,
			"invalid_value",
			"Invalid value: '%d'. This model has vectors of 1 to %d dimensions.",
			dimensions,
			maxDimensions,
		)
		e.Param = "dimensions"
		return nil, e
	}
	inputs, tokens := readInputs(req)
	vectors := make([][]float32, len(inputs))
	for i, words := range inputs {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		vectors[i] = vector(words, dimensions)
	}
	usage := &llm.Usage{PromptTokens: tokens, TotalTokens: tokens}
	return &llm.EmbeddingResponse{Model: req.Model, Vectors: vectors, Usage: usage}, nil
}

// readInputs returns the words of each input, and the number of tokens of all inputs.
func readInputs(req *llm.EmbeddingRequest) (inputs [][]string, tokens int) {
	for _, input := range req.Input.Tokens {
		words := make([]string, len(input))
		for i, n := range input {
			words[i] = strconv.Itoa(n)
		}
		inputs = append(inputs, words)
		tokens += len(input)
	}
	for _, text := range req.Input.Texts {
		inputs = append(inputs, wordsOf(text))
		tokens += CountTokens(req.Model, text)
	}
	return inputs, tokens
}

// wordsOf returns the words of text in lower case. Each character of a script
// that is written without spaces between words is a word. A text without letters
// and digits is one word.
func wordsOf(text string) []string {
	var words []string
	for _, run := range strings.FieldsFunc(strings.ToLower(text), isSeparator) {
		start := 0
		for i, r := range run {
			if isWord(r) {
				if start < i {
					words = append(words, run[start:i])
				}
				start = i + utf8.RuneLen(r)
				words = append(words, run[i:start])
			}
		}
		if start < len(run) {
			words = append(words, run[start:])
		}
	}
	if len(words) == 0 {
		return []string{text}
	}
	return words
}

// isSeparator reports whether r is neither a letter nor a mark nor a number.
func isSeparator(r rune) bool { return !unicode.In(r, unicode.L, unicode.M, unicode.N) }

// vector returns the unit vector of words by feature hashing. The hash of a feature
// selects its dimension and sign. The sums are integers, so all machines give the same
// result.
func vector(words []string, dimensions int) []float32 {
	sums := make([]int64, dimensions)
	hashFeatures(words, func(hash uint64, weight int64) {
		if hash>>63 != 0 {
			weight = -weight
		}
		sums[hash%uint64(dimensions)] += weight
	})
	return unitVector(sums)
}

// hashFeatures calls add for each feature. The features are the words, with the weight 4,
// and the parts of three characters and pairs of neighboring words, with the weight 1.
func hashFeatures(words []string, add func(hash uint64, weight int64)) {
	previous := uint64(0)
	for _, word := range words {
		hash := hashOf(word)
		add(hash, 4)
		if previous != 0 {
			add(mix(previous*31+hash), 1)
		}
		previous = hash
		part := uint64('^') // the last three runes, in 21 bits each; ^ and $ mark the ends of the word
		for _, r := range word {
			part = part<<21 | uint64(r)
			if part>>42 != 0 {
				add(mix(part&(1<<63-1)), 1)
			}
		}
		add(mix((part<<21|'$')&(1<<63-1)), 1)
	}
}

// unitVector returns the vector of length 1 in the direction of sums, which it may change.
func unitVector(sums []int64) []float32 {
	var square float64
	for _, n := range sums {
		square += float64(n * n)
	}
	if square == 0 { // the features with opposite signs add up to zero
		sums[0], square = 1, 1
	}
	norm := math.Sqrt(square)
	v := make([]float32, len(sums))
	for i, n := range sums {
		v[i] = float32(float64(n) / norm)
	}
	return v
}

// hashOf returns a 64-bit hash of s: FNV-1a, then mix.
func hashOf(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}

// mix spreads the entropy of h over all bits. It is the finalizer of SplitMix64.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
