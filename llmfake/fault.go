// Replies that are faults. The Handler repairs what a Backend yields, so faults are made behind it: a
// step yields errMarker, of which the Handler makes an error in the format of the request, and the
// output replaces the event or body with its text by the fault. So no fault but BadToolIndices knows a
// format.

package llmfake

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp/llm"
)

// Fail returns a Reply that is an error with the given HTTP status, from 400 to 599, in the
// format of the request: with the type, code and message that servers send with it.
//
// 429 is a rate limit, 503 and 529 mean that the server is overloaded. Official SDKs repeat
// requests after 408, 409, 429 and 5xx, so one Fail for one request needs a Reply for the next.
// Fail panics if the status is another one.
func Fail(status int) Reply {
	mustBeStatus("Fail", status, 400)
	return FailWith(errorFor(status)).named(fmt.Sprintf("Fail(%d)", status))
}

// checkStatus returns an error unless status is from low to high.
func checkStatus(status, low, high int) error {
	if status < low || status > high {
		return fmt.Errorf("the status must be %d to %d, and not %d", low, high, status)
	}
	return nil
}

// mustBeStatus panics if a test has passed a status to a function that is not from low to 599.
func mustBeStatus(function string, status, low int) {
	if err := checkStatus(status, low, 599); err != nil {
		panic(fmt.Sprintf("llmfake: %s: %v", function, err))
	}
}

// errorFor returns the error of a server with the given status.
func errorFor(status int) *llm.Error {
	e := llm.Errorf(status, "", "%s", http.StatusText(status))
	switch status {
	case http.StatusBadRequest:
		e.Message = "The request is invalid."
	case http.StatusUnauthorized:
		e.Code, e.Message = "invalid_api_key", "Incorrect API key provided."
	case http.StatusForbidden:
		e.Message = "You are not allowed to use this model."
	case http.StatusNotFound:
		e.Code, e.Message = "model_not_found", "The model does not exist or you do not have access to it."
	case http.StatusRequestEntityTooLarge:
		e.Message = "The request is too large."
	case http.StatusTooManyRequests:
		e.Code, e.Message = "rate_limit_exceeded", "Rate limit reached. Please try again later."
	case http.StatusInternalServerError:
		e.Message = "The server had an error while processing your request. Sorry about that!"
	case http.StatusServiceUnavailable, 529:
		e.Message = "The engine is currently overloaded, please try again later."
	}
	return e
}

// FailWith returns a Reply that is the error e, in the format of the request. It panics if e is nil
// or its Status is not 400 to 599.
func FailWith(e *llm.Error) Reply {
	if e == nil {
		panic("llmfake: FailWith: the error is nil")
	}
	mustBeStatus("FailWith", e.Status, 400)
	return Reply{}.Break(e).named(fmt.Sprintf("FailWith(%d %s)", e.Status, quote(e.Message)))
}

// named replaces the description of the last step.
func (r Reply) named(text string) Reply {
	r.texts = append(r.texts[:len(r.texts)-1:len(r.texts)-1], text)
	return r
}

// RateLimited returns a Reply with status 429 that asks the client to wait, in the header
// Retry-After. A client in a bubble of [testing/synctest] waits without taking time.
func RateLimited(retryAfter time.Duration) Reply {
	e := llm.Errorf(http.StatusTooManyRequests, "rate_limit_exceeded", "Rate limit reached. Please try again in %v.", retryAfter)
	e.RetryAfter = retryAfter
	return FailWith(e).named(fmt.Sprintf("RateLimited(%v)", retryAfter))
}

// Overloaded returns a Reply of an overloaded server: 503, or 529 in the Messages API.
func Overloaded() Reply { return Fail(http.StatusServiceUnavailable).named("Overloaded()") }

// ContextLengthExceeded returns a Reply with status 400 to a prompt of so many tokens, which is
// more than the context window of the model.
func ContextLengthExceeded(limit, tokens int) Reply {
	e := llm.Errorf(
		http.StatusBadRequest,
		"context_length_exceeded",
		"This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.",
		limit,
		tokens,
	)
	r := Reply{}.with("", func(p *player) bool {
		e := new(*e)
		e.Param = "messages"
		if p.request.Protocol == Responses {
			e.Param = "input"
		}
		return p.fail(e)
	})
	return r.named(fmt.Sprintf("ContextLengthExceeded(%d, %d)", limit, tokens))
}

// Break adds a failure. A stream that has begun gets the error event of its format, and in chat
// completions the connection is cut after it. Otherwise the reply is the error, with its status.
// An error that is not an [*llm.Error], and nil, is a 500.
func (r Reply) Break(err error) Reply {
	if err == nil {
		err = llm.Errorf(http.StatusInternalServerError, "", "The server had an error while processing your request. Sorry about that!")
	}
	return r.with(fmt.Sprintf("Break(%s)", quote(err.Error())), func(p *player) bool { return p.fail(err) })
}

