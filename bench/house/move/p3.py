import re,shutil,os
os.makedirs('internal/param',exist_ok=True)
shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)),'testdata/param.go.txt'),'internal/param/param.go')
names={'errBadRequest':'Invalid','errMissing':'Missing','errUnknown':'Unknown','errEmptyArray':'EmptyArray','errEmptyString':'EmptyString','errLongArray':'LongArray','errLongString':'LongString','errInvalidType':'WrongType','errInvalidValue':'Value','errInvalidText':'Form'}
def read(p): return open(p).read()
def write(p,s): open(p,'w').write(s)
IMP='\t"github.com/llmhttp/llmhttp/internal/jsonwire"\n'
def addimp(s):
    P='\t"github.com/llmhttp/llmhttp/internal/param"\n'
    if P in s: return s
    if IMP in s: return s.replace(IMP,IMP+P,1)
    m=re.search(r'import "([^"]+)"\n',s)
    if m: return s.replace(m.group(0),'import (\n\t"%s"\n\n%s)\n'%(m.group(1),P),1)
    m=re.search(r'import \((.*?)\n\)\n',s,re.S)
    body=m.group(1)
    if 'github.com' in body: return s.replace(m.group(0),'import ('+body+'\n'+P+')\n',1)
    return s.replace(m.group(0),'import ('+body+'\n\n'+P+')\n',1)
def vocabulary(text):
    for a,b in names.items(): text=re.sub(r'\b%s\('%a,'param.%s('%b,text)
    return text
# the root's own
s=read('json.go')
a=s.index('// The texts and codes of the errors below'); b=s.index('// Extra holds the JSON members')
s=s[:a]+s[b:]
a=s.index('// decodeRequest decodes the body'); b=s.index('// unmarshalRequest decodes data strictly')
s=s[:a]+s[b:]
s=s.replace('errors.New(paramError(err).Message)','param.FromJSON(err)')
s=s.replace('return fmt.Errorf("llmhttp: decoding %T: %w", v, err)','return fmt.Errorf("llmhttp: decoding %T: %w", v, err)')
for i in ['"net/http"','"strconv"','"strings"','"errors"']: s=s.replace('\t%s\n'%i,'',1)
write('json.go',addimp(s))
w='''package llmhttp

import (
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
)

// invalidOf returns the Error that a client gets for e.
func invalidOf(e *param.Error) *Error {
	return &Error{Status: e.Status, Code: e.Code, Param: e.Param, Message: e.Message}
}

// paramError is [param.FromJSON].
func paramError(e *jsonwire.Error) *Error { return invalidOf(param.FromJSON(e)) }

// errBadRequest is [param.Invalid].
func errBadRequest(code, name, format string, args ...any) *Error {
	return invalidOf(param.Invalid(code, name, format, args...))
}

// errMissing is [param.Missing].
func errMissing(name string) *Error { return invalidOf(param.Missing(name)) }

// errUnknown is [param.Unknown].
func errUnknown(name string) *Error { return invalidOf(param.Unknown(name)) }

// errEmptyArray is [param.EmptyArray].
func errEmptyArray(name string) *Error { return invalidOf(param.EmptyArray(name)) }

// errLongArray is [param.LongArray].
func errLongArray(name string, limit, got int) *Error {
	return invalidOf(param.LongArray(name, limit, got))
}

// errLongString is [param.LongString].
func errLongString(name string, limit, got int) *Error {
	return invalidOf(param.LongString(name, limit, got))
}

// errInvalidType is [param.WrongType].
func errInvalidType(name, want, got string) *Error { return invalidOf(param.WrongType(name, want, got)) }

// errInvalidValue is [param.Value].
func errInvalidValue(name, got string, supported ...string) *Error {
	return invalidOf(param.Value(name, got, supported...))
}

// errInvalidText is [param.Form].
func errInvalidText(name, got, want string) *Error { return invalidOf(param.Form(name, got, want)) }

// echo is [param.Echo].
func echo(s string) string { return param.Echo(s) }

// elementPath is [param.Path].
func elementPath(list string, index int, member string) string { return param.Path(list, index, member) }

// decodeRequest decodes the body of a request into v, which points to a zero value. Its error is an
// *Error for the client that names the parameter at fault.
func decodeRequest[T any](body []byte, t jsonwire.Type[T], v *T) error {
	if err := jsonwire.Unmarshal(body, t, v); err != nil {
		return paramError(err)
	}
	return nil
}
'''
write('params.go',w)
boundary='''	if err := r.validate(); err != nil {
		return asError(err)
	}
	return nil
}

'''
# whole files of the vocabulary
for p in ['chat.go','message.go','toolchoice.go']:
    s=vocabulary(read(p))
    s=s.replace('return paramError(err)','return param.FromJSON(err)')
    write(p,addimp(s))
