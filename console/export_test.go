package console

import "time"

// SetTime lets m believe that it is t.
func SetTime(m *Monitor, t time.Time) { m.now = func() time.Time { return t } }
