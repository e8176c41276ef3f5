package otelllm

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// maxOptions is how many sets of attributes are kept. More are made anew, which
// only accounts can cause.
const maxOptions = 10_000

// labels are the attributes of a measurement; those that are empty are left out.
type labels struct {
	operation, protocol, model, errorType, account string
	extra                                          attribute.Key // an attribute of one metric, and its value
	value                                          string
}

// measurement has the attributes of labels as options.
type measurement struct {
	record []metric.RecordOption
	add    []metric.AddOption
}

// An optionCache keeps measurements: to make one takes longer than to record it
// (BenchmarkCost).
type optionCache struct {
	provider string

	mu   sync.RWMutex // guards made
	made map[labels]*measurement
}

func newOptionCache(provider string) *optionCache {
	return &optionCache{provider: provider, made: make(map[labels]*measurement)}
}

func (c *optionCache) get(l labels) *measurement {
	c.mu.RLock()
	m := c.made[l]
	c.mu.RUnlock()
	if m != nil {
		return m
	}
	set := metric.WithAttributeSet(attribute.NewSet(l.attributes(c.provider)...))
	m = &measurement{[]metric.RecordOption{set}, []metric.AddOption{set}}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.made) < maxOptions {
		c.made[l] = m
	}
	return m
}

func (l *labels) attributes(provider string) []attribute.KeyValue {
	var attrs []attribute.KeyValue
	add := func(key attribute.Key, value string) {
		if value != "" {
			attrs = append(attrs, key.String(value))
		}
	}
	if l.operation != "" {
		add(attrOperation, l.operation)
		add(attrProvider, provider)
	}
	add(attrProtocol, l.protocol)
	add(attrRequestModel, l.model)
	add(attrErrorType, l.errorType)
	add(attrAccount, l.account)
	add(l.extra, l.value)
	return attrs
}
