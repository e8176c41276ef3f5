package otelllm

import (
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

// add returns the attributes as the options of a measurement.
func (l attributeList) add() []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(l...))}
}

// record returns the attributes as the options of a measurement.
func (l attributeList) record() []metric.RecordOption {
	return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(l...))}
}

// with returns a copy of l with another attribute.
func (l attributeList) with(key attribute.Key, value string) attributeList {
	return append(l[:len(l):len(l)], key.String(value))
}

// A labels has the attributes of the metrics of a request. Those that are empty
// are left out.
type labels struct {
	operation                             llmhttp.Operation
	protocol, requestModel, responseModel string
	errorType                             llmhttp.ErrorClass
	account                               string // only of usage
}

// A measurement has the options with which the metrics of a request are measured.
type measurement struct {
	request  []metric.RecordOption
	cut      []metric.AddOption
	input    []metric.RecordOption // of tokens, like those below
	output   []metric.RecordOption
	read     []metric.AddOption // from a cache
	write    []metric.AddOption // to a cache
	thoughts []metric.AddOption
	spend    []metric.AddOption
}

func (l labels) measurement(provider string) *measurement {
	call := l.call(provider)
	request, usage := call, call
	if l.errorType != "" {
		request = call.with(attrErrorType, string(l.errorType))
	}
	if l.account != "" {
		usage = call.with(attrAccount, l.account)
	}
	return &measurement{
		request: request.record(), cut: request.add(),
		input: usage.with(attrTokenType, tokenInput).record(), output: usage.with(attrTokenType, tokenOutput).record(),
		read: usage.with(attrTokenKind, tokenCacheRead).add(), write: usage.with(attrTokenKind, tokenCacheWrite).add(),
		thoughts: usage.with(attrTokenKind, tokenReasoning).add(), spend: usage.add(),
	}
}

// call returns the attributes that all metrics of a request have.
func (l labels) call(provider string) attributeList {
	list := attributeList{attrOperation.String(operationName(l.operation)), attrProvider.String(provider)}
	list.text(attrProtocol, l.protocol)
	list.text(attrRequestModel, l.requestModel)
	list.text(attrResponseModel, l.responseModel)
	return list
}

// A refusalLabels has the attributes of the metric of refusals.
type refusalLabels struct{ limit, account string }

func (r refusalLabels) options() []metric.AddOption {
	var l attributeList
	l.text(attrLimit, r.limit)
	l.text(attrAccount, r.account)
	return l.add()
}

// A tryLabels has the attributes of the metric of tries.
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
