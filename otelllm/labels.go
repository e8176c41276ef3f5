// The attributes of metrics.

package otelllm

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/imageedit"
)

// An attributeList is a list of attributes. addString, addInt, addCount and addFloat append an
// attribute unless its value is empty, zero or nil.
type attributeList []attribute.KeyValue

func (l *attributeList) addString(key attribute.Key, value string) {
	if value != "" {
		*l = append(*l, key.String(value))
	}
}

func (l *attributeList) addInt(key attribute.Key, n int) { l.addCount(key, int64(n)) }

func (l *attributeList) addCount(key attribute.Key, n int64) {
	if n != 0 {
		*l = append(*l, key.Int64(n))
	}
}

func (l *attributeList) addFloat(key attribute.Key, f *float64) {
	if f != nil {
		*l = append(*l, key.Float64(*f))
	}
}

// counterOptions returns the attributes as options for counters.
func (l attributeList) counterOptions() []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(l...))}
}

// histogramOptions returns the attributes as options for histograms.
func (l attributeList) histogramOptions() []metric.RecordOption {
	return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(l...))}
}

// with returns a copy of l with another attribute.
func (l attributeList) with(key attribute.Key, value string) attributeList {
	return append(l[:len(l):len(l)], key.String(value))
}

// requestLabels are the values in the attributes of a request's metrics, and the key
// of these attributes in a cache. Values that are empty are left out.
type requestLabels struct {
	operation                             llmhttp.Operation
	protocol, requestModel, responseModel string
	errorType                             llmhttp.ErrorClass // not of usage
	account                               string             // only of usage
}

// samplingLabels returns the labels of a request that a sampler gets.
func samplingLabels(info *llmhttp.RequestInfo) requestLabels {
	return requestLabels{operation: info.Operation, requestModel: info.Model}
}

// attributes returns the attributes that all metrics of a request have.
func (l requestLabels) attributes(provider string) attributeList {
	list := attributeList{attrOperation.String(operationName(l.operation)), attrProvider.String(provider)}
	list.addString(attrProtocol, l.protocol)
	list.addString(attrRequestModel, l.requestModel)
	list.addString(attrResponseModel, l.responseModel)
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

func newRequestOptions(l requestLabels, provider string) *requestOptions {
	request := l.attributes(provider)
	usage := slices.Clone(request)
	request.addString(attrErrorType, string(l.errorType))
	usage.addString(attrAccount, l.account)
	return &requestOptions{
		times: request.histogramOptions(), cut: request.counterOptions(),
		input: usage.with(attrTokenType, tokenInput).histogramOptions(), output: usage.with(attrTokenType, tokenOutput).histogramOptions(),
		cacheRead: usage.with(attrTokenKind, tokenCacheRead).
			counterOptions(),
		cacheWrite: usage.with(attrTokenKind, tokenCacheWrite).counterOptions(),
		reasoning:  usage.with(attrTokenKind, tokenReasoning).counterOptions(), spend: usage.counterOptions(),
	}
}

// refusalLabels are the values in the attributes of a refusal.
type refusalLabels struct{ limit, subjectKind, account string }

func (r refusalLabels) options() []metric.AddOption {
	var l attributeList
	l.addString(attrLimit, r.limit)
	l.addString(attrLimitSubject, r.subjectKind)
	l.addString(attrAccount, r.account)
	return l.counterOptions()
}

// tryLabels are the values in the attributes of a try.
type tryLabels struct {
	operation        llmhttp.Operation
	provider, target string
	errorType        llmhttp.ErrorClass
}

func (t tryLabels) options() []metric.RecordOption {
	l := attributeList{attrOperation.String(operationName(t.operation)), attrProvider.String(t.provider)}
	l.addString(attrTarget, t.target)
	l.addString(attrErrorType, string(t.errorType))
	return l.histogramOptions()
}

// operationName returns the value of gen_ai.operation.name.
func operationName(op llmhttp.Operation) string {
	switch op {
	case llmhttp.OperationChat:
		return operationChat
	case completion.Operation:
		return operationCompletion
	case llmhttp.OperationEmbeddings:
		return operationEmbeddings
	case llmhttp.OperationImages, imageedit.Operation, audio.OperationSpeech:
		return operationGenerate
	}
	return string(op)
}
