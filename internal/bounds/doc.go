// Package bounds has the numbers of elements that requests and replies may have.
package bounds
