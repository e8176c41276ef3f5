package tasks

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anthropics/anthropic-sdk-go/option"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llmfake"
)

func TestLlmfake_1(t *testing.T) {
	srv := llmfake.NewServer(t)
	srv.Reply(llmfake.Text("It rains."))
	got, err := ask(t.Context(), newClient(openaioption.WithBaseURL(srv.OpenAIURL())), "Rain?")
	require.NoError(t, err)
	assert.Equal(t, "It rains.", got)
}

func TestLlmfake_2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := llmfake.NewServer(t)
		srv.Reply(llmfake.Words("It rains today.", time.Minute))
		began, times := time.Now(), []time.Duration(nil)
		err := read(t.Context(), newClient(openaioption.WithHTTPClient(srv.Client())), "Rain?", func(string) {
			times = append(times, time.Since(began))
		})
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute}, times)
	})
}

func TestLlmfake_3(t *testing.T) {
	srv := llmfake.NewServer(t)
	srv.Reply(llmfake.Call("forecast", forecast{City: "Bergen"}), llmfake.Text("It rains."))
	got, err := runAgent(t.Context(), newClient(openaioption.WithBaseURL(srv.OpenAIURL())), "Rain?")
	require.NoError(t, err)
	assert.Equal(t, "It rains.", got)
	srv.Request(1).WantToolResult("forecast", "rain: ")
}

func TestLlmfake_4(t *testing.T) {
	srv := llmfake.NewServer(t)
	srv.Reply(llmfake.JSON(forecast{"Bergen", true}))
	got, err := extract(t.Context(), newClient(openaioption.WithBaseURL(srv.OpenAIURL())), "Rain?")
	require.NoError(t, err)
	assert.Equal(t, forecast{"Bergen", true}, got)
}

func TestLlmfake_5(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := llmfake.NewServer(t)
		srv.Reply(llmfake.RateLimited(20*time.Second), llmfake.Text("It rains."))
		began := time.Now()
		got, err := ask(t.Context(), newClient(openaioption.WithHTTPClient(srv.Client())), "Rain?")
		require.NoError(t, err)
		assert.Equal(t, "It rains.", got)
		assert.GreaterOrEqual(t, time.Since(began), 20*time.Second)
	})
}

func TestLlmfake_6(t *testing.T) {
	srv := llmfake.NewServer(t)
	srv.Reply(llmfake.Text("It rains").Cut())
	var got string
	err := read(t.Context(), newClient(openaioption.WithBaseURL(srv.OpenAIURL())), "Rain?", func(s string) { got += s })
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, "It rains", got)
}

func TestLlmfake_7(t *testing.T) {
	srv := llmfake.NewServer(t)
	_, err := ask(t.Context(), newClient(openaioption.WithBaseURL(srv.OpenAIURL())), "Rain?")
	require.NoError(t, err)
	srv.Request(0).WantModel("gpt-4o").WantSystem("Be brief.").WantUserText("Rain?").WantHeader("Authorization", "Bearer test")
}

func TestLlmfake_8(t *testing.T) {
	tb := &fakeTB{TB: t}
	srv := llmfake.NewServer(tb)
	srv.When(llmfake.UserText("Snow?")).Reply(llmfake.Text("No."))
	ask(t.Context(), newClient(openaioption.WithBaseURL(srv.OpenAIURL())), "Rain?")
	srv.Close()
	assert.Contains(t, tb.errors, `unexpected request 1: POST /v1/chat/completions, model "gpt-4o", user "Rain?"`)
	assert.Contains(t, tb.errors, `When(UserText("Snow?")): Text("No."), set at llmfake_test.go:`)
}

func TestLlmfake_9(t *testing.T) {
	srv := llmfake.NewReplay(t, nil)
	got, err := ask(t.Context(), newClient(openaioption.WithBaseURL(srv.OpenAIURL())), "Rain?")
	require.NoError(t, err)
	assert.Equal(t, "It rains.", got)
}

func TestLlmfake_10(t *testing.T) {
	srv := llmfake.NewServer(t)
	srv.Reply(llmfake.Text("It rains."))
	got, err := askClaude(t.Context(), newClaude(option.WithBaseURL(srv.URL())), "Rain?")
	require.NoError(t, err)
	assert.Equal(t, "It rains.", got)
}
