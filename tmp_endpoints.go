package llmhttp

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// serveEmbeddings serves POST /v1/embeddings.
func (q *request) serveEmbeddings() error {
	req := new(EmbeddingRequest)
	if err := q.readJSON(req); err != nil {
		return err
	}
	if err := req.check(); err != nil {
		return err
	}
	if err := q.useModel(req.Model); err != nil {
		return err
	}
	q.account.prompt = q.counter().input(&req.Input)
	if err := q.account.admit(max(q.account.prompt, 1)); err != nil {
		return err
	}
	if err := q.startBackend(); err != nil {
		return err
	}
	q.bill()
	format, inputs := req.EncodingFormat, req.Input.Len()
	resp, err := q.h.backend.Embed(q.ctx, req)
	q.res.backendReturned()
	if err != nil {
		return q.cause(err)
	}
	if resp != nil { // billed even if the client has left
		q.account.reported = resp.Usage
	}
	if err := q.cause(nil); err != nil {
		return err
	}
	if resp == nil || len(resp.Vectors) != inputs {
		return errors.New("llmhttp: the number of vectors that the Backend returned is not the number of inputs")
	}
	q.account.settle()
	answer := *resp
	answer.Usage = &q.account.record.Usage
	if answer.Model == "" {
		answer.Model = q.account.record.Model
	}
	return q.replyJSON(answer.encodedAs(format))
}

// input counts the tokens of the inputs of an embedding request.
func (c *tokenCounter) input(in *EmbeddingInput) int {
	n := 0
	for _, text := range in.Texts {
		n += c.text(text)
	}
	for _, tokens := range in.Tokens {
		n += len(tokens)
	}
	return n
}

// serveModels serves GET /v1/models: those that the key may use.
func (q *request) serveModels() error {
	models, err := q.listModels()
	if err != nil {
		return err
	}
	list := modelList{Object: "list", Data: []Model{}}
	for _, m := range models {
		if q.key.AllowsModel(m.ID) {
			list.Data = append(list.Data, m)
		}
	}
	return q.replyJSON(&list)
}

// serveModel serves GET /v1/models/{id}.
func (q *request) serveModel() error {
	id := q.r.PathValue("id")
	models, err := q.listModels()
	if err != nil {
		return err
	}
	for i := range models {
		if models[i].ID == id && q.key.AllowsModel(id) {
			return q.replyJSON(&models[i])
		}
	}
	return ModelNotFound(id)
}

func (q *request) listModels() ([]Model, error) {
	if err := q.account.admit(0); err != nil {
		return nil, err
	}
	if err := q.startBackend(); err != nil {
		return nil, err
	}
	models, err := q.h.backend.ListModels(q.ctx)
	q.res.backendReturned()
	if err != nil {
		return nil, q.cause(err)
	}
	return models, q.cause(nil)
}

// serveUsage serves GET /v1/dashboard/billing/usage: OpenAI's legacy reply, with
// costs in US cents, and besides the tokens, requests and images.
func (q *request) serveUsage() error {
	store := q.h.opts.Usage
	if store == nil {
		return errUnknownURL(q.r)
	}
	from, to, err := usageRange(q.r.URL.Query(), q.account.record.Time.UTC())
	if err != nil {
		return err
	}
	if err := q.account.admit(0); err != nil {
		return err
	}
	if err := q.startBackend(); err != nil {
		return err
	}
	sums, err := store.Query(q.ctx, UsageQuery{Account: q.key.Account, From: from, To: to, Step: day})
	q.res.backendReturned()
	if err != nil {
		return q.cause(&Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second, Message: "We could not read your usage. Please try again.", Err: err})
	}
	return q.replyJSON(q.billing(sums))
}

var _ context.Context
