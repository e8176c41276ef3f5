// Package saturating adds numbers whose sum may be more than their type holds.
package saturating