// Cut returns a Reply for which the server closes the connection without a response.
func Cut() Reply { return Reply{}.Cut() }

// Cut adds the loss of the connection: a stream breaks off without an error event, and a whole
// reply in the middle of its body.
func (r Reply) Cut() Reply {
	return r.with("Cut()", func(p *player) bool { return p.end(endCut) })
}

// NoEnd adds the end of a stream without the event that ends it, such as [DONE] or
// message_stop. The HTTP response is complete. A whole reply is not changed.
func (r Reply) NoEnd() Reply {
	return r.with("NoEnd()", func(p *player) bool {
		p.sendFinish()
		return p.end(endSilent)
	})
}

// Malformed returns a Reply of JSON that is incomplete.
func Malformed() Reply { return Reply{}.Malformed() }

// Malformed adds an event that is not valid JSON, with which the stream ends. Of a whole reply
// the client gets the first half. The HTTP response is complete.
func (r Reply) Malformed() Reply {
	return r.with("Malformed()", func(p *player) bool { return p.end(endMalformed) })
}

// Hang returns a Reply that never comes.
func Hang() Reply { return Reply{}.Hang() }

// Hang adds silence until the client leaves or the test ends.
func (r Reply) Hang() Reply { return r.Block(nil).named("Hang()") }

// BadToolIndices makes the numbers of the parts of a stream wrong, as some servers do: all tool
// calls have the index 0 in chat completions, all content blocks in the Messages API, and all
// output items in the Responses API.
func (r Reply) BadToolIndices() Reply {
	r.rewrite = zeroIndices
	return r.describe("BadToolIndices()")
}

var (
	callIndex   = regexp.MustCompile(`("tool_calls":\[\{"index":)\d+`)
	blockIndex  = regexp.MustCompile(`("type":"content_block_[a-z]+","index":)\d+`)
	outputIndex = regexp.MustCompile(`("output_index":)\d+`)
)

func zeroIndices(protocol string, event []byte) []byte {
	re := callIndex
	switch protocol {
	case Messages:
		re = blockIndex
	case Responses:
		re = outputIndex
	}
	return re.ReplaceAll(event, []byte("${1}0"))
}

// Rewrite sets a function through which the encoded reply passes: each event of a stream, with
// the empty line at its end, or the body of a whole reply. What it returns is sent; nil sends
// nothing. It may modify its argument. It may make replies that no Handler sends. If f panics, the
// test fails and the connection is cut.
func (r Reply) Rewrite(f func(event []byte) []byte) Reply {
	mustNotBeNil("Rewrite", f == nil)
	r.rewrite = func(_ string, event []byte) []byte { return f(event) }
	return r.describe("Rewrite(...)")
}

// HTML returns a Reply that a proxy sends in place of the server: a page with the given status,
// such as 502. It panics if the status is not 200 to 599.
func HTML(status int) Reply {
	mustBeStatus("HTML", status, 200)
	page := htmlPage(status)
	return Raw(page.status, page.header, page.body).named(fmt.Sprintf("HTML(%d)", status))
}

func htmlPage(status int) *rawResponse {
	title := fmt.Sprintf("%d %s", status, cmp.Or(http.StatusText(status), "Error"))
	page := "<html>\r\n<head><title>" + title + "</title></head>\r\n<body>\r\n<center><h1>" + title +
		"</h1></center>\r\n<hr><center>proxy</center>\r\n</body>\r\n</html>\r\n"
	return &rawResponse{status: status, header: http.Header{"Content-Type": {"text/html"}}, body: []byte(page)}
}

// Raw returns a Reply that is an HTTP response with the given status, headers and body. Nothing
// is added to it but Content-Length and Date. [Reply.Then] puts a wait before it. Raw panics if the
// status is not 200 to 599.
func Raw(status int, header http.Header, body []byte) Reply {
	mustBeStatus("Raw", status, 200)
	header, body = header.Clone(), bytes.Clone(body)
	return Reply{}.with(fmt.Sprintf("Raw(%d)", status), func(p *player) bool {
		p.exchange.out.setRaw(&rawResponse{status: status, header: header, body: body})
		return p.fail(errMarker)
	})
}

// Then adds the steps of another Reply, such as Wait(time.Second).Then(HTML(502)).
func (r Reply) Then(next Reply) Reply {
	r.steps = append(slices.Clip(r.steps), next.steps...)
	if len(r.texts) == 0 {
		r.texts = next.texts
	} else {
		r.texts = append(slices.Clip(r.texts), "Then("+next.String()+")")
	}
	r.usage = cmp.Or(next.usage, r.usage)
	r.finish = cmp.Or(next.finish, r.finish)
	if next.rewrite != nil {
		r.rewrite = next.rewrite
	}
	return r
}
