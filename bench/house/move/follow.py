# follow.py: what is changed by hand after the move, in the worktree that is the current directory.
import re,glob,os
def sub(p,*pairs):
    s=open(p).read()
    for a,b in pairs:
        if a not in s:
            print('follow: not found in',p,':',a[:70]); continue
        s=s.replace(a,b)
    open(p,'w').write(s)
def addimp(s,*paths):
    for path in paths:
        line='\t"github.com/llmhttp/llmhttp/%s"\n'%path
        if line in s: continue
        m=re.search(r'import \((.*?)\n\)\n',s,re.S)
        if not m:
            m1=re.search(r'import "([^"]+)"\n',s)
            if m1: s=s.replace(m1.group(0),'import (\n\t"%s"\n\n%s)\n'%(m1.group(1),line),1)
            else: s=re.sub(r'(\npackage \w+\n)',r'\1\nimport %s\n'%line.strip(),'\n'+s,count=1)[1:]
            continue
        body=m.group(1)
        s=s.replace(m.group(0),'import ('+body+('\n' if 'llmhttp/llmhttp' in body or '.com/' in body else '\n\n')+line+')\n',1)
    return s
# The second copies of error helpers and of IDs.
for p in glob.glob('responses/*.go'):
    s=o=open(p).read()
    if p.endswith('_test.go'): continue
    if p=='responses/errors.go':
        a=s.index('func badRequest('); b=s.index('// invalidType returns the error')
        s=s[:a]+s[b:]
        a=s.index('// elementPath returns the path of element i')
        s=s[:a].rstrip()+'\n'
        s=s.replace('decodeError("", &jsonwire.Error{Kind: jsonwire.WrongType, Path: param, Want: want, Got: jsonwire.Describe(string(value))})','invalid.WrongType(param, want, jsonwire.Describe(string(value)))')
        s=s.replace('\t"net/http"\n','').replace('\t"strconv"\n','')
    if p=='responses/decode.go':
        s=re.sub(r'	code, message := e.APIText\(\)\n	return badRequest\(code, e.Path, "%s", message\)','	return invalid.JSON(e)',s)
    if p=='responses/item.go':
        a=s.index('// newID returns prefix and 128 random bits'); b=s.index('// A partType is')
        s=s[:a]+s[b:]
        s=s.replace('\t"math/rand/v2"\n','')
        if 'fmt.' not in s: s=s.replace('\t"fmt"\n','')
    s=re.sub(r'\bbadRequest\(','invalid.Param(',s)
    s=re.sub(r'\bmissingParam\(','invalid.Missing(',s)
    s=re.sub(r'\belementPath\(([^,()]+), i\)',r'param.Path(\1, i, "")',s)
    s=re.sub(r'\bnewID\(','randomid.New(',s)
    if s!=o:
        need=[x for x,y in (('internal/invalid','invalid.'),('internal/param','param.Path('),('internal/randomid','randomid.')) if y in s]
        s=addimp(s,*need)
        open(p,'w').write(s)
sub('messages/message.go',('return fmt.Sprintf("%s%016x%016x", prefix, rand.Uint64(), rand.Uint64())','return randomid.New(prefix)'),('\t"math/rand/v2"\n',''))
s=open('messages/message.go').read()
if 'fmt.' not in s: s=s.replace('\t"fmt"\n','')
open('messages/message.go','w').write(addimp(s,'internal/randomid'))
# The rule of parts.
sub('parts_test.go',('"chatcall.go"','"chat.go"'),('{"order.go", `func mutant','{"pipeline.go", `func mutant'),('{"tokens.go", `','{"units.go", `'),('{"order.go", `type mutant','{"limit.go", `type mutant'),
 ('ReportUsage(ctx, Usage{})','StartTry(ctx, "")'),('*ChatChunk','*llm.ChatChunk'),('orderer{sink:','order.Orderer{Sink:'),('var sink chunkSink','var sink order.Sink'),('q.chat.order.sink','q.chat.order.Sink'))
os.system('gofmt -w responses/*.go messages/message.go parts_test.go')
s=open('parts_test.go').read()
s=re.sub(r'("interface in a literal": +\{)"chat.go"',r'\1"context.go"',s)
s=re.sub(r'("interface variable": +\{)"chat.go"',r'\1"context.go"',s)
open('parts_test.go','w').write(s)
sub('Makefile',('	go vet work\n	go run $(STATICCHECK) work\n','	go vet work\n	go run $(STATICCHECK) work\n	scripts/floors.sh\n'))
sub('llm/context.go',('''reason: Options.Timeout, or Shutdown with a context that is done. A host''','''reason, such as a timeout or its own end. A host'''))
# Documents for maintainers.
def lines(p,*pairs):
    s=open(p).read()
    for a,b in pairs:
        n=re.sub(a,b,s,flags=re.M)
        if n==s: print('follow: not found in',p,':',a[:70])
        s=n
    open(p,'w').write(s)
