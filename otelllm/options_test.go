package otelllm_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/otelllm"
)

func TestNew_Port(t *testing.T) {
	for port, want := range map[int]string{
		-1: `otelllm: Options.Targets["a"].Port is -1`, 0: "", 443: "", 65535: "", 65536: `otelllm: Options.Targets["a"].Port is 65536`,
	} {
		_, err := otelllm.New(&otelllm.Options{Targets: map[string]otelllm.Target{"a": {Port: port}}})
		if want == "" {
			assert.NoError(t, err)
		} else {
			assert.EqualError(t, err, want)
		}
	}
}
