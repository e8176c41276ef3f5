package upstream

import "github.com/llmhttp/llmhttp"

// choices are the choices of a reply, streamed or whole. A choice has the index
// that the server gives it, even if there are gaps, unless the client did not ask
// for that index.
type choices struct {
	requested int          // how many the client asked for
	finished  map[int]bool // which of them have a finish_reason, by index
	byServer  map[int]int  // the index of a choice of a stream by the server's index
	taken     map[int]bool // the indices in byServer
}

func newChoices(requested int) choices {
	return choices{requested: requested, finished: make(map[int]bool), byServer: make(map[int]int), taken: make(map[int]bool)}
}

// number gives the choices of a chunk their indices, and notes which of them are
// finished. An index that the client did not ask for, as of a server that counts
// from 1, is replaced by the lowest one that is free.
func (c *choices) number(list []llmhttp.ChunkChoice) {
	for i := range list {
		choice := &list[i]
		index, ok := c.byServer[choice.Index]
		if !ok {
			index = c.take(choice.Index)
		}
		choice.Index = index
		if choice.FinishReason != "" && index < c.requested {
			c.finished[index] = true
		}
	}
}

// take returns the index for a new choice to which the server gave index. If all
// are taken, it is one that the client did not ask for.
func (c *choices) take(index int) int {
	if len(c.taken) >= c.requested {
		return max(index, c.requested)
	}
	free := index
	if free < 0 || free >= c.requested {
		free = 0
	}
	for c.taken[free] {
		free = (free + 1) % c.requested
	}
	c.byServer[index], c.taken[free] = free, true
	return free
}

// numberWhole gives the choices of a whole reply their indices. If one of them
// cannot have the index that the server gives it, all are numbered in their order.
func (c *choices) numberWhole(list []llmhttp.ChunkChoice) {
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

// areFinished reports whether all choices have a finish_reason.
func (c *choices) areFinished() bool { return len(c.finished) == c.requested }