s=read('toolchoice.go').replace('func errToolMode(path, mode string) *Error','func errToolMode(path, mode string) *param.Error')
write('toolchoice.go',s)
s=read('chat.go')
s=s.replace('func (r *ChatRequest) Validate() error {\n','func (r *ChatRequest) Validate() error { return asError(r.validate()) }\n\nfunc (r *ChatRequest) validate() error {\n')
write('chat.go',s)
s=read('embeddings.go')
a=s.index('func (in *EmbeddingInput) decodeArray'); b=s.index('// An EmbeddingResponse has a vector')
t=vocabulary(s[a:b]).replace('return paramError(err)','return param.FromJSON(err)')
t=t.replace('func (r *EmbeddingRequest) Validate() error {\n','func (r *EmbeddingRequest) Validate() error { return asError(r.validate()) }\n\nfunc (r *EmbeddingRequest) validate() error {\n')
write('embeddings.go',addimp(s[:a]+t+s[b:]))
s=read('images.go')
a=s.index('func (r *ImageRequest) Validate() error'); b=s.index('// checkEmpty refuses members')
t=vocabulary(s[a:b]).replace('return paramError(err)','return param.FromJSON(err)')
t=t.replace('func (r *ImageRequest) Validate() error {\n','func (r *ImageRequest) Validate() error { return asError(r.validate()) }\n\nfunc (r *ImageRequest) validate() error {\n')
write('images.go',addimp(s[:a]+t+s[b:]))
s=read('imageedits.go')
a=s.index('func (r *ImageRequest) validateFiles() error'); b=s.index('// files returns the Images and the Mask')
t=vocabulary(s[a:b]).replace('param := fieldImage','name := fieldImage').replace('\tparam = elementPath(fieldImage, i, "")','\tname = elementPath(fieldImage, i, "")').replace('"invalid_value", param, "Invalid \'%s\': the file is empty.", param)','"invalid_value", name, "Invalid \'%s\': the file is empty.", name)')
write('imageedits.go',addimp(s[:a]+t+s[b:]))
s=read('errors.go')
s=s.replace('// WithParam returns a copy of e','''// asError returns err, or the Error that a client gets for it if it is a *param.Error.
func asError(err error) error {
	if e, ok := errors.AsType[*param.Error](err); ok {
		return &Error{Status: e.Status, Code: e.Code, Param: e.Param, Message: e.Message}
	}
	return err
}

// WithParam returns a copy of e''')
write('errors.go',addimp(s))
# decoders
s=read('moderations.go')
s=s.replace('d.Fail(errBadRequest("invalid_type", param, "Invalid type for \'%s\': expected strings or objects, but got a mixture.", param))','d.Fail(param.Invalid("invalid_type", name, "Invalid type for \'%s\': expected strings or objects, but got a mixture.", name))')
write('moderations.go',s)
s=read('speech.go')
s=s.replace('d.Fail(errEmptyString(d.Path()))','d.Fail(param.EmptyString(d.Path()))').replace('d.Fail(errMissing(d.Path() + ".id"))','d.Fail(param.Missing(d.Path() + ".id"))')
write('speech.go',addimp(s))

s=read('moderations.go')
s=s.replace('	param := d.Path()\n','	name := d.Path()\n').replace('return checkParts(r.Input.Parts, func() string { return "input" })','return Content(r.Input.Parts).Validate("input")')
write('moderations.go',addimp(s))
s=read('message.go')
for a,b in (('// checkParts checks parts. param returns','// checkParts checks parts. path returns'),('checkParts(parts []Part, param func() string)','checkParts(parts []Part, path func() string)'),('param.LongArray(param(), ','param.LongArray(path(), '),('elementPath(param(), i','elementPath(path(), i'),
 ('// isText reports whether c is encoded as a string.\nfunc (c Content) isText()',"""// Validate returns an *Error for the first part of c that the format does not allow. path is the name
// of the parameter that c is, such as "input".
func (c Content) Validate(path string) error {
	return asError(checkParts(c, func() string { return path }))
}

// IsText reports whether c is encoded as a string: it is one text without Extra.
func (c Content) IsText()"""),('c.isText()','c.IsText()')):
    assert a in s,a
    s=s.replace(a,b)
write('message.go',s)
s=read('completions.go')

write('completions.go',s.replace('m.Content.isText()','m.Content.IsText()'))
s=read('CONTRIBUTING.md')
s=s.replace('the functions in `json.go` whose names begin with `err`, such as `errMissing`','the functions in `params.go` whose names begin with `err`, such as `errMissing`')
write('CONTRIBUTING.md',s)
