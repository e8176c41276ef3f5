package llmhttptest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/llm"
)

// optionalMethodMutants have faults in the methods of the optional interfaces.
var optionalMethodMutants = slices.Concat(listMutants, completionMutants, imageMutants, imageEditMutants, imageStreamMutants, embeddingMutants, rerankMutants, moderationMutants, speechMutants, transcriptionMutants)

var listMutants = []mutant[backendTest]{
	{"an ID is empty", "Models", listing(append(echoModels, llm.Model{})...)},
	{"an ID is repeated", "Models", listing(append(echoModels, llm.Model{ID: "chat"})...)},
	{"a model is missing", "Models", listing(echoModels[:2]...)},
	{"Created is negative", "Models", listing(append(echoModels, llm.Model{ID: "old", Created: math.MinInt64})...)},
	{"a capability is empty", "Models", listing(append(echoModels, llm.Model{ID: "m", Capabilities: []llm.Capability{""}})...)},
	{"a capability is repeated", "Models", listing(append(echoModels, llm.Model{ID: "m", Capabilities: []llm.Capability{"tools", "tools"}})...)},
	{"the Extra of a model is invalid", "Models", listing(append(echoModels, llm.Model{ID: "extra", Extra: invalid})...)},
	{"ListModels fails", "Models", backendFixture(func(e *echo) { e.list = func() ([]llm.Model, error) { return nil, errors.New("down") } })},
	{"the order changes", "Models", backendFixture(func(e *echo) {
		models := slices.Clone(echoModels)
		e.list = func() ([]llm.Model, error) {
			slices.Reverse(models)
			return slices.Clone(models), nil
		}
	})},
}

var imageMutants = []mutant[backendTest]{
	{"GenerateImages is not implemented", "Images", chatOnly},
	{"N is ignored", "Images", editingImage(func(resp *imageResp, _ *llm.Image) { resp.Data = resp.Data[:1] })},
	{"an image has no data", "Images", editingImage(func(_ *imageResp, first *llm.Image) { first.Data = nil })},
	{"an image is HTML", "Images", editingImage(func(_ *imageResp, first *llm.Image) { first.Data = []byte("<html>") })},
	{"an image is cut", "Images", editingImage(func(_ *imageResp, first *llm.Image) { first.Data = first.Data[:50] })},
	{"Size is ignored", "Images", drawing(func(req *imageReq) (*imageResp, error) { req.Size = "9x9"; return drawImages(req) })},
	{"a URL is a path", "Images", editingImage(func(_ *imageResp, first *llm.Image) { *first = llm.Image{URL: "/tmp/1.png"} })},
	{"a URL is malformed", "Images", editingImage(func(_ *imageResp, first *llm.Image) { *first = llm.Image{URL: "http://[/"} })},
	{"the usage is negative", "Images", editingImage(func(resp *imageResp, _ *llm.Image) { resp.Usage = &llm.Usage{PromptTokens: -1} })},
	{"the Extra of an image is invalid", "Images", editingImage(func(_ *imageResp, first *llm.Image) { first.Extra = invalid })},
	{"a quote in the prompt is a server error", "Images", drawing(func(req *imageReq) (*imageResp, error) {
		if strings.Contains(req.Prompt, "\"") {
			return nil, errors.New("syntax error")
		}
		return drawImages(req)
	})},
	{"an automatic Size is a server error", "Images", drawing(func(req *imageReq) (*imageResp, error) {
		if req.Size == llm.ImageSizeAuto {
			return nil, errNotImplemented
		}
		return drawImages(req)
	})},
	{"every call fails", "Images", drawing(func(*imageReq) (*imageResp, error) { return nil, llm.Errorf(429, "busy", "Busy.") })},
	{"the response and the error are nil", "Images", drawing(func(*imageReq) (*imageResp, error) { return nil, nil })},
	{"concurrent calls are refused", "Images", backendFixture(func(e *echo) { e.images = exclusive(drawImages) })},

	{"a size is a word", "ImageSizes", sizing("8x8", "large")},
	{"a size begins with zero", "ImageSizes", sizing("08x8")},
	{"an unknown model has sizes", "ImageSizes", sizing("8x8")},
	{"an unknown model is a server error", "ImageSizes", backendFixture(func(e *echo) {
		e.sizes = func(model string) ([]string, error) {
			sizes, err := imageSizes(model)
			if err != nil {
				err = errors.New("no such model")
			}
			return sizes, err
		}
	})},
	{"ImageSizes fails", "ImageSizes", backendFixture(func(e *echo) { e.sizes = func(string) ([]string, error) { return nil, errors.New("down") } })},

	{"any model is accepted", "ImageUnknownModel", drawing(func(req *imageReq) (*imageResp, error) { req.Model = "draw"; return drawImages(req) })},
	{"an unknown model is a server error", "ImageUnknownModel", drawing(func(req *imageReq) (*imageResp, error) {
		resp, err := drawImages(req)
		if err != nil {
			err = fmt.Errorf("drawing: %v", err)
		}
		return resp, err
	})},
	{"the context is ignored", "ImageCancelled", drawing(delayed(drawImages))},
}

