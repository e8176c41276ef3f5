// Package manage has the interfaces of programs that manage keys and accounts and report
// usage, such as a console or a command. Stores implement them beside the interfaces of package
// llmhttp; a [llmhttp.Handler] needs none of them.
package manage
