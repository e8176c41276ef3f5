// Reseller sells models of another server to tenants. Each has its own names for them, a monthly budget in dollars,
// limits for each end user, whom requests name in "user", and a webhook that is called when 80 % of the budget are used.
//
//	cd examples/reseller && ACME_KEY=sk-acme BOLT_KEY=sk-bolt UPSTREAM_KEY=sk-... go run . -upstream https://models.example.com/v1
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
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
	"github.com/llmhttp/llmhttp/pricing"
	"github.com/llmhttp/llmhttp/sqlstore"
	"github.com/llmhttp/llmhttp/upstream"
)

// A tenant is an account, as tenants.json describes it, and the Data of its key.
type tenant struct {
	SecretEnv    string            // the environment variable with its API key
	Budget       llmhttp.Money     // in dollars, for a calendar month in UTC
	UserRequests int               // a minute, of each end user
	Models       map[string]string // the upstream's names of models, by the tenant's
	Webhook      string            // a URL; empty for none
	backend      *upstream.Backend
	warned       time.Time // the month in which the webhook was called last
}

// key prepares t to serve, and returns its key.
func (t *tenant) key(name, upstreamURL string) (key *llmhttp.Key, err error) {
	if t.Budget <= 0 || t.UserRequests <= 0 || os.Getenv(t.SecretEnv) == "" {
		return nil, fmt.Errorf("tenant %s: Budget and UserRequests must be positive, and the variable %q set", name, t.SecretEnv)
	}
	t.backend, err = upstream.New(upstreamURL, &upstream.Options{Key: os.Getenv("UPSTREAM_KEY"), Models: t.Models})
	account := llmhttp.Subject{ID: llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: name}, Limits: llmhttp.Limits{Quota: llmhttp.Quota{Cost: t.Budget}}}
	return &llmhttp.Key{
		ID: name, Account: name, Data: t, Subjects: []llmhttp.Subject{account},
		Models:  slices.AppendSeq([]string{}, maps.Keys(t.Models)),
		PerUser: llmhttp.Limits{Requests: llmhttp.PerMinute(t.UserRequests), Concurrent: 2},
	}, err
}

// warn calls the webhook if 80 % of the budget are used, once in each month. After a failure the
// next call of warn tries again, and after a restart the first one does.
func (t *tenant) warn(ctx context.Context, name string, usage llmhttp.UsageStore) error {
	month := llmhttp.Quota{}.Start(time.Now()) // as that of the budget
	if t.Webhook == "" || t.warned.Equal(month) {
		return nil
	}
	sums, err := usage.Query(ctx, llmhttp.UsageQuery{Account: name, From: month, To: month.AddDate(0, 1, 0)})
	var cost llmhttp.Cost
	for _, sum := range sums {
		cost.Add(sum.Cost)
	}
	if err != nil || cost.Total() < t.Budget.Scale(80, 100) {
		return err
	}
	body, _ := json.Marshal(map[string]any{"tenant": name, "month": month.Format("2006-01"), "budget": t.Budget, "used": cost.Total()}) // no error
	res, err := (&http.Client{Timeout: 10 * time.Second}).Post(t.Webhook, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		return fmt.Errorf("the webhook answers %s", res.Status)
	}
	t.warned = month
	return nil
}

// A shop is a Backend that serves each request by the Backend of its tenant.
type shop struct{}

func (shop) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	return llmhttp.KeyFrom(ctx).Data.(*tenant).backend.Chat(ctx, req)
}
func (shop) ListModels(ctx context.Context) ([]llmhttp.Model, error) {
	return llmhttp.KeyFrom(ctx).Data.(*tenant).backend.ListModels(ctx)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	upstreamURL := flag.String("upstream", "", "`URL` of the server that has the models")
	flag.Parse()
	l, err := net.Listen("tcp", *addr)
	if err == nil {
		err = run(ctx, l, *upstreamURL, "tenants.json", "reseller.db", 10*time.Second)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx is done. It looks at the budgets once in each interval.
func run(ctx context.Context, l net.Listener, upstreamURL, file, db string, interval time.Duration) error {
	var tenants map[string]*tenant // by name
	text, err := os.ReadFile(file)
	if err = cmp.Or(err, json.Unmarshal(text, &tenants)); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	prices, err := pricing.ReadFile("prices.json", &pricing.Options{Name: func(r *llmhttp.UsageRecord) string {
		return tenants[r.Account].Models[r.Model]
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
	for name, t := range tenants {
		key, err := t.key(name, upstreamURL)
		if err != nil {
			return err
		}
		keys[llmhttp.HashSecret(os.Getenv(t.SecretEnv))] = key
		go func() {
			for ; ctx.Err() == nil; time.Sleep(interval) {
				if err := t.warn(ctx, name, store); err != nil {
					log.Printf("tenant %s: budget: %v", name, err)
				}
			}
		}()
	}
	lookup := func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if key := keys[llmhttp.HashSecret(secret)]; key != nil {
			return key, nil
		}
		return nil, llmhttp.ErrKeyNotFound
	}
	h := llmhttp.NewHandler(shop{}, llmhttp.KeyStoreFunc(lookup), &llmhttp.Options{Usage: store, Price: prices.Price})
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 5 * time.Minute}
	return llmhttp.Serve(ctx, server, h, nil, l)
}
