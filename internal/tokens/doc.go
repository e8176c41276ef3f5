// Package tokens estimates the tokens of requests and replies by the length of their texts, or has a function count them.
package tokens
