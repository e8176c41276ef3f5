package otelllm

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/llmhttp/llmhttp"
)

// An attributeList is a list of attributes. Its methods append an attribute unless
// its value is empty, zero or nil.
type attributeList []attribute.KeyValue

func (l *attributeList) text(key attribute.Key, value string) {
	if value != "" {
		*l = append(*l, key.String(value))
	}
}

func (l *attributeList) number(key attribute.Key, n int) {
	if n != 0 {
		*l = append(*l, key.Int(n))
	}
}

func (l *attributeList) float(key attribute.Key, f *float64) {
	if f != nil {
		*l = append(*l, key.Float64(*f))
	}
}

// add returns the attributes as options for counters.
func (l attributeList) add() []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(l...))}
}

// record returns the attributes as options for histograms.
func (l attributeList) record() []metric.RecordOption {
	return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(l...))}
}

// with returns a copy of l with another attribute.
func (l attributeList) with(key attribute.Key, value string) attributeList {
	return append(l[:len(l):len(l)], key.String(value))
}

// labels are what the attributes of the metrics of a request depend on. Those that
// are empty are left out.
type labels struct {
	operation                             llmhttp.Operation
	protocol, requestModel, responseModel string
	errorType                             llmhttp.ErrorClass // not of usage
	account                               string             // only of usage
}

// samplingLabels returns the labels of a request that a sampler gets.
func samplingLabels(info *llmhttp.RequestInfo) labels {
	return labels{operation: info.Operation, requestModel: info.Model}
}

// attributes returns the attributes that all metrics of a request have.
func (l labels) attributes(provider string) attributeList {
	list := attributeList{attrOperation.String(operationName(l.operation)), attrProvider.String(provider)}
	list.text(attrProtocol, l.protocol)
	list.text(attrRequestModel, l.requestModel)
	list.text(attrResponseModel, l.responseModel)
	return list
}

// requestOptions are the attributes of the metrics of a request, as options of
// measurements.
type requestOptions struct {
	times []metric.RecordOption // of durations
	cut   []metric.AddOption    // of a stream that was cut

	// The others are of usage.
	input, output                    []metric.RecordOption
	cacheRead, cacheWrite, reasoning []metric.AddOption
	spend                            []metric.AddOption
}

func newRequestOptions(l labels, provider string) *requestOptions {
	request := l.attributes(provider)
	usage := slices.Clone(request)
	request.text(attrErrorType, string(l.errorType))
	usage.text(attrAccount, l.account)
	return &requestOptions{
		times: request.record(), cut: request.add(),
		input: usage.with(attrTokenType, tokenInput).record(), output: usage.with(attrTokenType, tokenOutput).record(),
		cacheRead: usage.with(attrTokenKind, tokenCacheRead).add(), cacheWrite: usage.with(attrTokenKind, tokenCacheWrite).add(),
		reasoning: usage.with(attrTokenKind, tokenReasoning).add(), spend: usage.add(),
	}
}

// refusalLabels are what the attributes of the metric of refusals depend on.
type refusalLabels struct{ limit, account string }

func (r refusalLabels) options() []metric.AddOption {
	var l attributeList
	l.text(attrLimit, r.limit)
	l.text(attrAccount, r.account)
	return l.add()
}

// tryLabels are what the attributes of the metric of tries depend on.
type tryLabels struct {
	operation        llmhttp.Operation
	provider, target string
	errorType        llmhttp.ErrorClass
}

func (t tryLabels) options() []metric.RecordOption {
	l := attributeList{attrOperation.String(operationName(t.operation)), attrProvider.String(t.provider)}
	l.text(attrTarget, t.target)
	l.text(attrErrorType, string(t.errorType))
	return l.record()
}

// operationName returns the value of gen_ai.operation.name.
func operationName(op llmhttp.Operation) string {
	switch op {
	case llmhttp.OperationChat:
		return operationChat
	case llmhttp.OperationEmbeddings:
		return operationEmbeddings
	case llmhttp.OperationImages:
		return operationGenerate
	}
	return string(op)
}
