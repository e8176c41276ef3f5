// Package join joins the chunks of a reply to a whole one:
//
//	reply, err := join.Collect(backend.Chat(ctx, req))
//
// [Collect] joins those of a stream, such as for a cache or an agent, and an [Accumulator] those that an
// encoder of a wire format gets one by one.
package join
