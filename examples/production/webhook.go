package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/quotawatch"
)

// A webhook posts quota events to a server. Its requests are signed as Standard Webhooks describes
// (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md), for
// which there are libraries in most languages.
type webhook struct {
	url    string
	secret []byte
	client *http.Client
}

const (
	webhookTimeout   = 15 * time.Second // of a request
	secretPrefix     = "whsec_"
	minWebhookSecret = 24 // bytes
)

var errWebhookSecret = errors.New("LLMHTTP_QUOTA_WEBHOOK_SECRET: must be " + secretPrefix + " and at least 24 random bytes in base64")

// newWebhook returns a webhook for a URL, with a secret as the libraries expect it. Errors contain
// neither of them.
func newWebhook(address, secret string) (*webhook, error) {
	if u, err := url.Parse(address); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, errors.New("-quota-webhook: expected a URL such as https://hooks.example.com/quota")
	}
	text, found := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !found || err != nil || len(key) < minWebhookSecret {
		return nil, errWebhookSecret
	}
	client := &http.Client{
		Timeout:       webhookTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &webhook{address, key, client}, nil
}

// A quotaMessage is the body of a request of a webhook.
type quotaMessage struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      quotaData `json:"data"`
}

type quotaData struct {
	Account     string     `json:"account"`
	SubjectKind string     `json:"subject_kind"` // "key", "account", "user" or another one
	Subject     string     `json:"subject"`
	Share       int        `json:"share"` // in percent
	Start       *time.Time `json:"start,omitempty"`
	UsedTokens  int64      `json:"used_tokens"`
	QuotaTokens int        `json:"quota_tokens,omitempty"`
	UsedCost    llm.Money  `json:"used_cost"` // in dollars, as a string
	QuotaCost   *llm.Money `json:"quota_cost,omitempty"`
}

func newQuotaMessage(e *quotawatch.Event, now time.Time) *quotaMessage {
	m := &quotaMessage{Type: "quota.reached", Timestamp: now.UTC(), Data: quotaData{
		Account: e.Account, SubjectKind: e.Subject.Kind, Subject: e.Subject.ID, Share: e.Share,
		UsedTokens: e.Tokens, QuotaTokens: e.Quota.Tokens, UsedCost: e.Cost,
	}}
	if !e.Start.IsZero() {
		m.Data.Start = &e.Start
	}
	if e.Quota.Cost != 0 {
		m.Data.QuotaCost = &e.Quota.Cost
	}
	return m
}

// quotaReached posts e once. A Watcher calls it again with backoff until the server replies with a 2xx.
func (w *webhook) quotaReached(ctx context.Context, e *quotawatch.Event) error {
	now := time.Now()
	body, err := json.Marshal(newQuotaMessage(e, now))
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	timestamp := strconv.FormatInt(now.Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", e.ID)
	req.Header.Set("Webhook-Timestamp", timestamp)
	req.Header.Set("Webhook-Signature", w.sign(e.ID, timestamp, body))
	resp, err := w.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL, which may contain a secret
		}
		return fmt.Errorf("webhook: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 1<<16) // so that the connection can be used again
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("webhook: the server replied %s", cmp.Or(http.StatusText(resp.StatusCode), resp.Status))
	}
	return nil
}

// sign returns the signature of a message.
func (w *webhook) sign(id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, w.secret)
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
