// Observer, and what it gets: RequestInfo, RequestSummary and their parts.

package llmhttp

import (
	"context"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp/llm"
)

// An Observer is called when a request begins. It returns the context in which to serve the
// request, which must derive from ctx, or nil for ctx itself. The Observation has the functions to
// call as the request proceeds; the zero Observation has none.
//
// [RequestIDFrom] of ctx is the ID of the request. An Observer must be safe for
// concurrent use and must not read the body of the request.
type Observer func(ctx context.Context, r *http.Request) (context.Context, Observation)

// An Observation is what an [Observer] does for one request. Each function may be nil. A function
// must return soon: the request waits for it.
type Observation struct {
	// Started is called before the Backend is called for an operation that calls
	// a model, when the request has been decoded, checked and admitted. It
	// returns the context for the Backend and for the stores that settle the
	// request. That must derive from ctx; nil means ctx itself. Started must not
	// modify info, but may keep it. [RequestInfoFrom] returns the same.
	Started func(ctx context.Context, info *RequestInfo) context.Context

	// Try is called when a Backend begins to call one of several targets: see
	// [StartTry]. It returns the context for the call, which must derive from ctx,
	// or nil for ctx itself, and a function to call when the call has ended, or nil.
	// It may be called concurrently if the Backend calls StartTry concurrently.
	Try func(ctx context.Context, target string) (context.Context, func(TargetTry))

	// Transcript receives the texts of a chat before Ended is called, if the
	// Backend was called. Texts are only collected if this function is set.
	Transcript func(*Transcript)

	// WantTranscript decides for which chats Transcript is called, for example only for those of
	// the keys of one tenant. It is called if Transcript is set, after Started, with the context
	// for the Backend, for which [KeyFrom] returns the key. It must not modify info. Nothing is
	// collected of a chat for which it returns false. Nil wants every chat.
	WantTranscript func(ctx context.Context, info *RequestInfo) bool

	// TranscriptLimit is the maximum number of bytes of the texts of the request,
	// and of those of the reply. Zero means 16 KiB; negative means no limit. Of a
	// single text at most 64 KiB are kept.
	TranscriptLimit int64

	// Ended is called once when the request has ended, whether it succeeded,
	// failed, panicked or was abandoned by its client. It may keep its argument.
	Ended func(*RequestSummary)
}

// Observers returns an Observer that calls each of obs in order. Functions that
// mark an end are called in reverse order; if one panics, the others are still
// called. If an Observer panics, those before it still learn of the end of the
// request, which fails. If several ask for a Transcript of a chat, all of these get the same, which
// has the largest of their limits.
func Observers(obs ...Observer) Observer {
	return func(ctx context.Context, r *http.Request) (context.Context, Observation) {
		var all observations
		request, returned := ctx, false
		defer func() {
			if !returned {
				keepObservation(request, all)
			}
		}()
		for _, o := range obs {
			if o == nil {
				continue
			}
			next, observation := o(ctx, r)
			if next != nil {
				ctx = next
			}
			all = append(all, observation)
		}
		returned = true
		return ctx, all.join()
	}
}

type observations []Observation

// join returns an Observation with the functions that at least one of all has.
func (all observations) join() Observation {
	var joined Observation
	for _, o := range all {
		if o.Started != nil {
			joined.Started = all.started
		}
		if o.Try != nil {
			joined.Try = all.try
		}
		if o.Transcript != nil {
			joined.Transcript, joined.WantTranscript = all.transcript, all.wantTranscript
			joined.TranscriptLimit = max(joined.TranscriptLimit, o.transcriptLimit())
		}
		if o.Ended != nil {
			joined.Ended = all.ended
		}
	}
	return joined
}

func (all observations) started(ctx context.Context, info *RequestInfo) context.Context {
	for _, o := range all {
		if o.Started != nil {
			if next := o.Started(ctx, info); next != nil {
				ctx = next
			}
		}
	}
	return ctx
}

func (all observations) try(ctx context.Context, target string) (context.Context, func(TargetTry)) {
	var ends []func(TargetTry)
	for _, o := range all {
		if o.Try == nil {
			continue
		}
		next, end := o.Try(ctx, target)
		if next != nil {
			ctx = next
		}
		if end != nil {
			ends = append(ends, end)
		}
	}
	return ctx, func(t TargetTry) {
		for _, end := range ends {
			defer end(t)
		}
	}
}

// wantTranscript reports whether one of all wants a Transcript. Those that do not are not asked for
// theirs later: their Transcript is set to nil.
func (all observations) wantTranscript(ctx context.Context, info *RequestInfo) (wanted bool) {
	for i := range all {
		o := &all[i]
		if o.Transcript == nil {
			continue
		}
		if o.wantsTranscript(ctx, info) {
			wanted = true
		} else {
			o.Transcript = nil
		}
	}
	return wanted
}

// wantsTranscript reports whether o wants a Transcript of a chat.
func (o *Observation) wantsTranscript(ctx context.Context, info *RequestInfo) bool {
	return o.Transcript != nil && (o.WantTranscript == nil || o.WantTranscript(ctx, info))
}

func (all observations) transcript(t *Transcript) {
	for _, o := range all {
		if o.Transcript != nil {
			defer o.Transcript(t)
		}
	}
}

func (all observations) ended(s *RequestSummary) {
	for _, o := range all {
		if o.Ended != nil {
			defer o.Ended(s)
		}
	}
}

