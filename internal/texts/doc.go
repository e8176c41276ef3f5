// Package texts walks over the texts of requests and replies, and splits and measures them.
package texts
