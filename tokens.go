package llmhttp

import (
	"bytes"
	"strings"
)

// A tokenEstimator counts tokens of text.
type tokenEstimator struct {
	model string
	count func(model, text string) int // nil for an estimate by length
}

func (c tokenEstimator) text(s string) int {
	if s == "" {
		return 0
	}
	if c.count != nil {
		return max(c.count(c.model, s), 0)
	}
	return estimateTokens(len(s))
}

// estimateTokens estimates the number of tokens of a text of that many bytes.
func estimateTokens(bytes int) int { return (bytes + 3) / 4 }

// The tokens of a chat besides its texts. OpenAI counts an image in low detail as 85 tokens, and a
// few for each message.
//
// What vendors count for media depends on pixels, seconds and pages, which are not known
// here. The estimate by the length of the base64 is near that for photos of a few hundred
// kilobytes, and for PDF files of mostly text.
const (
	tokensPerMessage = 4
	tokensPerMedia   = 85  // of an image, a recording or a file, and one more for each of the following bytes
	bytesPerMedia    = 512 // of the base64 of images, audio and video, or of the URL of an image
	bytesPerFile     = 16  // of the base64 of files that are neither media nor text
)

// maxLabel is the length in bytes up to which types, IDs, and parameters that are not text for
// the model count nothing. A longer text may be meant for the model.
const maxLabel = 64

// label counts the tokens of a text that is usually a label, such as a type or an ID.
func (c tokenEstimator) label(s string) int {
	if len(s) <= maxLabel {
		return 0
	}
	return c.text(s)
}

// prompt counts the tokens of everything in a chat that a model may get.
func (c tokenEstimator) prompt(r *ChatRequest) int {
	n := c.label(r.Model) + c.label(r.ReasoningEffort) + c.toolChoice(r.ToolChoice) + c.extra(r.Extra)
	for i := range r.Messages {
		n += c.message(&r.Messages[i])
	}
	for i := range r.Tools {
		n += c.tool(&r.Tools[i])
	}
	for _, s := range r.Stop {
		n += c.label(s)
	}
	n += c.responseFormat(r.ResponseFormat)
	if o := r.StreamOptions; o != nil {
		n += c.extra(o.Extra)
	}
	return n
}

// message counts the tokens of a message. The text in the details of reasoning usually repeats
// the other, so the longer one counts.
func (c tokenEstimator) message(m *Message) int {
	n, reasoning, details := tokensPerMessage, 0, 0
	m.walk(func(kind textKind, s *string) {
		switch kind {
		case textReasoning:
			reasoning += c.text(*s)
		case textDetail:
			details += c.text(*s)
		default:
			n += c.ofKind(kind, *s)
		}
	}, func(kind textKind, e Extra) { n += c.members(kind, e) })
	for i := range m.Content {
		if m.Content[i].Type != PartText {
			n += tokensPerMedia
		}
	}
	return n + max(reasoning, details)
}

// ofKind counts the tokens of a text of a kind.
func (c tokenEstimator) ofKind(kind textKind, s string) int {
	switch kind {
	case textLabel, textRole:
		return c.label(s)
	case textMedia:
		return len(s) / bytesPerMedia
	}
	return c.text(s)
}

func (c tokenEstimator) tool(t *Tool) (n int) {
	t.walk(func(kind textKind, s *string) { n += c.ofKind(kind, *s) }, func(kind textKind, e Extra) { n += c.members(kind, e) })
	if t.Function != nil {
		n += c.text(string(t.Function.Parameters))
	}
	return n
}

func (c tokenEstimator) toolChoice(t *ToolChoice) int {
	if t == nil {
		return 0
	}
	n := c.label(t.Mode) + c.label(t.Type) + c.namedTool(t.Function) + c.namedTool(t.Custom) + c.extra(t.Extra)
	if a := t.AllowedTools; a != nil {
		n += c.label(a.Mode) + c.extra(a.Extra)
		for _, t := range a.Tools {
			n += c.label(t.Type) + c.namedTool(t.Function) + c.namedTool(t.Custom) + c.extra(t.Extra)
		}
	}
	return n
}

func (c tokenEstimator) namedTool(t *NamedTool) int {
	if t == nil {
		return 0
	}
	return c.text(t.Name) + c.extra(t.Extra)
}

func (c tokenEstimator) responseFormat(f *ResponseFormat) int {
	if f == nil {
		return 0
	}
	n := c.label(f.Type) + c.extra(f.Extra)
	if s := f.JSONSchema; s != nil {
		n += c.text(s.Name) + c.text(s.Description) + c.text(string(s.Schema)) + c.extra(s.Extra)
	}
	return n
}

// extra counts the tokens of the members of e as text.
func (c tokenEstimator) extra(e Extra) int { return c.members(textWhole, e) }

