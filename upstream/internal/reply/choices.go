// The indices of the choices of a reply.

package reply

import "github.com/llmhttp/llmhttp/llm"

// choices assigns indices to the choices of a reply. A choice keeps the index that the
// server gives it if that is less than the number of choices that the client requested.
type choices struct {
	requested int          // the number of choices that the client requested
	finished  map[int]bool // the indices of the choices that have a finish_reason
	byServer  map[int]int  // for a stream: from the server's index to the assigned index
	taken     map[int]bool // the indices that are assigned in byServer
}

func newChoices(requested int) choices {
	return choices{requested: requested, finished: make(map[int]bool), byServer: make(map[int]int), taken: make(map[int]bool)}
}

// assignIndices sets the indices of the choices of a chunk, and records which choices
// are finished. An index that the client did not request, such as that of a server
// which counts from 1, is replaced by the lowest free index.
func (c *choices) assignIndices(list []llm.ChunkChoice) {
	for i := range list {
		choice := &list[i]
		index, ok := c.byServer[choice.Index]
		if !ok {
			index = c.assignIndex(choice.Index)
		}
		choice.Index = index
		if choice.FinishReason != "" && index < c.requested {
			c.finished[index] = true
		}
	}
}

// assignIndex returns the index for a new choice of a stream, to which the server gave
// serverIndex. If all requested indices are taken, it returns a higher one.
func (c *choices) assignIndex(serverIndex int) int {
	if len(c.taken) >= c.requested {
		return max(serverIndex, c.requested)
	}
	free := serverIndex
	if free < 0 || free >= c.requested {
		free = 0
	}
	for c.taken[free] {
		free = (free + 1) % c.requested
	}
	c.byServer[serverIndex], c.taken[free] = free, true
	return free
}

// assignWholeIndices sets the indices of the choices of a whole reply. If the indices of
// the server are not valid or not unique, it numbers the choices in their order.
func (c *choices) assignWholeIndices(list []llm.ChunkChoice) {
	seen := make(map[int]bool)
	for i := range list {
		index := list[i].Index
		if index < 0 || index >= c.requested || seen[index] {
			for i := range list {
				list[i].Index = i
			}
			return
		}
		seen[index] = true
	}
}

// allFinished reports whether all choices have a finish_reason.
func (c *choices) allFinished() bool { return len(c.finished) == c.requested }
