// What end users have used, for their quotas.

package memory

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
)

// userSums are what end users have used, apart from the other entries of a UsageStore, because
// they are kept for longer. Its zero value has none.
type userSums struct {
	users map[userID]*[]userEntry // in any order
	count int                     // number of all entries
}

type userID struct{ account, user string }

type userEntry struct {
	model string
	entry
}

// add adds an entry for r, which has an end user.
func (u *userSums) add(r *llmhttp.UsageRecord) {
	if u.users == nil {
		u.users = make(map[userID]*[]userEntry)
	}
	id := userID{r.Account, r.User}
	entries := u.users[id]
	if entries == nil {
		entries = new([]userEntry)
		id.user = strings.Clone(r.User) // r may refer to the memory of a request's body
		u.users[id] = entries
	}
	sum, model := r.Sum(), strings.Clone(r.Model)
	var one [1]entry // most records have one
	for _, e := range appendEntries(one[:0], &sum) {
		*entries = append(*entries, userEntry{model, e})
		u.count++
	}
	if u.count > maxEntries {
		u.compact()
	}
}

// query adds the entries of a user that q selects to periods.
func (u *userSums) query(q *llmhttp.UsageQuery, periods *usageAdder) {
	entries := u.users[userID{q.Account, q.Subject.ID}]
	if entries == nil {
		return
	}
	for i := range *entries {
		e := &(*entries)[i]
		start := e.start()
		if start.Before(q.From) || !start.Before(q.To) {
			continue
		}
		sum := e.sum()
		periods.add(q.PeriodStart(start), e.model, &sum)
	}
}

// compact reduces the entries to at most three quarters of maxEntries.
func (u *userSums) compact() {
	times := make([]time.Time, 0, u.count)
	for _, entries := range u.users {
		for i := range *entries {
			times = append(times, (*entries)[i].start())
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	median := times[len(times)/2]
	for _, period := range []func(time.Time) time.Time{hourOf, monthOf} {
		if u.addUp(median, period); u.count <= maxEntries/4*3 {
			return
		}
	}
	u.forget(maxEntries / 4 * 3)
}

func hourOf(t time.Time) time.Time { return t.Truncate(time.Hour) }

func monthOf(t time.Time) time.Time {
	year, month, _ := t.Date()
	return time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
}

// addUp replaces the entries of each user and model until a time, inclusive, by one for each
// period. It has the latest of their times.
func (u *userSums) addUp(until time.Time, period func(time.Time) time.Time) {
	u.count = 0
	for _, entries := range u.users {
		if len(*entries) == 1 {
			u.count++
			continue
		}
		kept := (*entries)[:0]
		type sum struct {
			usagePeriod
			lifetime time.Duration
		}
		added := make(map[sum]int) // indices in kept
		for _, e := range *entries {
			at := e.start()
			if at.After(until) {
				kept = append(kept, e)
				continue
			}
			p := sum{usagePeriod{period(at), e.model}, e.lifetime}
			if i, ok := added[p]; ok {
				kept[i].add(&e.entry)
				continue
			}
			added[p] = len(kept)
			kept = append(kept, e)
		}
		*entries = slices.Clone(kept)
		u.count += len(kept)
	}
}

// add adds other to e, which gets the later time of both.
func (e *entry) add(other *entry) {
	sum, added := e.sum(), other.sum()
	sum.Add(added)
	if added.Start.After(sum.Start) {
		sum.Start = added.Start
	}
	*e = appendEntries(nil, &sum)[0] // both have the same lifetime
}

// forget removes users until there are at most a number of entries: those first whose last use
// is the longest time ago.
func (u *userSums) forget(most int) {
	type user struct {
		id   userID
		last time.Time
	}
	users := make([]user, 0, len(u.users))
	for id, entries := range u.users {
		last := user{id: id}
		for i := range *entries {
			if at := (*entries)[i].start(); i == 0 || at.After(last.last) {
				last.last = at
			}
		}
		users = append(users, last)
	}
	slices.SortFunc(users, func(a, b user) int { return a.last.Compare(b.last) })
	forgotten := 0
	for ; u.count > most; forgotten++ {
		id := users[forgotten].id
		u.count -= len(*u.users[id])
		delete(u.users, id)
	}
	slog.Warn("memory: the UsageStore is full, and has forgotten what end users have used; their quotas begin anew",
		"users", forgotten, "last_used_before", users[forgotten-1].last)
}
