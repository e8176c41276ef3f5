// Options, Target and Telemetry, which belongs to any number of Handlers.

package otelllm

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"reflect"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/llmhttp/llmhttp/usagebuffer"
)

// Options configures a [Telemetry]. The zero value is ready to use.
type Options struct {
	// TracerProvider makes spans. Nil means the global one.
	TracerProvider trace.TracerProvider

	// MeterProvider makes instruments. Nil means the global one.
	MeterProvider metric.MeterProvider

	// LoggerProvider emits events. Nil means the global one.
	LoggerProvider log.LoggerProvider

	// ProviderName is the value of gen_ai.provider.name: the host's own name, or a
	// name of the conventions such as "openai". If empty, it is "llmhttp".
	ProviderName string

	// Targets describes targets by the names that a Backend passes to
	// [llmhttp.StartTry]. A target need not be in it.
	Targets map[string]Target

	// Models are the names of models, in requests and in replies, that may become an
	// attribute of a metric. Other names become "_OTHER". If nil, the first 100
	// names of requests that succeeded and of their replies may; if empty, none. Set
	// it if the Backend accepts names that clients make up.
	Models []string

	// Accounts adds the account to the metrics of tokens, spend and refusals as
	// llmhttp.account. Each of the first 1,000 accounts then has series of its own, for each
	// model that it uses; other accounts become "_OTHER". The SDK keeps 2,000 series of an
	// instrument unless its WithCardinalityLimit permits more.
	Accounts bool

	// UsageBuffer is observed by metrics of its records. It may be nil.
	UsageBuffer *usagebuffer.Buffer

	// Health returns whether the process is ready for requests, and for each of its
	// checks, by name, whether the last one succeeded, for the metrics llmhttp.ready and
	// llmhttp.check.success. It is called when metrics are collected, and must be safe
	// for concurrent use. If nil, these metrics are not recorded. Return all names from
	// the first call on, because an alert may miss a series that begins with a failure.
	Health func() (ready bool, checks map[string]bool)

	// CaptureContent records the messages, tools and replies of chats on spans that
	// are sampled, as JSON.
	CaptureContent bool

	// ContentEvents emits an event for each chat that reached the Backend, whether
	// its span is sampled or not, with the attributes of the span and the messages,
	// tools and replies in structured form.
	ContentEvents bool

	// ContentHook is called for each chat that reached the Backend, before its span
	// ends and whether it is sampled or not. It may upload the content, set a
	// reference to it on the span, and modify the content, which is recorded
	// afterwards if CaptureContent or ContentEvents is true. The request waits for
	// it. It must be safe for concurrent use.
	ContentHook func(ctx context.Context, span trace.Span, c *Content)

	// ContentLimit is the maximum number of bytes of the texts of a request, and of
	// those of a reply. Zero means 16 KiB; negative means no limit. Of a single text at
	// most 64 KiB are kept.
	ContentLimit int64
}

// A Target is a server that a Backend calls.
type Target struct {
	ProviderName string // the value of gen_ai.provider.name; if empty, Options.ProviderName
	Address      string // the value of server.address; not set if empty
	Port         int    // the value of server.port; zero means that it is not set; negative is an error of New
}

// A Telemetry makes spans and metrics of the requests of Handlers. It may be used
// concurrently.
type Telemetry struct {
	opts       Options
	tracer     trace.Tracer
	logger     log.Logger
	metrics    *metrics
	batch      batch // requests whose metrics are recorded later
	models     *nameSet
	accounts   *nameSet                          // with Options.Accounts
	spanStarts *cache[requestLabels, *spanStart] // of known models
}

// New returns a Telemetry, which keeps a copy of opts. Nil means the zero Options.
// The error names the Target whose Port is not valid or the provider that holds a nil pointer, or is
// that of a MeterProvider that refuses an instrument.
func New(opts *Options) (*Telemetry, error) {
	t := new(Telemetry)
	if opts != nil {
		t.opts = *opts
	}
	o := &t.opts
	if err := checkInterfaces(o); err != nil {
		return nil, err
	}
	for name, target := range o.Targets {
		if target.Port < 0 || target.Port > math.MaxUint16 {
			return nil, fmt.Errorf("otelllm: Options.Targets[%q].Port is %d", name, target.Port)
		}
	}
	o.TracerProvider = cmp.Or(o.TracerProvider, otel.GetTracerProvider())
	o.MeterProvider = cmp.Or(o.MeterProvider, otel.GetMeterProvider())
	o.LoggerProvider = cmp.Or(o.LoggerProvider, otel.GetLoggerProvider())
	o.ProviderName = cmp.Or(o.ProviderName, "llmhttp")
	t.models, t.accounts, t.spanStarts = newModelNames(o.Models), newNameSet(maxAccounts), newCache(t.newSpanStart)
	t.tracer = o.TracerProvider.Tracer(scopeName, trace.WithSchemaURL(schemaURL))
	t.logger = o.LoggerProvider.Logger(scopeName, log.WithSchemaURL(schemaURL))
	t.batch.record = t.record
	var err error
	t.metrics, err = newMetrics(o.MeterProvider.Meter(scopeName, metric.WithSchemaURL(schemaURL)), o, t.batch.flush)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// checkInterfaces returns an error that names the first interface in opts that holds a nil pointer or
// function.
func checkInterfaces(opts *Options) error {
	v := reflect.ValueOf(opts).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Interface && !f.IsNil() && isNil(f.Interface()) {
			return fmt.Errorf("otelllm: Options.%s holds a nil %T", v.Type().Field(i).Name, f.Interface())
		}
	}
	return nil
}

// isNil reports whether v is nil or holds a nil pointer or function: a variable that was never set, whose methods
// would fail at the first request.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || (r.Kind() == reflect.Pointer || r.Kind() == reflect.Func) && r.IsNil()
}
