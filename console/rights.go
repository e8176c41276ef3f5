// Which keys are within that with which a person has signed in.

package console

import (
	"math/bits"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console/internal/session"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
)

// sees reports whether u may know that the key exists.
func (u *User) sees(k *manage.KeyInfo) bool { return u.Admin || k.Account == u.Account }

// mayManage reports whether u may obtain a secret of a key that u sees, change it or
// revoke it. People who have signed in with a key may do so only for keys that are
// within theirs, so that a restricted key does not open the others of its account. Their
// own key is within itself, unless a rotation has set an end to their secret: then they
// cannot obtain another one that works longer.
func (u *User) mayManage(k *manage.KeyInfo) bool { return u.key == nil || isWithin(&k.Key, u.key) }

// refusal returns the reason why u may not manage a key that u sees.
func (u *User) refusal(k *manage.KeyInfo) error {
	if u.isReplaced(k) {
		return errReplacedSecret
	}
	return errForbidden
}

// isReplaced reports whether u has signed in with a secret of k that works only until the
// overlap of a rotation ends.
func (u *User) isReplaced(k *manage.KeyInfo) bool {
	return u.key != nil && k.ID == u.key.ID && !session.ExpiryWithin(k.Expires, u.key.Expires)
}

// mayCall reports whether u may call the API with a key that u sees. Everybody may
// do so with the own key.
func (u *User) mayCall(k *manage.KeyInfo) bool {
	return u.mayManage(k) || u.key != nil && k.ID == u.key.ID
}

func (u *User) mayCreate() bool { return u.Admin || u.Grant != nil }

// isWithin reports whether k permits nothing that limit does not permit: no other
// endpoints and models, no later expiry and no higher limits. Where periods of quotas
// cannot be compared, it returns false.
func isWithin(k, limit *llmhttp.Key) bool {
	return scopesWithin(k, limit) && modelsWithin(k, limit) &&
		session.ExpiryWithin(k.Expires, limit.Expires) && limitsWithin(&k.Limits, &limit.Limits) &&
		limitsWithin(&k.PerUser, &limit.PerUser) && subjectsWithin(k.Subjects, limit.Subjects)
}

// subjectsWithin reports whether subjects have those of limit that have limits, with no higher ones.
func subjectsWithin(subjects, limit []llmhttp.Subject) bool {
	for i := range limit {
		var l llmhttp.Limits // none for a subject that is missing
		if k := slices.IndexFunc(subjects, func(s llmhttp.Subject) bool { return s.ID == limit[i].ID }); k >= 0 {
			l = subjects[k].Limits
		}
		if !limitsWithin(&l, &limit[i].Limits) {
			return false
		}
	}
	return true
}

func scopesWithin(k, limit *llmhttp.Key) bool {
	if limit.Scopes != nil && k.Scopes == nil {
		return false
	}
	for _, scope := range k.Scopes {
		if !limit.AllowsScope(scope) {
			return false
		}
	}
	return true
}

func modelsWithin(k, limit *llmhttp.Key) bool {
	if limit.Models != nil && k.Models == nil {
		return false
	}
	for _, model := range k.Models { // a pattern of k is within limit if it matches as a text
		if !limit.AllowsModel(model) {
			return false
		}
	}
	return true
}

func limitsWithin(l, limit *llmhttp.Limits) bool {
	return rateWithin(l.Requests, limit.Requests) &&
		rateWithin(l.Tokens, limit.Tokens) &&
		quotaWithin(&l.Quota, &limit.Quota) &&
		amountWithin(l.MaxCompletionTokens, limit.MaxCompletionTokens) &&
		amountWithin(l.Concurrent, limit.Concurrent)
}

// amountWithin reports whether n is not more than limit. Zero means no limit, and a
// negative number permits nothing.
func amountWithin[T int | llm.Money](n, limit T) bool {
	return limit == 0 || n != 0 && max(n, 0) <= max(limit, 0)
}

// rateWithin reports whether the token bucket of r never permits more than that of limit.
func rateWithin(r, limit llmhttp.Rate) bool {
	if limit.N == 0 || r.N < 0 {
		return true
	}
	if r.N == 0 {
		return false
	}
	r, limit = r.WithDefaults(), limit.WithDefaults()
	return r.Burst <= limit.Burst && isSlower(r, limit)
}

// isSlower reports whether r does not gain tokens faster than limit.
func isSlower(r, limit llmhttp.Rate) bool {
	rHigh, rLow := bits.Mul64(uint64(r.N), uint64(limit.Per))
	limitHigh, limitLow := bits.Mul64(uint64(limit.N), uint64(r.Per))
	return rHigh < limitHigh || rHigh == limitHigh && rLow <= limitLow
}

// quotaWithin reports whether q permits no more than limit in any time.
func quotaWithin(q, limit *llmhttp.Quota) bool {
	switch {
	case limit.Tokens == 0 && limit.Cost == 0, q.Tokens < 0, q.Cost < 0: // no limit, or nothing is permitted
		return true
	case q.Since.After(limit.Since): // more usage does not count
		return false
	}
	return amountWithin(q.Tokens, limit.Tokens) && amountWithin(q.Cost, limit.Cost) && periodCovers(q.Per, limit.Per)
}

// periodCovers reports whether the period of a quota contains each period of another that
// ends at the same time; see [llmhttp.Quota.Per].
func periodCovers(per, other time.Duration) bool {
	const longestMonth = 31 * day
	switch {
	case per < 0:
		return true
	case other < 0:
		return false
	case other == 0:
		return per == 0 || per >= longestMonth
	}
	return per >= other
}