// An Operation is what a request asks a model to do: an operation that calls a model, as this
// package names them in its comments, is one of those that [Operations] returns. Requests that
// call no model, such as for the list of models, have none. Unlike a [Scope], it is the name for
// Observers, and has nothing to do with the scopes of keys.
type Operation string

// A RequestInfo describes a request that is passed to the Backend. It contains no
// secrets and no messages. All its texts but ID, Account, KeyID and Protocol are
// chosen by the client.
type RequestInfo struct {
	ID           string
	Account      string
	KeyID        string
	Protocol     string    // the name of the wire format; "chat" for the endpoints of OpenAI's API
	Operation    Operation // never empty
	Model        string    // the name that the client used; at most 512 bytes
	Conversation string    // the ID that [SetConversation] has set; empty if it was not called
	Stream       bool      // whether the client asked for a stream
	Arrived      time.Time // when the request arrived, by the clock of the system
	Params       RequestParams
}

// RequestParams are the parameters of a request. A nil pointer or a zero means
// that the client did not set the parameter, or that the operation has no such
// parameter.
type RequestParams struct {
	MaxTokens          int // of each choice
	Choices            int // the number of choices or images that the client gets, at least 1
	Messages           int // the number of messages, of prompts, of inputs of an embedding, of documents to rerank, or of results of a moderation
	Tools              int // the number of tools
	Temperature        *float64
	TopP               *float64
	TopK               *float64
	PresencePenalty    *float64
	FrequencyPenalty   *float64
	Seed               *int
	Stop               []string
	ReasoningEffort    string // for example "low"; not checked
	ResponseFormatType string // "text", "json_object" or "json_schema"
	EncodingFormat     string // of embeddings
	Dimensions         int    // of embeddings
}

// A RequestSummary describes a request that has ended. It contains no API keys. It
// contains the model and the parameters, but not the rest of the body. The text of Err
// can quote the body: errors of invalid requests do, and errors of a Backend may.
type RequestSummary struct {
	Timing
	Record     UsageRecord  // what the request used; fields are zero if it failed before they were known. The UsageStore has it only if the Backend was called, or something was loaded before
	Requested  string       // the model that the request asks for, if it was refused for that: printable, at most 128 bytes and a mark where it is cut. Any client can choose it: do not make it a label of a metric
	Request    *RequestInfo // nil if the Backend was not called for an operation that calls a model
	Reply      ReplySummary
	Route      string       // method and pattern of the path, with Options.Prefix, such as "GET /v1/models/{id...}"; empty for unknown paths
	Scope      Scope        // of the route; empty if the key was not found
	Status     int          // HTTP status; 499 if the client disconnected before one was sent
	Err        error        // why the request failed; nil if it succeeded. If a stream fails, Status is still 200
	ErrorClass ErrorClass   // of Err; empty if it is nil
	Refused    LimitRefusal // the limit that refused the request; zero if none did
	Quotas     []QuotaUse   // of the key, its Subjects and the end user; nil if none was looked at
	PriceErr   error        // why Options.Price did not return what the request costs, so that its Record is Unpriced; nil if it did, or was not called then
	RecordErr  error        // why UsageStore.Record did not store the UsageRecord; nil if it did, or was not called
	SaveErr    error        // why a reply that was sent was not stored: see ReplySaver; otherwise nil
	Streamed   bool         // whether the client asked for a stream; not known if Request is nil
	Chunks     int          // number of chunks that the Backend yielded
	Tries      []TargetTry  // in the order of their start; the first 100 that the Backend reported with [StartTry]
}

// LimitQuota is the Limit of a [LimitRefusal] by Limits.Quota.
const LimitQuota = "quota"

// A LimitRefusal tells which limit has refused a request. If several have, it is the one that has
// to be waited for longest.
type LimitRefusal struct {
	Subject SubjectID // whose limit it is; of an end user, the UserSubject
	Limit   string    // the name of a bucket, such as BucketTokens; SlotConcurrent; or LimitQuota
}

// Aborted reports whether the reply was a stream that failed after it began.
func (s *RequestSummary) Aborted() bool {
	return s.Err != nil && s.Streamed && s.Status == http.StatusOK
}

// Timing has the times of parts of a request, as durations since its arrival. A part that did not
// happen is zero.
type Timing struct {
	Admitted   time.Duration // the Backend was called for an operation that calls a model
	FirstChunk time.Duration // the Backend yielded a chunk
	FirstToken time.Duration // the Backend yielded a chunk with text, reasoning, a refusal or a tool call
	LastToken  time.Duration // the last of those
	FirstWrite time.Duration // the reply began to be written; what keeps a silent stream alive counts
	Duration   time.Duration // the request ended
}

// A ReplySummary describes what the Backend replied.
type ReplySummary struct {
	ID            string             // as the Backend set it; may be empty
	Model         string             // as the Backend set it; may be empty
	FinishReasons []llm.FinishReason // of the choices of a chat in the order of their indices; empty for one that did not end
}

// A TargetTry is a call of a Backend to one of several targets.
type TargetTry struct {
	Target     string        // the name that the host configured; bounded as in StartTry
	Start      time.Duration // from the arrival of the request
	Duration   time.Duration // until the try ended, or if it did not, until the request did
	Err        error         // nil if the try succeeded; may quote the request
	ErrorClass ErrorClass    // of Err; empty if it is nil
}
