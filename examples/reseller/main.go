// Reseller sells models of another server to tenants. Each has its own names for them, a monthly
// budget in dollars, limits for each end user, whom requests name in "user", and a webhook that is
// called when 80 % of the budget are used; instructions, texts that the model does not see, a log
// of prompts and replies for those who want it, and /usage.csv.
//
//	cd examples/reseller && ACME_KEY=sk-acme BOLT_KEY=sk-bolt UPSTREAM_KEY=sk-... go run . -upstream https://models.example.com/v1
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/pricing"
	"github.com/llmhttp/llmhttp/quotawatch"
	"github.com/llmhttp/llmhttp/sqlstore"
	"github.com/llmhttp/llmhttp/upstream"
)

// A tenant is an account, as tenants.json describes it, and the Data of its key.
type tenant struct {
	SecretEnv    string            // the environment variable with its API key
	Budget       llm.Money         // in dollars, for a calendar month in UTC
	UserRequests int               // a minute, of each end user
	Models       map[string]string // the upstream's names of models, by the tenant's
	Webhook      string            // a URL; empty for none
	Instructions string            // for the model, before the messages of every chat
	Hide         []string          // texts that the model does not see, such as names of persons
	LogTexts     bool              // whether prompts and replies are logged
	backend      llmhttp.Backend
}

// key prepares t to serve, and returns its key.
func (t *tenant) key(name, upstreamURL string) (key *llmhttp.Key, err error) {
	if t.Budget <= 0 || t.UserRequests <= 0 || os.Getenv(t.SecretEnv) == "" {
		return nil, fmt.Errorf("tenant %s: Budget and UserRequests must be positive, and the variable %q set", name, t.SecretEnv)
	}
	b, err := upstream.New(upstreamURL, &upstream.Options{Key: os.Getenv("UPSTREAM_KEY"), Models: t.Models})
	if err != nil {
		return nil, err
	}
	t.backend = t.wrap(b)
	account := llmhttp.Subject{
		ID:     llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: name},
		Limits: llmhttp.Limits{Quota: llmhttp.Quota{Cost: t.Budget}},
	}
	return &llmhttp.Key{
		ID: name, Account: name, Data: t, Subjects: []llmhttp.Subject{account},
		Models:  slices.AppendSeq([]string{}, maps.Keys(t.Models)),
		PerUser: llmhttp.Limits{Requests: llmhttp.PerMinute(t.UserRequests), Concurrent: 2},
	}, nil
}

// checkPrices returns an error if a model of the tenant has no price.
func (t *tenant) checkPrices(name string, prices *pricing.Table) error {
	for model := range t.Models {
		used := llmhttp.Units{PromptTokens: 1, CompletionTokens: 1}
		if _, err := prices.Price(&llmhttp.UsageRecord{Account: name, Model: model, Units: used}); err != nil {
			return fmt.Errorf("tenant %s: %w", name, err)
		}
	}
	return nil
}

// tenants are all tenants, by their names.
type tenants map[string]*tenant

// quotaReached calls the webhook of a tenant when 80 % of its budget are used. If it fails, it is
// called again.
func (t tenants) quotaReached(ctx context.Context, e *quotawatch.Event) error {
	url := t[e.Account].Webhook
	if url == "" || e.Share != 80 || e.Subject.Kind != llmhttp.KindAccount {
		return nil
	}
	body, _ := json.Marshal(
		map[string]any{"id": e.ID, "tenant": e.Account, "month": e.Start.Format("2006-01"), "budget": e.Quota.Cost, "used": e.Cost},
	) // no error
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		return fmt.Errorf("the webhook of tenant %s answers %s", e.Account, res.Status)
	}
	return nil
}

// A shop is a Backend that serves each request by the Backend of its tenant.
type shop struct{}

func (shop) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return llmhttp.KeyFrom(ctx).Data.(*tenant).backend.Chat(ctx, req)
}
func (shop) ListModels(ctx context.Context) ([]llm.Model, error) {
	lister, ok := llmhttp.As[llmhttp.ModelLister](ctx, llmhttp.KeyFrom(ctx).Data.(*tenant).backend)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return lister.ListModels(ctx)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	upstreamURL := flag.String("upstream", "", "`URL` of the server that has the models")
	flag.Parse()
	l, err := net.Listen("tcp", *addr)
	if err == nil {
		err = run(ctx, l, *upstreamURL, "tenants.json", "reseller.db")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx is done.
func run(ctx context.Context, l net.Listener, upstreamURL, file, db string) error {
	var sellers tenants
	text, err := os.ReadFile(file)
	if err = cmp.Or(err, json.Unmarshal(text, &sellers)); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	prices, err := pricing.ReadFile("prices.json", &pricing.Options{Name: func(r *llmhttp.UsageRecord) string {
		return sellers[r.Account].Models[r.Model]
	}})
	if err != nil {
		return err
	}
	store, err := sqlstore.Open(ctx, db, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	keys := make(map[string]*llmhttp.Key) // by the hash of the secret
	for name, t := range sellers {
		key, err := t.key(name, upstreamURL)
		if err := cmp.Or(err, t.checkPrices(name, prices)); err != nil {
			return err
		}
		keys[llmhttp.HashSecret(os.Getenv(t.SecretEnv))] = key
	}
	lookup := func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if key := keys[llmhttp.HashSecret(secret)]; key != nil {
			return key, nil
		}
		return nil, llmhttp.ErrKeyNotFound
	}
	watcher := quotawatch.New(store, sellers.quotaReached, nil)
	h := llmhttp.NewHandler(
		shop{},
		llmhttp.KeyStoreFunc(lookup),
		&llmhttp.Options{Routes: all.Routes(nil), Usage: store, Price: prices.Price, Observe: llmhttp.Observers(observe, watcher.Observe)},
	)
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.HandleFunc("GET /usage.csv", usageCSV(h, llmhttp.KeyStoreFunc(lookup), store))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 5 * time.Minute}
	err = llmhttp.Serve(ctx, server, h, nil, l)
	return errors.Join(err, watcher.Close(context.Background()))
}
