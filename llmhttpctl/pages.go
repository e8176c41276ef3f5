package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"
)

// pageSize is the number of keys, accounts or entries that one call of the store returns.
const pageSize = 500

// limitFlag returns a flag that sets limit, which is 0 for all; value is the default.
func limitFlag(limit *int, value int, usage string) cli.Flag {
	return &cli.IntFlag{Name: "limit", Destination: limit, Value: value, Usage: usage, Validator: func(n int) error {
		if n < 0 {
			return errors.New("the limit is negative")
		}
		return nil
	}}
}

// listFlags returns the flags of a command that lists keys, accounts or entries from page to page.
func listFlags(after *string, limit *int, what string) []cli.Flag {
	return []cli.Flag{
		textFlag("after", after, "list only "+what+" after the one with this `ID`"),
		limitFlag(limit, 100, "the maximum `number` of "+what+"; 0 means all"),
	}
}

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
