// What a Backend tells about a request, also on other goroutines: target, labels and usage.

package llmhttp

import (
	"slices"
	"sync"

	"github.com/llmhttp/llmhttp/llm"
)

// requestNotes are what the Backend and the host tell about a request for its record.
type requestNotes struct {
	mu     sync.Mutex // guards the fields below
	target string     // of the last StartTry
	rare   *rareNotes // nil until it is used, which keeps a request small (TestRequest_Size)
}

// rareNotes are those that most requests do not have.
type rareNotes struct {
	labels []Label // of AddLabel
	kept   []keptSwap
	calls  *callTree // nil until StartCall was called

	usageUnknown bool // see request.UsageUnknown
}

// getRare returns the rare notes. It is called with mu held.
func (n *requestNotes) getRare() *rareNotes {
	if n.rare == nil {
		n.rare = new(rareNotes)
	}
	return n.rare
}

// A keptSwap is the Backend that a request uses of a SwappableBackend.
type keptSwap struct {
	swap    *SwappableBackend
	backend *Backend
}

// keep returns the Backend that the request uses of s: that of the first call, for which it is
// current.
func (n *requestNotes) keep(s *SwappableBackend, current *Backend) *Backend {
	n.mu.Lock()
	defer n.mu.Unlock()
	rare := n.getRare()
	for _, k := range rare.kept {
		if k.swap == s {
			return k.backend
		}
	}
	rare.kept = append(rare.kept, keptSwap{s, current})
	return current
}

// setTarget notes the target of a try. The last one is recorded.
func (n *requestNotes) setTarget(target string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.target = target
}

// addLabel implements AddLabel.
func (n *requestNotes) addLabel(l Label) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	rare := n.getRare()
	others := slices.DeleteFunc(slices.Clone(rare.labels), func(other Label) bool { return other.Name == l.Name })
	if err := checkLabel(others, l); err != nil {
		return err
	}
	rare.labels = append(others, l)
	return nil
}

func (n *requestNotes) get() (target string, labels []Label) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rare != nil {
		labels = n.rare.labels
	}
	return n.target, labels
}

// getCalls returns the calls of the request, or nil if there are none.
func (n *requestNotes) getCalls() *callTree {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rare == nil {
		return nil
	}
	return n.rare.calls
}

// setCalls sets the calls of the request, unless others are set. It returns those that are.
func (n *requestNotes) setCalls(t *callTree) *callTree {
	n.mu.Lock()
	defer n.mu.Unlock()
	rare := n.getRare()
	if rare.calls == nil {
		rare.calls = t
	}
	return rare.calls
}

// setUsageUnknown notes that a usage is not known. It reports whether that is the first one.
func (n *requestNotes) setUsageUnknown() (first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	rare := n.getRare()
	first = !rare.usageUnknown
	rare.usageUnknown = true
	return first
}

// isUsageUnknown reports whether setUsageUnknown was called.
func (n *requestNotes) isUsageUnknown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rare != nil && n.rare.usageUnknown
}

// A usageReport is what a Backend has reported of the usage of its request. Its methods may
// be called concurrently.
type usageReport struct {
	mu    sync.Mutex // guards the fields below
	open  bool       // the Backend runs
	usage *llm.Usage // nil if nothing was reported
}

// setOpen sets whether the Backend runs.
func (r *usageReport) setOpen(open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = open
}

// report implements ReportUsage. It reports false if the Backend has returned.
func (r *usageReport) report(u llm.Usage) bool {
	u.Bound()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open && (r.usage == nil || r.usage.Total() <= u.Total()) {
		r.usage = &u
	}
	return r.open
}

// set sets the usage that the Backend has yielded or returned, unless it is nil.
func (r *usageReport) set(u *llm.Usage) {
	if u == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usage = u
}

// hold reports whether the Backend runs. If so, it does not return before release is called.
func (r *usageReport) hold() bool {
	r.mu.Lock()
	if !r.open {
		r.mu.Unlock()
		return false
	}
	return true
}

func (r *usageReport) release() { r.mu.Unlock() }

// get returns what was reported last, or nil.
func (r *usageReport) get() *llm.Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.usage
}
