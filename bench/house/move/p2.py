import re
def sub(p,*pairs):
    s=open(p).read()
    for a,b in pairs:
        if a not in s: print("NOT FOUND",p,a[:90]); continue
        s=s.replace(a,b)
    open(p,'w').write(s)
s=open('chatcall.go').read()
s=re.sub(r'func \(r \*ChatRequest\) (modelName|extra|attempts|limitTokens|countPrompt|asChat|send)\(',r'func (r chatGeneration) \1(',s)
s=s.replace('func (*ChatRequest) echoBytes','func (chatGeneration) echoBytes')
s=s.replace('return c.prompt(r) }','return c.prompt(r.ChatRequest) }').replace('asChat() *ChatRequest { return r }','asChat() *ChatRequest { return r.ChatRequest }').replace('return b.Chat(ctx, r) }','return b.Chat(ctx, r.ChatRequest) }')
s=s.replace('func (r chatGeneration) modelName','''// A chatGeneration is a chat as a generation.
type chatGeneration struct{ *ChatRequest }

// asGeneration returns r as a generation.
func asGeneration(r *ChatRequest) generation { return chatGeneration{r} }

func (r chatGeneration) modelName''')
s=s.replace('''func serveGeneration[Req any, P interface {
	*Req
	generation
}](decode func(context.Context, *http.Request, []byte) (P, ChatEncoder, error)) func(q *request) error {''','''func serveGeneration[Req any](
	decode func(context.Context, *http.Request, []byte) (*Req, ChatEncoder, error),
	asGeneration func(*Req) generation,
) func(q *request) error {''').replace('		return req, encoder, err\n	}\n	return func(q *request) error {','		return asGeneration(req), encoder, err\n	}\n	return func(q *request) error {')
c=open('chat.go').read()
i=c.index('func (r *ChatRequest) describe(')
d=c[i:]
c=c[:i].rstrip()+'\n'
c=c.replace('\t"slices"\n','')
open('chat.go','w').write(c)
d=d.replace('func (r *ChatRequest) describe','func (r chatGeneration) describe')
j=s.index('func (r chatGeneration) modelName')
s=s[:j]+d+'\n'+s[j:]
s=s.replace('\t"net/http"\n','\t"net/http"\n\t"slices"\n')
open('chatcall.go','w').write(s)
sub('binding.go',('serveGeneration(decode)','serveGeneration(decode, asGeneration)'))
sub('textcompletion.go',('serveGeneration(decode)','serveGeneration(decode, func(r *CompletionRequest) generation { return r })'))
sub('counttokens.go',('q.countPrompt(req)','q.countPrompt(asGeneration(req))'))
sub('protocol.go',('q.reserveChat(req)','q.reserveChat(asGeneration(req))'))
sub('textfilter.go',('''filterGeneration(ctx context.Context, req interface {
	generation
	textRequest
}) ChatStream''','''filterGeneration(ctx context.Context, req generation, texts any) ChatStream'''),('''		if err := filter.rewrite(req); err != nil {
			yield(nil, err)
			return
		}
		stream := req.send''','''		if err := filter.rewrite(texts); err != nil {
			yield(nil, err)
			return
		}
		stream := req.send'''),('// filterGeneration filters the texts of req and of its reply.','// filterGeneration filters the texts of req, which is of the request texts, and of its reply.'),
 ('filterReply[Q textRequest, R any]','filterReply[Q, R any]'))
s=open('textfilter.go').read()
s=re.sub(r'(Chat\(ctx context.Context, req \*ChatRequest\) ChatStream \{\n\s*)return b.filterGeneration\(ctx, req\)',r'\1return b.filterGeneration(ctx, chatGeneration{req}, req)',s)
s=s.replace('return b.filterGeneration(ctx, req)','return b.filterGeneration(ctx, req, req)')
open('textfilter.go','w').write(s)
# describers of embeddings and images
s=open('embeddings.go').read()
s=s.replace('describer: func(r *EmbeddingRequest) describer { return r },','describer: func(r *EmbeddingRequest) describer { return embeddingDescriber{r} },')
s=s.replace('func (r *EmbeddingRequest) describe(','type embeddingDescriber struct{ *EmbeddingRequest }\n\nfunc (r embeddingDescriber) describe(')
# the encoding of vectors
s=s.replace('''	base64 bool // encode vectors as base64
''','''	base64 bool // encode vectors as base64: see AppendJSON
''')
s=s.replace('''		r.base64 = inBase64
		return embeddingResponseJSON.Append(b, r)
''','''		return r.AppendJSON(b, format)
''').replace('	inBase64 := req.EncodingFormat == "base64"\n','	format := req.EncodingFormat\n')
s=s.replace('''// UnmarshalJSON decodes a response leniently. Its vectors''','''// AppendJSON appends to b what MarshalJSON returns, with the vectors in the encoding format that a
// request has asked for: as base64 if it is "base64". If there is an error, it returns nil.
func (r *EmbeddingResponse) AppendJSON(b []byte, encodingFormat string) ([]byte, error) {
	encoded := *r
	encoded.base64 = encodingFormat == "base64"
	return appendJSON(b, embeddingResponseJSON, &encoded)
}

// UnmarshalJSON decodes a response leniently. Its vectors''')
open('embeddings.go','w').write(s)
s=open('images.go').read()
s=s.replace('describer: func(r *ImageRequest) describer { return r },','describer: func(r *ImageRequest) describer { return imageDescriber{r} },')
s=s.replace('func (r *ImageRequest) describe(','type imageDescriber struct{ *ImageRequest }\n\nfunc (r imageDescriber) describe(')
open('images.go','w').write(s)
s=open('observer_internal_test.go').read()
import re
s=re.sub(r'startTranscript\((.*)new\(ChatRequest\)',r'startTranscript(\1asGeneration(new(ChatRequest))',s)
open('observer_internal_test.go','w').write(s)
sub('CONTRIBUTING.md',('`ChatRequest.describe`','`chatGeneration.describe`'))
s=open('CONTRIBUTING.md').read()
s=re.sub(r'which calls a method `RewriteTexts` of the(\s+)request',r'which calls `RewriteTexts` with the\1request',s)
open('CONTRIBUTING.md','w').write(s)
