// Random calls of an AccountManager.

package storetest

import (
	"math"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
	"github.com/llmhttp/llmhttp/manage"
)

var accountSequences = managerSequences(24, randomAccountCalls)

// accountParams returns settings of an account, which are usually valid.
func (r *callRand) accountParams(name string) (p manage.AccountParams) {
	limits := func() llmhttp.Limits {
		return kit.Pick(r.Rand, llmhttp.Limits{}, noLimits, fullKey().Limits, llmhttp.Limits{MaxCompletionTokens: 100}, invalidLimits)
	}
	for {
		p = manage.AccountParams{
			Name: kit.Pick(r.Rand, "", "red #", name, name), Prepaid: r.IntN(2) == 0, Suspended: r.IntN(6) == 0, Limits: limits(), PerUser: limits(),
			Labels: kit.Pick(r.Rand, nil, []llmhttp.Label{}, []llmhttp.Label{{Name: "team", Value: "x"}, {Name: "Team"}},
				[]llmhttp.Label{{Name: "a", Value: name[:min(len(name), 256)]}}, []llmhttp.Label{{}}),
		}
		if p.Validate() == nil || r.IntN(4) == 0 {
			return p
		}
	}
}

// credit returns a new entry, one of those before, or one that differs from that in a field.
func (r *callRand) credit(before []addCredit, account, id, note string, large bool) (c addCredit) {
	c.ID, c.Account, c.Note = id, account, kit.Pick(r.Rand, "", note)
	c.Amount = kit.Pick[llm.Money](r.Rand, 1, 2, 5, -1, -2, 0)
	if large {
		c.Amount = kit.Pick[llm.Money](r.Rand, math.MaxInt64, math.MinInt64+1, 2, -2)
	}
	if len(before) == 0 {
		return c
	}
	again := kit.Pick(r.Rand, before...)
	switch r.IntN(8) {
	case 0, 1:
	case 2:
		again.Account = account
	case 3:
		again.Amount = -again.Amount
	case 4:
		again.Note += "!"
	default:
		return c
	}
	return again
}

// lists adds queries of accounts and of the credit of one.
func (r *callRand) lists(n int, name, id string, credits []addCredit) {
	newest := r.IntN(2) == 0
	entry := kit.Pick(r.Rand, append(credits, addCredit{manage.CreditEntry{ID: "\xff"}})...).ID
	search := nth(r, []string{"#", "A#", "RED #", name + "#", "%#", "_#", "<id>"}, n, 4)
	r.add(
		listAccounts{manage.AccountQuery{Search: search, Newest: newest}},
		listAccounts{manage.AccountQuery{Status: kit.Pick(r.Rand, "", manage.AccountActive, manage.AccountSuspended), After: kit.Pick(r.Rand, "", id), Newest: newest}},
		listAccounts{manage.AccountQuery{Newest: newest, Limit: nth(r, []int{-1, 1, 1, 2}, n, 5)}},
		listCredit{manage.CreditQuery{Account: kit.Pick(r.Rand, "a#", "a#", id), After: kit.Pick(r.Rand, "", entry), Newest: newest}},
		listCredit{manage.CreditQuery{Account: "a#", Newest: newest, Limit: nth(r, []int{-1, 1, 1, 2}, n, 3)}},
	)
}

// randomAccountCalls changes some accounts, whose IDs are similar, and two keys.
func randomAccountCalls(r *callRand, _ AccountStore) {
	name, large := nth(r, kit.TrickyNames(), 0, 3), r.sequence%3 == 0
	ids := []string{"a#", "a#", name + "#", nth(r, kit.TrickyNames(), 1, 3) + "#", nth(r, kit.TrickyNames(), 2, 3) + "#"}
	if large {
		ids = ids[:1]
	}
	id := func() string {
		return kit.Pick(r.Rand, append(ids, "", "\xff", kit.Pick(r.Rand, kit.TrickyNames()...))...)
	}
	var credits []addCredit
	r.add(createAccount{Account: "a#", AccountParams: manage.AccountParams{Name: "red #"}},
		createAccount{nth(r, []string{"", "\xff#", "a\n#", strings.Repeat("x", 513) + "#"}, 0, 1), manage.AccountParams{}})
	for n := range 4 {
		key := string(rune('k' + n))
		r.add(createKey{Key: key, KeyParams: manage.KeyParams{Account: kit.Pick(r.Rand, append(ids, "")...)}}, lookupKey{Key: key})
		r.add(createAccount{kit.Pick(r.Rand, append(ids[1:], "<id>")...), r.accountParams(name)}, lookupKey{Key: key})
		for step := range 6 {
			switch r.IntN(6) {
			case 0, 1:
				r.add(updateAccount{kit.Pick(r.Rand, "a#", id()), r.IntN(5) == 0, r.accountParams(name)}, lookupKey{Key: key})
			case 2, 3:
				c := r.credit(credits, kit.Pick(r.Rand, "a#", id()), strconv.Itoa(6*n+step)+name+"#", name, large)
				credits = append(credits, c)
				r.add(c, lookupKey{Key: key})
			case 4:
				r.add(updateKey{Key: key, KeyParams: manage.KeyParams{Account: kit.Pick(r.Rand, ids...)}}, lookupKey{Key: key})
			default:
				r.add(readAccount{id()})
			}
		}
		r.lists(n, name, id(), credits)
	}
}
