// Package jsonjoin joins JSON values and texts that come in pieces.
package jsonjoin
