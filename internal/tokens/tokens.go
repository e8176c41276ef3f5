// Package tokens estimates the tokens of requests and replies by the length of their texts, or has
// a function count them.
package tokens

import (
	"bytes"
	"math"
	"strings"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/promptcache"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/llm"
)

// An Estimator counts tokens of text.
type Estimator struct {
	Model string
	Count func(model, text string) int // nil for an estimate by length
}

// Text counts the tokens of a text.
func (c Estimator) Text(s string) int {
	if s == "" {
		return 0
	}
	if c.Count != nil {
		return max(c.Count(c.Model, s), 0)
	}
	return Estimate(len(s))
}

// Estimate estimates the number of tokens of a text of that many bytes.
func Estimate(bytes int) int { return (bytes + 3) / 4 }

// MaxBytes returns the maximum length of the texts of a choice that may have that many tokens. Only a
// Backend that ignores the limit on tokens exceeds it.
func MaxBytes(tokens int) int {
	const perToken, slack = 8, 64
	return min(tokens, math.MaxInt32)*perToken + slack
}

// The tokens of a chat besides its texts. OpenAI counts an image in low detail as 85 tokens, and a
// few for each message.
//
// What vendors count for media depends on pixels, seconds and pages, which are not known
// here. The estimate by the length of the base64 is near that for photos of a few hundred
// kilobytes, and for PDF files of mostly text.
const (
	TokensPerMessage = 4
	TokensPerMedia   = 85  // of an image, a recording or a file, and one more for each of the following bytes
	BytesPerMedia    = 512 // of the base64 of images, audio and video, or of the URL of an image
	BytesPerFile     = 16  // of the base64 of files that are neither media nor text
)

// maxLabel is the length in bytes up to which types, IDs, and parameters that are not text for
// the model count nothing. A longer text may be meant for the model.
const maxLabel = 64

// Label counts the tokens of a text that is usually a label, such as a type or an ID.
func (c Estimator) Label(s string) int {
	if len(s) <= maxLabel {
		return 0
	}
	return c.Text(s)
}

// Prompt counts the tokens of everything in a chat that a model may get.
func (c Estimator) Prompt(r *llm.ChatRequest) int {
	n := c.Label(r.Model) + c.Label(r.ReasoningEffort) + c.toolChoice(r.ToolChoice) + c.Extra(r.Extra)
	for i := range r.Messages {
		n += c.Message(&r.Messages[i])
	}
	for i := range r.Tools {
		n += c.Tool(&r.Tools[i])
	}
	for _, s := range r.Stop {
		n += c.Label(s)
	}
	n += c.responseFormat(r.ResponseFormat)
	if o := r.StreamOptions; o != nil {
		n += c.Extra(o.Extra)
	}
	return n
}

// Message counts the tokens of a message. The text in the details of reasoning usually repeats
// the other, so the longer one counts.
func (c Estimator) Message(m *llm.Message) int {
	n, reasoning, details := TokensPerMessage, 0, 0
	texts.WalkMessage(m, func(kind texts.Kind, s *string) {
		switch kind {
		case texts.KindReasoning:
			reasoning += c.Text(*s)
		case texts.KindDetail:
			details += c.Text(*s)
		default:
			n += c.OfKind(kind, *s)
		}
	}, func(kind texts.Kind, e llm.Extra) { n += c.Members(kind, e) })
	for i := range m.Content {
		if m.Content[i].Type != llm.PartText {
			n += TokensPerMedia
		}
	}
	return n + max(reasoning, details)
}

// OfKind counts the tokens of a text of a kind.
func (c Estimator) OfKind(kind texts.Kind, s string) int {
	switch kind {
	case texts.KindLabel, texts.KindRole:
		return c.Label(s)
	case texts.KindMedia:
		return len(s) / BytesPerMedia
	}
	return c.Text(s)
}

func (c Estimator) Tool(t *llm.Tool) (n int) {
	texts.WalkTool(t, func(kind texts.Kind, s *string) { n += c.OfKind(kind, *s) }, func(kind texts.Kind, e llm.Extra) { n += c.Members(kind, e) })
	if t.Function != nil {
		n += c.Text(string(t.Function.Parameters))
	}
	return n
}

func (c Estimator) toolChoice(t *llm.ToolChoice) int {
	if t == nil {
		return 0
	}
	n := c.Label(t.Mode) + c.Label(t.Type) + c.namedTool(t.Function) + c.namedTool(t.Custom) + c.Extra(t.Extra)
	if a := t.AllowedTools; a != nil {
		n += c.Label(a.Mode) + c.Extra(a.Extra)
		for _, t := range a.Tools {
			n += c.Label(t.Type) + c.namedTool(t.Function) + c.namedTool(t.Custom) + c.Extra(t.Extra)
		}
	}
	return n
}

