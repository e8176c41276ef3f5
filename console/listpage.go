// A page of a list, and the queries of its neighbors.

package console

import (
	"net/url"
	"slices"
)

// A listPage is a page of a list, newest first.
type listPage[T any] struct {
	Items        []T
	Newer, Older string // queries of the neighboring pages; empty on the first and the last page
}

// readListPage reads a page with at most size items: the first one, or the one after or before
// the item that query names. list is called with the ID of that item, or "", with the order,
// and with a limit; idOf returns the ID of an item. The neighboring pages have the other
// parameters of query too.
func readListPage[T any](
	query url.Values,
	size int,
	list func(after string, newest bool, limit int) ([]T, error),
	idOf func(*T) string,
) (p listPage[T], err error) {
	after, backward := query.Get("after"), query.Get("before") != ""
	if backward {
		after = query.Get("before")
	}
	items, err := list(after, !backward, size+1) // one more tells whether there is another page
	if err != nil {
		return p, err
	}
	more := len(items) > size
	p.Items = items[:min(len(items), size)]
	hasOlder, hasNewer := more, query.Has("after")
	if backward {
		slices.Reverse(p.Items)
		hasOlder, hasNewer = true, query.Has("after") || more
	}
	if len(p.Items) == 0 {
		return p, nil
	}
	if hasOlder {
		p.Older = neighborQuery(query, "after", idOf(&p.Items[len(p.Items)-1]))
	}
	if hasNewer {
		p.Newer = neighborQuery(query, "before", idOf(&p.Items[0]))
	}
	return p, nil
}

// neighborQuery returns the query of the page after or before an item.
func neighborQuery(query url.Values, direction, id string) string {
	v := make(url.Values)
	for name := range query {
		if value := query.Get(name); value != "" && name != "after" && name != "before" {
			v.Set(name, value)
		}
	}
	v.Set(direction, id)
	return "?" + v.Encode()
}
