package main

import (
	"flag"
	"fmt"
	"strconv"
)

// pageSize is the number of keys, accounts or entries that one call of the store returns.
const pageSize = 500

// limitFlag adds a flag to f for the maximum number of what a command lists.
func limitFlag(f *flag.FlagSet, what string) *int {
	limit := 100
	f.Func("limit", "the maximum `number` of "+what+"; 0 means all; the default is 100", func(s string) (err error) {
		if limit, err = strconv.Atoi(s); err == nil && limit < 0 {
			err = errNegativeLimit
		}
		return err
	})
	return &limit
}

var errNegativeLimit = usageErrorf("the limit is negative")

// printPages calls read for one page after the other until it has up to limit elements, or all if
// limit is 0, and then print. It tells the user how to see more, if there may be more. read gets
// the ID of the element after which the page begins, which id returns of an element, and the size
// of the page.
func printPages[T any](
	p *printer,
	limit int,
	after string,
	read func(after string, size int) ([]T, error),
	id func(*T) string,
	print func([]T) error,
) error {
	var list []T
	for {
		size := pageSize
		if limit > 0 {
			size = min(limit-len(list), pageSize)
		}
		page, err := read(after, size)
		if err != nil {
			return err
		}
		list = append(list, page...)
		if len(page) < size {
			return print(list)
		}
		after = id(&list[len(list)-1])
		if len(list) == limit {
			break
		}
	}
	if err := print(list); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p.stderr, "There may be more: --after %s\n", printable(after))
	return err
}
