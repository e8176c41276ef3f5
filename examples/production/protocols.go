package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/responsestore"
	"github.com/llmhttp/llmhttp/sqlstore"
)

// A protocolConfig holds the values of the flags about protocols other than chat
// completions.
type protocolConfig struct {
	messages, responses, storeResponses bool
	keepResponses                       time.Duration
	secretFile                          string
}

// protocols returns the protocols that the flags switch on.
func (c *protocolConfig) protocols(store *sqlstore.Store) ([]llmhttp.Protocol, error) {
	var all []llmhttp.Protocol
	if c.messages {
		all = append(all, messages.New(nil))
	}
	if !c.responses {
		return all, nil
	}
	opts := &responses.Options{KeepFor: c.keepResponses}
	if c.storeResponses {
		opts.Store = store
	}
	var err error
	if opts.Secret, err = c.readSecret(); err != nil {
		return nil, err
	}
	return append(all, responses.New(opts)), nil
}

// minSecret is the length of the shortest secret, in bytes.
const minSecret = 32

// readSecret returns the secret that encrypts reasoning and summaries. It is nil if none is configured:
// then each process has its own. It is never on the command line, which others can read.
func (c *protocolConfig) readSecret() ([]byte, error) {
	secret, from := []byte(os.Getenv("LLMHTTP_RESPONSES_SECRET")), "LLMHTTP_RESPONSES_SECRET"
	if c.secretFile != "" {
		if len(secret) > 0 {
			return nil, errors.New("-responses-secret-file and LLMHTTP_RESPONSES_SECRET exclude each other")
		}
		text, err := os.ReadFile(c.secretFile)
		if err != nil {
			return nil, fmt.Errorf("-responses-secret-file: %w", err)
		}
		secret, from = bytes.TrimSpace(text), "-responses-secret-file"
	} else if len(secret) == 0 {
		return nil, nil
	}
	if len(secret) < minSecret {
		return nil, fmt.Errorf("%s: the secret has less than %d characters", from, minSecret)
	}
	return secret, nil
}

// tryResponse reads a response that does not exist. It returns nil if the table answers.
func tryResponse(ctx context.Context, store responsestore.Store) error {
	_, err := store.LoadResponse(ctx, "", "resp_readyz")
	if errors.Is(err, responsestore.ErrNotFound) {
		return nil
	}
	return err
}
