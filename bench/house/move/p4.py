import re
def sub(p,*pairs):
    s=open(p).read()
    for a,b in pairs:
        if a not in s: print("NOT FOUND",p,a[:90]); continue
        s=s.replace(a,b)
    open(p,'w').write(s)
# the orderer knows no ReplyStart of protocols, and has its own misuses
sub('order.go',('	start       ReplyStart      // from the first chunk; chatPipeline.completeStart completes it\n	model       string          // from the first chunk; may be empty\n','	start       chunkStart      // from the first chunk\n'),
 ('o.start, o.model = ReplyStart{ID: c.ID, Created: c.Created, Model: c.Model}, c.Model','o.start = chunkStart{id: c.ID, created: c.Created, model: c.Model}'),
)
s=open('requestlog.go').read()
a=s.index('// A misuseSet is a set'); b=s.index('// misuseWarnings has the log message')
names=re.findall(r'^\t(misuse\w+)',s[a:b],re.M)
order=open('order.go').read()
first=[n for n in names if re.search(r'\b%s\b'%n,order)]
rest=[n for n in names if n not in first]
s=s[:a]+"""// Mistakes of the host that no reply reports, besides those that the orderer finds.
const (
	%s = firstOtherMisuse << iota
	%s
)

"""%(rest[0],'\n\t'.join(rest[1:]))+s[b:]
s=s.replace('// warn logs the misuses in set that were not logged yet.','// warn logs the misuses in set that were not logged yet: each is logged once for a request.')
open('requestlog.go','w').write(s)
sub('order.go',('// A scratchChunk is reused',"""// A chunkStart has the identity of a reply, as far as its first chunk tells it.
type chunkStart struct {
	id      string
	created int64 // Unix time in seconds
	model   string
}

// A misuseSet is a set of mistakes of the host that no reply reports.
type misuseSet uint32

const (
	%s misuseSet = 1 << iota
	%s
	firstOtherMisuse // is not found by the orderer
)

// A scratchChunk is reused"""%(first[0],'\n\t'.join(first[1:]))))
sub('backend.go',('o.start.ID, o.start.Created, o.start.Model','o.start.id, o.start.created, o.start.model'))
sub('textstream.go',('start.ID, start.Created, start.Model','start.id, start.created, start.model'))
sub('request.go',('servedModel: cmp.Or(q.backend.model, order.model)','servedModel: cmp.Or(q.backend.model, order.start.model)'),('ID: q.chat.order.start.ID,','ID: q.chat.order.start.id,'))
sub('pipeline.go',('''	s, d := &p.order.start, &p.defaults
	s.PromptTokens = d.PromptTokens
	s.Created = cmp.Or(s.Created, d.Created)
	s.Model = cmp.Or(s.Model, d.Model)
	return s
''','''	s, start := &p.start, &p.order.start
	s.ID = start.id
	s.Created = cmp.Or(start.created, s.Created)
	s.Model = cmp.Or(start.model, s.Model)
	return s
'''),('	defaults ReplyStart      // of the identity of the reply\n','	start    ReplyStart      // the identity of the reply; until completeStart, that which the Handler gives it\n'))
sub('chatcall.go',('p.defaults = ReplyStart{','p.start = ReplyStart{'))
# IsEmpty and the chunk of a choice
s=open('chunk.go').read()
s=s.replace('''// isEmpty reports whether d adds nothing.
func (d *Delta) isEmpty() bool { return !d.hasToken() && !hasValue(d.Extra) }
''','''// isEmpty reports whether d adds nothing to a message: no text, no tool call, no reasoning, and no
// member of Extra that is not null. The Role does not count.
func (d *Delta) isEmpty() bool {
	return d.Reasoning == "" && d.Content == "" && d.Refusal == "" && len(d.ReasoningDetails) == 0 && len(d.ToolCalls) == 0 &&
		!hasValue(d.Extra)
}
''')
open('chunk.go','w').write(s)
sub('backend.go',('''		Delta:        Delta{Role: m.Role, ReasoningAlias: m.ReasoningAlias, ReasoningDetails: m.ReasoningDetails, Extra: m.Extra},
		FinishReason: c.FinishReason,''','''		FinishReason: c.FinishReason,'''),('''	content := m.Content.Text()
	from := m.texts(&content)
	for i, s := range out.Delta.texts() {
		*s = *from[i]
	}
''','''	out.Delta = Delta{
		Role: m.Role, Reasoning: m.Reasoning, ReasoningAlias: m.ReasoningAlias, ReasoningDetails: m.ReasoningDetails,
		Content: m.Content.Text(), Refusal: m.Refusal, Extra: m.Extra,
	}
'''))
# the transcript asks the joiner for the reply
s=open('transcript.go').read()
a=s.index('	slices.SortFunc(t.reply.choices'); b=s.index('	for i := range t.out.Messages {\n		r.message')
s=s[:a]+'''	for _, c := range t.reply.Response().Choices {
		r.message(&c.Message)
		t.out.Choices = append(t.out.Choices, Choice{Index: c.Index, Message: c.Message, FinishReason: reasons[c.Index]})
	}
'''+s[b:]
s=s.replace('	"slices"\n\n','').replace('	"slices"\n','')
open('transcript.go','w').write(s)
# whether details belong together
sub('join.go',('''func (j *joinedDetail) isContinuedBy(d *ReasoningDetail) bool {
	return d.Type == ReasoningText && j.first.Type == ReasoningText && j.first.Signature == "" &&
		bytes.Equal(d.Extra["index"], j.first.Extra["index"])
}
''','''// continuesDetail reports whether next is a piece of the same text as d.
func continuesDetail(d, next *ReasoningDetail) bool {
	return next.Type == ReasoningText && d.Type == ReasoningText && d.Signature == "" &&
		bytes.Equal(next.Extra["index"], d.Extra["index"])
}
'''),('c.details[n-1].isContinuedBy(d)','continuesDetail(&c.details[n-1].first, d)'))
sub('textrewrite.go',('''	follows: func(d, next *ReasoningDetail) bool {
		joined := joinedDetail{first: *d}
		return joined.isContinuedBy(next)
	},
''','''	follows: continuesDetail,
'''))
# the context
s=open('context.go').read()
s=s.replace('type requestKey struct{}\n','// A requestKey is the key by which a context has the request.\ntype requestKey = callctx.Key\n')
s=s.replace('import "context"','import (\n\t"context"\n\n\t"github.com/llmhttp/llmhttp/internal/callctx"\n)') if 'import "context"' in s else s.replace('\n)\n','\n\n\t"github.com/llmhttp/llmhttp/internal/callctx"\n)\n',1)
i=s.index('func ClientLeft('); j=s.index('\n}\n',i)+3
s=s[:i]+'''func ClientLeft(ctx context.Context) (context.Context, bool) {
	r, ok := ctx.Value(callctx.Key{}).(servedRequest)
	if !ok {
		return ctx, false
	}
	after, ok := r.AfterClient()
	if !ok {
		return ctx, false
	}
	return &detachedContext{Context: after, values: ctx}, true
}

'''.lstrip()+s[j:].lstrip('\n')
i=s.index('func ReportUsage('); j=s.index('\n}\n',i)+3
body=s[i:j]
used='\t\tu.Add(usedBefore(ctx))\n' if '\tu.Add(usedBefore(ctx))\n' in body else ''
body=body.replace('\tu.Add(usedBefore(ctx))\n','')
s=s[:i]+'''func ReportUsage(ctx context.Context, u Usage) {
	if r, ok := ctx.Value(callctx.Key{}).(servedRequest); ok {
'''+used+'''		r.ReportUsage(ctx, u)
	}
}
'''+s[j:]
# what it did is now the request's
body=body.replace('func ReportUsage(ctx context.Context, u Usage) {','// ReportUsage implements servedRequest.\nfunc (q *request) ReportUsage(ctx context.Context, u Usage) {')
body=body.replace('''	q := requestFrom(ctx)
	if q == nil {
		return
	}
''','')
iface='''// A servedRequest is a request for which a Backend works: the value of its context for callctx.Key.
type servedRequest interface {
	// ReportUsage takes what the request has used so far.
	ReportUsage(ctx context.Context, u Usage)

	// AfterClient returns a context for what is left to do, if the client has left.
	AfterClient() (context.Context, bool)
}

'''
i=s.index('// ClientLeft reports whether')
s=s[:i]+iface+body+'''
// AfterClient implements servedRequest.
func (q *request) AfterClient() (context.Context, bool) { return q.client.AfterClient() }

'''+s[i:]
open('context.go','w').write(s)
import os
os.makedirs('internal/callctx',exist_ok=True)
open('internal/callctx/callctx.go','w').write('''// Package callctx has the key under which the context of a call of a Backend has its request.
package callctx

// Key is the key of a value that implements the interface servedRequest of package llm.
type Key struct{}
''')
sub('settle.go',('detachedContext{l.settleContexts.next(), ctx}','detachedContext{Context: l.settleContexts.next(), values: ctx}'))
sub('join.go',('func (x *joinedExtra) add(e Extra)','func (x *joinedExtra) add(e map[string]json.RawMessage)'),('func (x joinedExtra) join(texts bool) Extra','func (x joinedExtra) join(texts bool) map[string]json.RawMessage'),('	e := make(Extra, len(x))','	e := make(map[string]json.RawMessage, len(x))'))
sub('multipart_internal_test.go',('new(ImageRequest).decodeForm}','func(f *Form) error { return new(ImageRequest).decodeForm(f) }}'))
sub('order.go',('!isFunction(c.held.Type)','c.held.Type != "" && c.held.Type != toolFunction'))
sub('pipeline_internal_test.go',('		defaults: ','		start: '))
sub('texts_internal_test.go',('''// A walker has a method walk.
type walker interface {
	walk(text func(textKind, *string), extra func(textKind, Extra))
}

// kindAt returns the kind of the string at path, with which walk visits it.
func kindAt(t *testing.T, w walker, path string)''','''// walk walks a delta or a message.
func walk(v any, text func(textKind, *string), extra func(textKind, Extra)) {
	switch v := v.(type) {
	case *Delta:
		v.walk(text, extra)
	case *Message:
		v.walk(text, extra)
	}
}

// kindAt returns the kind of the string at path, with which walk visits it.
func kindAt(t *testing.T, w any, path string)'''),('			w.walk(func','			walk(w, func'),('map[string]walker{','map[string]any{'))

sub('parts_test.go',('p.types.Scope().Lookup("request"), p.types.Scope().Lookup("requestKey")','p.types.Scope().Lookup("request"), types.Unalias(p.types.Scope().Lookup("requestKey").Type()).(*types.Named).Obj()'))
