// Package order puts the chunks of a reply in valid order: choices open once, characters are whole, calls are told apart, and nothing follows an end.
package order
