// The conversations that connections keep.

package responsesws

import (
	"container/list"
	"sync"
)

// A conversation is what a request begins with that continues a response.
type conversation struct {
	id    string // of the response
	base  string // the previous_response_id of the request, which its store knows; empty if there is none
	items []byte // what has followed since, separated by commas
}

// histories keep the last conversation of each stream of each connection, as far as their sizes permit.
type histories struct {
	max, maxTotal int64 // bytes of a connection, and of all

	mu     sync.Mutex // guards the fields below and those of history
	total  int64
	recent list.List // of *kept; what was used least recently comes first
}

// A history has the conversations of a connection.
type history struct {
	byStream map[string]*kept
	size     int64
}

// A kept conversation is in the list of all.
type kept struct {
	conversation
	history  *history
	streamID string
	element  *list.Element
}

func (k *kept) size() int64 { return int64(len(k.items) + len(k.id) + len(k.base)) }

// keep makes c the conversation of a stream. It is forgotten at once if it is larger than a connection may keep.
func (hs *histories) keep(h *history, streamID string, c conversation) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if old := h.byStream[streamID]; old != nil {
		hs.forget(old)
	}
	k := &kept{conversation: c, history: h, streamID: streamID}
	if k.size() > min(hs.max, hs.maxTotal) {
		return
	}
	for h.size+k.size() > hs.max {
		hs.forget(hs.oldestOf(h))
	}
	for hs.total+k.size() > hs.maxTotal {
		hs.forget(hs.recent.Front().Value.(*kept))
	}
	if h.byStream == nil {
		h.byStream = make(map[string]*kept)
	}
	h.byStream[streamID] = k
	h.size += k.size()
	hs.total += k.size()
	k.element = hs.recent.PushBack(k)
}

// oldestOf returns the conversation of h that was used least recently.
func (hs *histories) oldestOf(h *history) *kept {
	for e := hs.recent.Front(); ; e = e.Next() {
		if k := e.Value.(*kept); k.history == h {
			return k
		}
	}
}

// find returns the conversation of the response with the given ID, if h has it.
func (hs *histories) find(h *history, id string) (conversation, bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, k := range h.byStream {
		if k.id == id {
			hs.recent.MoveToBack(k.element)
			return k.conversation, true
		}
	}
	return conversation{}, false
}

// clear forgets all conversations of h.
func (hs *histories) clear(h *history) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, k := range h.byStream {
		hs.forget(k)
	}
}

func (hs *histories) forget(k *kept) {
	hs.recent.Remove(k.element)
	delete(k.history.byStream, k.streamID)
	k.history.size -= k.size()
	hs.total -= k.size()
}
