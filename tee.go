package llmhttp

// Tee returns a stream that yields what s yields. Before that it calls f with each chunk, or with
// the error that ends s. When s has ended without an error, Tee calls f once more, with a nil chunk
// and a nil error: the reply is complete, unless the context of the request is done. If the reader
// of the stream stops, for example because the client has left, f is not called again.
//
// f must not change a chunk, and must not keep it after it has returned, because the reader may
// change it: a [ChatChunk.Clone] can be kept. f runs on the goroutine of the stream, which waits
// for it. The stream ends with the first error, and a chunk that is yielded together with an error
// is dropped.
//
// Tee is for what reads replies without changing them, such as a cache. [FilterTexts] changes
// texts.
func Tee(s ChatStream, f func(*ChatChunk, error)) ChatStream {
	if s == nil {
		s = Fail(errNilStream)
	}
	return func(yield func(*ChatChunk, error) bool) {
		for chunk, err := range s {
			if err != nil {
				f(nil, err)
				yield(nil, err)
				return
			}
			if chunk != nil { // the Handler logs a nil chunk as a mistake
				f(chunk, nil)
			}
			if !yield(chunk, nil) {
				return
			}
		}
		f(nil, nil)
	}
}
