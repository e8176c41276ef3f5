// The parts of the content of a message: texts, images and documents.

package anthropic

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	own "github.com/llmhttp/llmhttp/internal/anthropic"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
)

// memberCache is the member of an Extra, and of a block, that tells the server what to cache.
const memberCache = "cache_control"

// appendCache appends the cache_control of what has the given Extra, if it has one.
func (e *encoder) appendCache(extra llm.Extra) {
	mark := extra[memberCache]
	if len(mark) > 0 && mark[0] == '{' && !e.opts.OmitCacheControl {
		e.member(memberCache)
		e.b = append(e.b, mark...)
	}
}

func messagePath(i int, member string) string { return "messages[" + strconv.Itoa(i) + "]." + member }

// appendContent appends the content of message i as blocks of a turn.
func (e *encoder) appendContent(role string, i int, content llm.Content) error {
	for k := 0; k < len(content); k++ {
		before, open := len(e.b), e.role
		e.beginBlock(role)
		if raw := content[k].Extra[own.Member]; raw != nil {
			if n, err := e.appendSource(raw, content[k:], messagePath(i, "content")); n > 0 || err != nil {
				if err != nil {
					return err
				}
				k += n - 1
				continue
			}
		}
		ok, err := e.appendPart(&content[k], messagePath(i, "content"), true)
		if err != nil {
			return err
		}
		if !ok {
			e.b, e.role = e.b[:before], open
		}
	}
	return nil
}

// appendSource appends the document or the search result of which raw, an own.Source, has what its parts have not. It returns
// how many of the parts belong to it: none if raw is something else.
func (e *encoder) appendSource(raw json.RawMessage, parts llm.Content, path string) (n int, err error) {
	var s own.Source
	if json.Unmarshal(raw, &s) != nil || s.Parts < 1 || s.Parts > len(parts) {
		return 0, nil
	}
	typ, content := own.TypeOf(s.Block), parts[:s.Parts]
	if s.Title {
		content = content[1:]
	}
	if members, ok := own.Members(s.Block); !ok || len(members) == 0 || typ != "document" && typ != "search_result" {
		return 0, nil
	}
	before := len(e.b)
	e.b = append(e.b, s.Block...)
	e.b = e.b[:before+strings.LastIndexByte(string(e.b[before:]), '}')]
	switch {
	case typ == "search_result":
		e.member("content")
		err = e.appendList(content, path)
	case len(content) == 1 && content[0].Type == llm.PartFile:
		e.member("source")
		err = e.appendFileSource(&content[0], path)
	case len(content) == 1 && s.Text:
		e.b = append(e.b, `,"source":{"type":"text","media_type":"text/plain","data":`...)
		e.b = append(jsonwire.AppendString(e.b, content[0].Text), '}')
	default:
		e.b = append(e.b, `,"source":{"type":"content","content":`...)
		err = e.appendList(content, path)
		e.b = append(e.b, '}')
	}
	e.appendCache(parts[s.Parts-1].Extra)
	e.b = append(e.b, '}')
	return s.Parts, err
}

// appendList appends parts as a list of blocks within another block.
func (e *encoder) appendList(parts llm.Content, path string) error {
	e.b = append(e.b, '[')
	start := len(e.b)
	for i := range parts {
		before := len(e.b)
		if before > start {
			e.b = append(e.b, ',')
		}
		ok, err := e.appendPart(&parts[i], path, false)
		if err != nil {
			return err
		}
		if !ok {
			e.b = e.b[:before]
		}
	}
	e.b = append(e.b, ']')
	return nil
}

// appendPart appends a part as a block. It reports false for an empty text, which the API refuses. marked says that the block
// may have a cache_control.
func (e *encoder) appendPart(p *llm.Part, path string, marked bool) (ok bool, err error) {
	switch {
	case p.Type == llm.PartText:
		if p.Text == "" {
			return false, nil
		}
		e.b = jsonwire.AppendString(append(e.b, `{"type":"text","text":`...), p.Text)
	case p.Type == llm.PartImage && p.ImageURL != nil:
		e.b = append(e.b, `{"type":"image","source":`...)
		err = e.appendURLSource(p.ImageURL.URL, path)
	case p.Type == llm.PartFile:
		e.b = append(e.b, `{"type":"document","source":`...)
		if err = e.appendFileSource(p, path); err == nil {
			if title := jsonwire.Text(own.Get(p.Extra[llm.PartFile], "filename")); title != "" {
				e.member("title")
				e.b = jsonwire.AppendString(e.b, title)
			}
		}
	default:
		return false, invalidParam(path, "Content of the type '%s' is not supported by this model.", jsonwire.Clip(p.Type, 64))
	}
	if err != nil {
		return false, err
	}
	if marked {
		e.appendCache(p.Extra)
	}
	e.b = append(e.b, '}')
	return true, nil
}

// appendURLSource appends the source of an image or a document that is at an address, or in a data: URL.
func (e *encoder) appendURLSource(url, path string) error {
	rest, isData := strings.CutPrefix(url, "data:")
	if !isData {
		e.b = append(jsonwire.AppendString(append(e.b, `{"type":"url","url":`...), url), '}')
		return nil
	}
	head, data, found := strings.Cut(rest, ",")
	media, isBase64 := strings.CutSuffix(head, ";base64")
	media, _, _ = strings.Cut(media, ";")
	if !found || media == "" || !isBase64 {
		return invalidParam(path, "a data: URL must have a media type and be in base64")
	}
	e.b = jsonwire.AppendString(append(e.b, `{"type":"base64","media_type":`...), media)
	e.member("data")
	e.b = append(jsonwire.AppendString(e.b, data), '}')
	return nil
}

// appendFileSource appends the source of a document: a PDF, or a text, which the API does not take in base64.
func (e *encoder) appendFileSource(p *llm.Part, path string) error {
	file := p.Extra[llm.PartFile]
	data := jsonwire.Text(own.Get(file, "file_data"))
	if data == "" {
		return invalidParam(path, "a file must have file_data: files that were uploaded before are not supported by this model")
	}
	rest, isText := strings.CutPrefix(data, "data:text/")
	if !isText {
		return e.appendURLSource(data, path)
	}
	head, encoded, _ := strings.Cut(rest, ",")
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !strings.HasSuffix(head, ";base64") {
		return invalidParam(path, "a data: URL must have a media type and be in base64")
	}
	e.b = append(e.b, `{"type":"text","media_type":"text/plain","data":`...)
	e.b = append(jsonwire.AppendString(e.b, string(text)), '}')
	return nil
}
