import re
p='textrewrite.go'
s=open(p).read()
kinds=[]
def conv(m):
    doc,typ=m.group(1),m.group(2)
    kinds.append(typ)
    return f'// TODO {typ}\nfunc (w *textRewriter) XX{typ}(r *{typ}) error {{'
# bodies: methods become methods of textRewriter without w := and return w.err
out=[];i=0
pat=re.compile(r'((?://[^\n]*\n)+)func \(r \*(\w+)Request\) RewriteTexts\(f func\(kind TextKind, text string\) \(string, error\)\) error \{\n(.*?)\n\}\n',re.S)
names={'Chat':'chat','Completion':'completion','Embedding':'embedding','Image':'image','Speech':'speech','Rerank':'rerank','Moderation':'moderation','Transcription':'transcriptionRequest'}
first=True
def repl(m):
    doc,t,body=m.groups()
    kinds.append(t)
    body=body.replace('\tw := textRewriter{f: f}\n','').replace('\n\treturn w.err','').replace('joinRuns(&w,','joinRuns(w,')
    body=re.sub(r'\t\treturn (errTokenNumbers\(.*?\))\n',r'\t\tw.err = \1\n\t\treturn\n',body)
    docs={'Chat':'','Completion':'','Embedding':'',
     'Image':'// What is to be seen on images is not rewritten.\n','Speech':'',
     'Rerank':'// rerank replaces the list of documents too: the one before may be needed for the reply.\n','Moderation':'',
     'Transcription':'// What is spoken is not rewritten.\n'}[t]
    return f'{docs}func (w *textRewriter) {names[t]}(r *{t}Request) {{\n{body}\n}}\n'
s2=pat.sub(repl,s)
assert len(kinds)==8,kinds
doc='''// RewriteTexts replaces each text of a request by what f returns for it, and stops at the first error
// of f, which it returns: the request is then of no use. req is a pointer to one of the requests that
// Backends get, such as a [*ChatRequest]; another value is an error.
//
// The texts of a chat are those of messages, of tools, of the response format, of stop sequences and
// of everything in an Extra or a JSON schema. Not among them are the model, roles, types, IDs,
// signatures, encrypted reasoning, and media in base64. Other requests are treated alike: the names
// of files are texts, and what they contain and the voices of speech are not. The list of the
// documents to rank is replaced, because that before may be needed for the reply. Token numbers are
// texts that f cannot see: a request that has any is refused with an [*Error].
//
// Texts that a model reads as one are one text for f, so that f finds what is divided between them:
// consecutive parts of a message, and consecutive pieces of reasoning. They are joined if f changes
// them in a way that it does not change the pieces. So f is called more than once for them, and
// should return the same for the same text. In [TextArguments], characters are not escaped unless
// JSON demands it. f must not make a text empty that must not be, such as the name of a function.
func RewriteTexts(req any, f func(kind TextKind, text string) (string, error)) error {
	w := &textRewriter{f: f}
	switch r := req.(type) {
'''
for t in kinds: doc+=f'\tcase *{t}Request:\n\t\tw.{names[t]}(r)\n'
doc+='''	default:
		return fmt.Errorf("llmhttp: RewriteTexts of a %T, which is not a request", req)
	}
	return w.err
}

'''
i=s2.index('func (w *textRewriter) chat(')
s2=s2[:i]+doc+s2[i:]
s2=s2.replace('import (\n\t"encoding/json"\n','import (\n\t"encoding/json"\n\t"fmt"\n')
open(p,'w').write(s2)
p='textfilter.go'
s=open(p).read()
s=s.replace('''// textRequest is a request whose texts can be rewritten.
type textRequest interface {
	RewriteTexts(f func(kind TextKind, text string) (string, error)) error
}

''','').replace('rewrite(r textRequest) error','rewrite(req any) error').replace('r.RewriteTexts(f.Request)','RewriteTexts(req, f.Request)').replace('[ChatRequest.RewriteTexts]','[RewriteTexts]')
open(p,'w').write(s)
p='textrewrite_test.go'
s=open(p).read()
s=s.replace('func ExampleChatRequest_RewriteTexts','func ExampleRewriteTexts').replace('req.RewriteTexts(','llmhttp.RewriteTexts(req, ')
s=s.replace('''// rewriter is a request whose texts can be rewritten.
type rewriter interface {
	RewriteTexts(f func(llmhttp.TextKind, string) (string, error)) error
}

''','')
s=s.replace('''		if !assert.Implements(t, (*rewriter)(nil), probe.Interface(), "FilterTexts must rewrite the texts of a %s", name) {
			continue
		}
''','')
s=s.replace('v.Interface().(rewriter).RewriteTexts(','llmhttp.RewriteTexts(v.Interface(), ')
open(p,'w').write(s)
p='textrewrite.go'
s=open(p).read()
for n in ['chat','completion','embedding','image','speech','rerank','moderation']:
    s=s.replace(f'\t\tw.{n}(r)\n',f'\t\tw.{n}Request(r)\n').replace(f'func (w *textRewriter) {n}(r *',f'func (w *textRewriter) {n}Request(r *')
s=s.replace('// rerank replaces','// rerankRequest replaces')
open(p,'w').write(s)

import glob
for p in glob.glob('*_internal_test.go'):
    s=o=open(p).read()
    s=s.replace('req.RewriteTexts(','RewriteTexts(req, ')
    if s!=o: open(p,'w').write(s)
