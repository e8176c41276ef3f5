// Package join joins the chunks of a reply to a whole one.
package join