var embeddingMutants = []mutant[backendTest]{
	{"Embed is not implemented", "Embeddings", chatOnly},
	{"the last vector is missing", "Embeddings", editingVectors(func(resp *vectorResp) {
		resp.Vectors = resp.Vectors[:max(1, len(resp.Vectors)-1)]
	})},
	{"equal vectors are dropped", "Embeddings", editingVectors(func(resp *vectorResp) {
		resp.Vectors = slices.CompactFunc(resp.Vectors, slices.Equal)
	})},
	{"vectors differ in dimensions", "Embeddings", editingVectors(func(resp *vectorResp) { resp.Vectors[0] = resp.Vectors[0][:100] })},
	{"responses differ in dimensions", "Embeddings", editingVectors(func(resp *vectorResp) {
		for i := range resp.Vectors {
			resp.Vectors[i] = append(resp.Vectors[i], make([]float32, len(resp.Vectors))...)
		}
	})},
	{"vectors are empty", "Embeddings", editingVectors(func(resp *vectorResp) { clear(resp.Vectors) })},
	{"a number is NaN", "Embeddings", editingVectors(func(resp *vectorResp) { resp.Vectors[0][0] = float32(math.NaN()) })},
	{"a number is infinite", "Embeddings", editingVectors(func(resp *vectorResp) { resp.Vectors[0][0] = float32(math.Inf(1)) })},
	{"a vector is zero", "Embeddings", editingVectors(func(resp *vectorResp) { clear(resp.Vectors[0]) })},
	{"Dimensions is ignored", "Embeddings", embedding(func(req *vectorReq) (*vectorResp, error) { req.Dimensions = nil; return countBytes(req) })},
	{"tokens are a server error", "Embeddings", embedding(func(req *vectorReq) (*vectorResp, error) {
		if req.Input.Tokens != nil {
			return nil, errNotImplemented
		}
		return countBytes(req)
	})},
	{"the usage is negative", "Embeddings", editingVectors(func(resp *vectorResp) { resp.Usage.PromptTokens = -1 })},
	{"the Extra of the response is invalid", "Embeddings", editingVectors(func(resp *vectorResp) { resp.Extra = invalid })},
	{"the response and the error are nil", "Embeddings", embedding(func(*vectorReq) (*vectorResp, error) { return nil, nil })},
	{"concurrent calls are refused", "Embeddings", backendFixture(func(e *echo) { e.embed = exclusive(countBytes) })},

	{"vectors are in reverse order", "EmbeddingOrder", editingVectors(func(resp *vectorResp) { slices.Reverse(resp.Vectors) })},
	{"all vectors are the same", "EmbeddingOrder", editingVectors(func(resp *vectorResp) {
		for i := range resp.Vectors {
			resp.Vectors[i] = resp.Vectors[0]
		}
	})},
	{"any model is accepted", "EmbeddingUnknownModel", embedding(func(req *vectorReq) (*vectorResp, error) { req.Model = "embed"; return countBytes(req) })},
	{"the context is ignored", "EmbeddingCancelled", embedding(delayed(countBytes))},
}