func (c Estimator) namedTool(t *llm.NamedTool) int {
	if t == nil {
		return 0
	}
	return c.Text(t.Name) + c.Extra(t.Extra)
}

func (c Estimator) responseFormat(f *llm.ResponseFormat) int {
	if f == nil {
		return 0
	}
	n := c.Label(f.Type) + c.Extra(f.Extra)
	if s := f.JSONSchema; s != nil {
		n += c.Text(s.Name) + c.Text(s.Description) + c.Text(string(s.Schema)) + c.Extra(s.Extra)
	}
	return n
}

// Extra counts the tokens of the members of e as text.
func (c Estimator) Extra(e llm.Extra) int { return c.Members(texts.KindWhole, e) }

// File counts the tokens of a file as those of one in a chat.
func (c Estimator) File(f *llm.File) int {
	return TokensPerMedia + int(min(f.Size/3*4/BytesPerMedia, math.MaxInt32/2)) + c.Label(f.Name) + c.Label(f.ContentType)
}

// Members counts the tokens of the members of an Extra of a kind.
func (c Estimator) Members(kind texts.Kind, e llm.Extra) int {
	if len(e) == 0 {
		return 0
	}
	out := Counter{KeepText: c.Count != nil}
	out.addExtra(e, kind == texts.KindMedia)
	return c.Output(&out)
}

// Output counts the tokens of a reply.
func (c Estimator) Output(out *Counter) int {
	if c.Count != nil {
		return c.Text(string(out.Text)) + out.Media
	}
	return Estimate(out.Bytes) + out.Media
}

// A Counter counts the text of a reply, from which Estimator.Output estimates the
// tokens.
type Counter struct {
	KeepText bool // whether text is kept, for Options.Estimates.TextTokens
	Bytes    int
	Text     []byte
	Media    int // tokens of media
}

// Add adds the texts of d. Of the two forms of reasoning it adds the longer one, because one
// usually repeats the other.
func (n *Counter) Add(d *llm.Delta) {
	repeated := repeatedReasoning(d)
	texts.WalkDelta(d, func(kind texts.Kind, s *string) {
		switch kind {
		case repeated:
		case texts.KindLabel, texts.KindRole:
			n.addLabel(*s)
		default:
			n.AddText(*s)
		}
	}, n.addExtraOfKind)
}

// repeatedReasoning returns the kind of the texts that the longer form of reasoning repeats:
// texts.KindReasoning or texts.KindDetail.
func repeatedReasoning(d *llm.Delta) texts.Kind {
	if len(d.ReasoningDetails) == 0 {
		return texts.KindDetail
	}
	var bytes [texts.NumKinds]int
	texts.WalkDelta(d, func(kind texts.Kind, s *string) { bytes[kind] += len(*s) }, texts.IgnoreExtra)
	if bytes[texts.KindDetail] > bytes[texts.KindReasoning] {
		return texts.KindReasoning
	}
	return texts.KindDetail
}

// addExtraOfKind adds the members of an Extra. Those of details are usually labels, which are
// the same in each delta.
func (n *Counter) addExtraOfKind(kind texts.Kind, e llm.Extra) {
	if kind != texts.KindDetail {
		n.addExtra(e, kind == texts.KindMedia)
		return
	}
	for name, v := range e {
		n.addLabel(name)
		n.addLabel(string(v))
	}
}

func (n *Counter) AddText(s string) {
	n.Bytes += len(s)
	if n.KeepText {
		n.Text = append(n.Text, s...)
	}
}

// addLabel is like Estimator.Label.
func (n *Counter) addLabel(s string) {
	if len(s) > maxLabel {
		n.AddText(s)
	}
}

func (n *Counter) addBytes(b []byte) {
	n.Bytes += len(b)
	if n.KeepText {
		n.Text = append(n.Text, b...)
	}
}

// addExtra adds strings, and arrays and objects, which may contain text. If media is true,
// strings that are media count as such; elsewhere a model would get them as text.
func (n *Counter) addExtra(e llm.Extra, media bool) {
	for name, v := range e {
		n.addLabel(name)
		switch {
		case len(v) == 0:
		case name == promptcache.Member:
			n.addLabel(string(v))
		case v[0] == '[', v[0] == '{', v[0] == '"' && media && mediaMembers[name]:
			n.addJSON(name, v, media)
		case v[0] == '"':
			n.AddText(jsonwire.Text(v))
		default:
			n.addLabel(string(v))
		}
	}
}

// MemberAudio is the member of a message in which OpenAI's models answer with audio.
const MemberAudio = "audio"

// mediaMembers has the names of members in which servers read data: URLs as media, or an
// array of them. Models get the texts in other members, whatever they look like.
var mediaMembers = map[string]bool{
	"url": true, "data": true, "file_data": true, "image_url": true, "video_url": true, "audio_url": true,
	"image": true, "images": true, "video": true, MemberAudio: true, "media": true,
}