// members counts the tokens of the members of an Extra of a kind.
func (c tokenEstimator) members(kind textKind, e Extra) int {
	if len(e) == 0 {
		return 0
	}
	out := outputCounter{keepText: c.count != nil}
	out.addExtra(e, kind == textMedia)
	return c.output(&out)
}

// output counts the tokens of a reply.
func (c tokenEstimator) output(out *outputCounter) int {
	if c.count != nil {
		return c.text(string(out.text)) + out.media
	}
	return estimateTokens(out.bytes) + out.media
}

// An outputCounter counts the text of a reply, from which tokenEstimator.output estimates the
// tokens.
type outputCounter struct {
	keepText bool // whether text is kept, for Options.TextTokens
	bytes    int
	text     []byte
	media    int // tokens of media
}

// add adds the texts of d. Of the two forms of reasoning it adds the longer one, because one
// usually repeats the other.
func (n *outputCounter) add(d *Delta) {
	repeated := d.repeatedReasoning()
	d.walk(func(kind textKind, s *string) {
		switch kind {
		case repeated:
		case textLabel, textRole:
			n.addLabel(*s)
		default:
			n.addText(*s)
		}
	}, n.addExtraOfKind)
}

// repeatedReasoning returns the kind of the texts that the longer form of reasoning repeats:
// textReasoning or textDetail.
func (d *Delta) repeatedReasoning() textKind {
	if len(d.ReasoningDetails) == 0 {
		return textDetail
	}
	var bytes [textKinds]int
	d.walk(func(kind textKind, s *string) { bytes[kind] += len(*s) }, ignoreExtra)
	if bytes[textDetail] > bytes[textReasoning] {
		return textReasoning
	}
	return textDetail
}

// addExtraOfKind adds the members of an Extra. Those of details are usually labels, which are
// the same in each delta.
func (n *outputCounter) addExtraOfKind(kind textKind, e Extra) {
	if kind != textDetail {
		n.addExtra(e, kind == textMedia)
		return
	}
	for name, v := range e {
		n.addLabel(name)
		n.addLabel(string(v))
	}
}

func (n *outputCounter) addText(s string) {
	n.bytes += len(s)
	if n.keepText {
		n.text = append(n.text, s...)
	}
}

// addLabel is like tokenEstimator.label.
func (n *outputCounter) addLabel(s string) {
	if len(s) > maxLabel {
		n.addText(s)
	}
}

func (n *outputCounter) addBytes(b []byte) {
	n.bytes += len(b)
	if n.keepText {
		n.text = append(n.text, b...)
	}
}

// addExtra adds strings, and arrays and objects, which may contain text. If media is true,
// strings that are media count as such; elsewhere a model would get them as text.
func (n *outputCounter) addExtra(e Extra, media bool) {
	for name, v := range e {
		n.addLabel(name)
		switch {
		case len(v) == 0:
		case v[0] == '[', v[0] == '{', v[0] == '"' && media && mediaMembers[name]:
			n.addJSON(name, v, media)
		case v[0] == '"':
			n.addText(textOf(v))
		default:
			n.addLabel(string(v))
		}
	}
}

// memberAudio is the member of a message in which OpenAI's models answer with audio.
const memberAudio = "audio"

// mediaMembers has the names of members in which servers read data: URLs as media, or an
// array of them. Models get the texts in other members, whatever they look like.
var mediaMembers = map[string]bool{
	"url": true, "data": true, "file_data": true, "image_url": true, "video_url": true, "audio_url": true,
	"image": true, "images": true, "video": true, memberAudio: true, "media": true,
}

// addJSON adds the JSON text v, which is the value of the member name. If media is true,
// data: URLs in base64 in mediaMembers count as media, and so does the base64 in the first
// member "data" of audio.
func (n *outputCounter) addJSON(name string, v []byte, media bool) {
	if media && (name == memberAudio || name == PartAudio) {
		if start := audioData(v); start > 0 {
			content := contentOf(v[start:])
			n.addBytes(v[:start])
			n.media += len(content) / bytesPerMedia
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
		if afterMedia = afterMedia && isBase64URL(content); afterMedia {
			n.media += dataTokens(content)
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
	if i < 0 || !isBase64(contentOf(rest[i:])) {
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

// isBase64URL reports whether url is a data: URL of base64.
func isBase64URL[T string | []byte](url T) bool {
	head := string(url[:min(len(url), maxDataHead)])
	i := strings.IndexByte(head, ',')
	return strings.HasPrefix(head, dataScheme) && i > 0 && strings.HasSuffix(head[:i], ";base64") && isBase64(url[i+1:])
}

const (
	dataScheme  = "data:"
	maxDataHead = 256 // longer media types are not known
)

// isBase64 reports whether s has only the characters of base64, of which the slash may be
// escaped. Otherwise text for the model would count as media.
func isBase64[T string | []byte](s T) bool {
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
		return len(url) / bytesPerMedia
	case "text":
		return estimateTokens(len(url) / 4 * 3)
	}
	return len(url) / bytesPerFile
}
