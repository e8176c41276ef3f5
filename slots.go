package llmhttp

// slots are the places of a request among those that Limits.Concurrent lets its subjects have
// in progress. The zero slots are none.
type slots struct {
	log  *requestLog
	give func() // gives the slots back; nil if there are none
}

// add adds slots that give gives back.
func (s *slots) add(log *requestLog, give func()) {
	s.log = log
	before := s.give
	if before == nil {
		s.give = give
		return
	}
	s.give = func() {
		defer before() // also if give panics
		give()
	}
}

// release gives the slots back, once.
func (s *slots) release() {
	give := s.give
	if give == nil {
		return
	}
	s.give = nil
	s.log.callAndLog("concurrent request not released", func() error { give(); return nil })
}

// releaser returns release, or nil if there is nothing to give back.
func (s *slots) releaser() func() {
	if s.give == nil {
		return nil
	}
	return s.release
}