// addJSON adds the JSON text v, which is the value of the member name. If media is true,
// data: URLs in base64 in mediaMembers count as media, and so does the base64 in the first
// member "data" of audio.
func (n *Counter) addJSON(name string, v []byte, media bool) {
	if media && (name == MemberAudio || name == llm.PartAudio) {
		if start := audioData(v); start > 0 {
			content := contentOf(v[start:])
			n.addBytes(v[:start])
			n.Media += len(content) / BytesPerMedia
			v = v[start+1+len(content):]
		}
	}
	afterMedia := false // v begins with the end of media
	for media {
		i := bytes.Index(v, []byte(`"data:`))
		if i < 0 {
			break
		}
		content := contentOf(v[i:])
		n.addBytes(v[:i+1])
		afterMedia = afterMedia && isNextElement(v[:i]) || isMediaMember(name, v[:i])
		if afterMedia = afterMedia && IsBase64URL(content); afterMedia {
			n.Media += dataTokens(content)
		} else {
			n.addBytes(content)
		}
		v = v[i+1+len(content):]
		name = "" // of what v begins with
	}
	n.addBytes(v)
}

// isMediaMember reports whether the string that follows head, the beginning of the value of the
// member name, is the value of one of mediaMembers, or the first element of it.
func isMediaMember(name string, head []byte) bool {
	head = bytes.TrimRight(head, jsonSpace)
	head = bytes.TrimRight(bytes.TrimSuffix(head, []byte("[")), jsonSpace)
	if len(head) == 0 {
		return mediaMembers[name]
	}
	head, isValue := bytes.CutSuffix(head, []byte(":"))
	head, isNamed := bytes.CutSuffix(bytes.TrimRight(head, jsonSpace), []byte(`"`))
	start := bytes.LastIndexByte(head, '"')
	isEscaped := start > 0 && head[start-1] == '\\'
	return isValue && isNamed && !isEscaped && mediaMembers[string(head[start+1:])]
}

// isNextElement reports whether head, which is between two strings, is what separates elements:
// the end of the first string and a comma.
func isNextElement(head []byte) bool {
	head, isEnd := bytes.CutPrefix(head, []byte(`"`))
	return isEnd && string(bytes.Trim(head, jsonSpace)) == ","
}

const jsonSpace = " \t\r\n"

// audioData returns where the value of the first member "data" of v begins, or 0 if that is
// not base64.
func audioData(v []byte) int {
	_, rest, _ := bytes.Cut(v, []byte(`"data"`))
	i := bytes.IndexByte(rest, '"')
	if i < 0 || !IsBase64(contentOf(rest[i:])) {
		return 0
	}
	return len(v) - len(rest) + i
}

// contentOf returns what is between the first byte of v, a quotation mark, and the next one.
// Base64 contains no escaped ones.
func contentOf(v []byte) []byte {
	end := bytes.IndexByte(v[1:], '"')
	return v[1 : 1+max(end, 0)]
}

// IsBase64URL reports whether url is a data: URL of base64.
func IsBase64URL[T string | []byte](url T) bool {
	head := string(url[:min(len(url), maxDataHead)])
	i := strings.IndexByte(head, ',')
	return strings.HasPrefix(head, dataScheme) && i > 0 && strings.HasSuffix(head[:i], ";base64") && IsBase64(url[i+1:])
}

const (
	dataScheme  = "data:"
	maxDataHead = 256 // longer media types are not known
)

// IsBase64 reports whether s has only the characters of base64, of which the slash may be
// escaped. Otherwise text for the model would count as media.
func IsBase64[T string | []byte](s T) bool {
	for i := range len(s) {
		if !base64Bytes[s[i]] && (s[i] != '\\' || i+1 == len(s) || s[i+1] != '/') {
			return false
		}
	}
	return true
}

var base64Bytes = func() (table [256]bool) {
	for _, c := range []byte(`ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=`) {
		table[c] = true
	}
	return table
}()

// dataTokens estimates the tokens of the data in a data: URL of base64.
func dataTokens[T string | []byte](url T) int {
	kind := string(url[len(dataScheme):min(len(url), maxDataHead)])
	switch kind[:strings.IndexAny(kind, `/\;,`)] { // JSON may escape the slash
	case "image", "audio", "video":
		return len(url) / BytesPerMedia
	case "text":
		return Estimate(len(url) / 4 * 3)
	}
	return len(url) / BytesPerFile
}

// Reported returns u, or nil if no number in it is above zero. Some servers send such a usage if they do
// not count tokens.
func Reported(u *llm.Usage) *llm.Usage {
	if u == nil || u.PromptTokens <= 0 && u.CompletionTokens <= 0 && u.TotalTokens <= 0 {
		return nil
	}
	return u
}