lines('docs/architecture.md',
 (r'\bchatcall\.go\b','chat.go'),
 (r'an \*\*orderer\*\* puts','an **Orderer** puts'),
 (r'pipeline\.go, order\.go','pipeline.go, internal/order/order.go'),
 (r'\*\*Joiner\*\* \(join\.go\)','**Joiner** (llm/join)'),
 (r'json\.go turns them into replies','internal/param and internal/invalid turn them into replies'),
 (r'^\| vector\.go \|.*\n',''),
 (r'^\| vendormodel\.go \|.*\n',''),
 (r'^\| chat\.go, toolchoice\.go, message\.go, chunk\.go \| the types of a chat, with their tables of JSON and checks \|$',
  '| tables.go | the tables of JSON of the types of package llm |'),
 (r'slots\.go, tokens\.go \|','slots.go |'),
 (r'^\| texts\.go \|.*\n',''),
 (r'backend\.go, swap\.go, tee\.go \| Backend, Forwarder, ChatStream; a Backend that can be replaced, one without optional interfaces, a stream that is read by the way','backend.go, swap.go | Backend, Forwarder; a Backend that can be replaced, one without optional interfaces'),
 (r'^\| order\.go, pipeline\.go \| puts chunks in valid order; makes the bytes of the reply of them \|$','| pipeline.go | makes the bytes of the reply of chunks in valid order |'),
 (r'^\| join\.go \|.*\n',''),
 (r'^\| json\.go, members\.go \| JSON, errors about parameters, members without a field; which of those are allowed \|$','| members.go | which members without a field are allowed |'),
 (r'`tokenEstimator`, tokens\.go','`tokens.Estimator`, internal/tokens'),
 (r'`orderer\.add` \(order\.go\)','`Orderer.Add` (internal/order)'),
)
lines('CONTRIBUTING.md',
 (r'if tokens\.go does not count','if package tokens does not count'),
 (r'In tokens\.go, the method `prompt` adds `c\.label','In internal/tokens, the method `Prompt` adds `c.Label'),
 (r'\(chunk\.go, message\.go\)\. In `texts\.go` it is a constant and an element of what `Delta\.texts` and `Message\.texts` return','(llm/chunk.go, llm/message.go). In internal/texts it is a constant and an element of what `texts.OfDelta` and `texts.OfMessage` return'),
 (r'the functions in `params\.go` whose names begin with `err`, such as `errMissing`','the functions of internal/invalid, such as `invalid.Missing`; in package llm those of internal/param'),
 (r'`generation` \(chatcall\.go\)','`generation` (chat.go)'),
)
s=open('docs/architecture.md').read()
if '## Floors' not in s:
    i=s.index('\n## ')
    s=s[:i]+'''
## Floors

A package imports those of lower floors only (scripts/floors.sh):

| Floor | Packages |
|---|---|
| below | internal/jsonwire, membername, callctx, bounds, jsonjoin, randomid; internal/param: errors for parameters as plain values |
| llm | the vocabulary: what is asked of a model and what it replies |
| above it | internal/invalid (makes an `Error` of what param says), internal/texts (walks over texts), internal/tokens (estimates), internal/order (valid order), llm/join |
| the server | package llmhttp, and the protocols, stores and Backends above it |

Package llm calls nothing that imports it. What a Backend tells through its context is told to an interface in the context
(internal/callctx), which the request implements. Its tables of JSON are not exported: `jsonwire.Register` shares them.
'''+s[i:]
    open('docs/architecture.md','w').write(s)
# Tests that know files and packages.
public=dict(l.split() for l in open(os.environ['PUBLIC']))
for p in glob.glob('*_test.go'):
    s=o=open(p).read()
    s=re.sub(r'\*llmhttp\.(\w+)(?=[:"`\' ])',lambda m:'*'+os.path.basename(public[m.group(1)]) if m.group(1) in public else m.group(0),s)
    if s!=o: open(p,'w').write(s)
sub('json_test.go',('''	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	method := ''','''	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	vocabulary, err := filepath.Glob("llm/*.go")
	require.NoError(t, err)
	files = append(files, vocabulary...)
	method := '''))
s=open('readme_test.go').read()
s=re.sub(r'("github.com/llmhttp/llmhttp",)',r'\1 "github.com/llmhttp/llmhttp/llm", "github.com/llmhttp/llmhttp/llm/join",',s,count=1)
open('readme_test.go','w').write(s)
os.system('gofmt -w *_test.go')
lines('CONTRIBUTING.md',(r'`FunctionCall\.texts`','`texts.OfCall`'),(r'`errInvalidValue`','`param.Value`'))
lines('docs/architecture.md',(r'replyformat\.go, replyheader\.go','replyformat.go'),(r'quotashare\.go, slots\.go','quotashare.go'),(r'\*\*slots\*\* \(slots\.go\)','**slots** (ledger.go)'))
# Examples of what has moved, which files/ has.
for p,name in (('example_test.go','ExampleChatChunk_Clone'),('example_test.go','ExampleCollect'),('tee_test.go','ExampleTee')):
    s=open(p).read()
    s,n=re.subn(r'(?:^//[^\n]*\n)*^func %s\(\) \{\n.*?^\}\n\n?'%name,'',s,count=1,flags=re.M|re.S)
    if n==0: print('follow: not found in',p,':',name)
    open(p,'w').write(s)
sub('example_test.go',('func ExampleChatRequest_Clone()','func ExampleBackend_clone()'))
lines('CONTRIBUTING.md',(r'^\| `manage/` \|','| `llm/` | What is asked of a model and what it replies; `llm/join` joins chunks. They know nothing of the server: see "Floors" in [docs/architecture.md](docs/architecture.md). |\n| `manage/` |'))
s=open('README.md').read()
i=s.index('| Package | Contents |'); j=s.index('\n',s.index('|---',i))+1
if '[llm](llm)' not in s[i:i+600]:
    s=s[:j]+'| [llm](llm) | What is asked of a model and what it replies: requests, messages, chunks, tools, images, embeddings, usage, errors. [llm/join](llm/join) joins chunks to a reply. |\n'+s[j:]
    open('README.md','w').write(s)
# Code in strings of a test of documents.
s=open('readme_test.go').read()
s=re.sub(r'\bllmhttp\.([A-Z]\w*)',lambda m:os.path.basename(public[m.group(1)]) if m.group(1) in public else m.group(0),s)
open('readme_test.go','w').write(s)
