// What a KeyStore, KeyManager or AccountManager should have after the calls of a sequence.

package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
	"github.com/llmhttp/llmhttp/manage"
)

// A managerCall is a call of a [llmhttp.KeyStore], [manage.KeyManager] or [manage.AccountManager].
// Keys have names instead of IDs; the ID of a key that does not exist is its name.
type managerCall interface{ call(m *managerTest) }

// A managerTest makes calls of a store and keeps what it should have.
type managerTest struct {
	testing.TB
	store                 llmhttp.KeyStore
	fixture               *KeyStoreFixture // nil unless only a KeyStore is tested
	manage.KeyManager                      // nil in tests of a KeyStore
	manage.AccountManager                  // nil in tests without accounts

	word string                        // a part of texts that nothing else in the store has
	held map[*llmhttp.Key]*llmhttp.Key // copies of Keys that Lookup has returned

	// What the store should have, in the order in which it was created.
	keys     []*modelKey
	accounts []*manage.AccountInfo
	entries  []manage.CreditEntry // of all accounts
}

// A modelKey is what the store should have of a key. Its Revoked is any time if it is revoked.
type modelKey struct {
	name    string
	info    manage.KeyInfo
	secrets []*modelSecret // oldest first
	used    bool           // Lookup may have found it
}

// A modelSecret is a secret that stops working between two times, or with its key if they are zero.
type modelSecret struct {
	text     string
	from, to time.Time
	ended    bool
}

// managerSequences returns sequences of calls of a KeyStoreFixture, a KeyManager or an AccountStore.
func managerSequences[S any](count int, generate func(rng *callRand, s S)) *kit.Sequences[S, managerCall] {
	return &kit.Sequences[S, managerCall]{
		Count: count,
		Generate: func(rng *rand.Rand, s S, i int) []managerCall {
			r := &callRand{Rand: rng, sequence: i}
			generate(r, s)
			return r.calls
		},
		Begin: func(t testing.TB, s S) func(managerCall) {
			m := &managerTest{TB: t, word: kit.Unique("Word"), held: map[*llmhttp.Key]*llmhttp.Key{}}
			switch s := any(s).(type) {
			case KeyStoreFixture:
				m.fixture, m.store = &s, s.Store
			case manage.KeyManager:
				m.KeyManager, m.store = s, s
				m.AccountManager, _ = s.(manage.AccountManager)
			}
			return func(c managerCall) {
				c.call(m)
				m.wantHeld()
			}
		},
		Simpler: kit.SimplerEach(kit.SimplerFields[managerCall]), Describe: kit.DescribeCall[managerCall],
	}
}

// key returns the last key that was created with a name, or nil.
func (m *managerTest) key(name string) *modelKey {
	for _, k := range slices.Backward(m.keys) {
		if k.name == name {
			return k
		}
	}
	return nil
}

func (m *managerTest) keyID(name string) string {
	if k := m.key(name); k != nil {
		return k.info.ID
	}
	return name
}

// secret returns a secret of the key with a name, where 0 is the newest, or m.word if there is none.
func (m *managerTest) secret(name string, number int) string {
	if k := m.key(name); k != nil && number < len(k.secrets) {
		return k.secrets[len(k.secrets)-1-number].text
	}
	return m.word
}

// find returns the key to which a secret belongs, and what the store should have of the secret.
func (m *managerTest) find(is func(s *modelSecret) bool) (*modelKey, *modelSecret) {
	for _, k := range m.keys {
		if i := slices.IndexFunc(k.secrets, is); i >= 0 {
			return k, k.secrets[i]
		}
	}
	return nil, nil
}

// text returns a text of a call. In that, # stands for m.word, and <id> and <prefix> for those of the
// first key, or for m.word if there is none.
func (m *managerTest) text(s string) string {
	id, prefix := m.word, m.word
	if len(m.keys) > 0 {
		id, prefix = m.keys[0].info.ID, strings.TrimPrefix(m.keys[0].info.Prefix, "s")
	}
	return strings.NewReplacer("#", m.word, "<id>", id, "<prefix>", prefix).Replace(s)
}

// search returns the text of a search, which finds nothing that other tests have stored.
func (m *managerTest) search(s string) string {
	if !strings.ContainsAny(s, "#<") {
		s += "#"
	}
	return m.text(s)
}

// errAny stands for every error, and errRefused is one of a change.
var (
	errAny     = errors.New("any error")
	errRefused = errors.New("refused")
)

// failed reports an error unless err is want. It reports whether the call has no result to compare.
func (m *managerTest) failed(method string, err, want error) bool {
	m.Helper()
	if !errors.Is(err, want) && (err == nil || want != errAny) {
		kit.Wrong(m, method, err, want)
	}
	return err != nil || want != nil
}

// wantInfo reports an error unless got is what the store should have of k. It then overwrites lists
// of got, which belong to the caller.
func (m *managerTest) wantInfo(method string, got manage.KeyInfo, k *modelKey) {
	m.Helper()
	want := k.info
	if got.ID != want.ID {
		kit.Wrong(m, method, fmt.Sprintf("the key %q", got.ID), fmt.Sprintf("%q, which is the key %q of these calls", want.ID, k.name))
		return
	}
	if k.used {
		got.LastUsed = want.LastUsed
	}
	if !got.Revoked.IsZero() && !want.Revoked.IsZero() {
		got.Revoked = want.Revoked
	}
	kit.WantSame(m, method, got, want)
	clear(got.Scopes)
	clear(got.Models)
}

// wantEnd reports an error unless s ends at the time got.
func (m *managerTest) wantEnd(method string, got time.Time, s *modelSecret) {
	m.Helper()
	const rounding = time.Millisecond
	if got.IsZero() != s.from.IsZero() || got.Before(s.from.Add(-rounding)) || got.After(s.to.Add(rounding)) {
		kit.Wrong(m, method, "a secret that ends at "+kit.Describe(got), kit.Describe(s.from))
	}
}

// wantHeld reports an error if a Key changed that Lookup has returned.
func (m *managerTest) wantHeld() {
	m.Helper()
	for key, was := range m.held {
		if !reflect.DeepEqual(key, was) {
			kit.WantSame(m, "a call that changed a Key of an earlier Lookup", *key, *was)
		}
	}
}

// wantPage reports an error unless got are the first of the selected elements of list that follow
// the last one of the previous page. A limit that is not positive is none.
func wantPage[G, W any](
	m *managerTest, method string, got []G, list []W, newest bool, limit int,
	isLast, selected func(W) bool, want func(method string, got G, want W),
) {
	m.Helper()
	list = slices.Clone(list)
	if newest {
		slices.Reverse(list)
	}
	list = slices.DeleteFunc(list[slices.IndexFunc(list, isLast)+1:], func(e W) bool { return !selected(e) })
	if limit > 0 {
		list = list[:min(limit, len(list))]
	}
	if len(got) != len(list) {
		kit.Wrong(m, method, fmt.Sprintf("%d results", len(got)), len(list))
		return
	}
	for i := range got {
		want(method, got[i], list[i])
	}
}

// err returns the error of a call that needs k and may change it.
func (k *modelKey) err(change bool) error {
	switch {
	case k == nil:
		return llmhttp.ErrKeyNotFound
	case change && !k.info.Revoked.IsZero():
		return manage.ErrKeyRevoked
	}
	return nil
}

func (k *modelKey) setParams(p manage.KeyParams) {
	i := &k.info
	i.Account, i.Scopes, i.Models, i.Expires, i.Limits = cmp.Or(p.Account, i.ID), p.Scopes, p.Models, p.Expires, p.Limits
	i.Name, i.Suspended = p.Name, p.Suspended
}

// params returns settings that the caller may keep.
func (m *managerTest) params(p manage.KeyParams) manage.KeyParams {
	p.Account, p.Name = m.text(p.Account), m.text(p.Name)
	p.Scopes, p.Models = slices.Clone(p.Scopes), slices.Clone(p.Models)
	return p
}

// create creates a key with a secret, or with one that the store chooses if that is empty. It
// overwrites what it has passed to the store.
func (m *managerTest) create(p manage.KeyParams, secret string) (info manage.KeyInfo, _ string, err error) {
	defer func() {
		clear(p.Scopes)
		clear(p.Models)
	}()
	if m.fixture == nil {
		return m.CreateKey(m.Context(), p)
	}
	id := m.word + strconv.Itoa(len(m.keys)) + p.Name
	key := &llmhttp.Key{ID: id, Account: cmp.Or(p.Account, id), Scopes: p.Scopes, Models: p.Models, Expires: p.Expires, Limits: p.Limits}
	if secret == "" {
		secret, err = m.fixture.add(key)
	} else {
		err = m.fixture.AddSecret(secret, key)
	}
	info = manage.KeyInfo{Key: *copyKey(key), Name: p.Name, Prefix: secret[:len(secret)/2], Created: time.Now()}
	*key = llmhttp.Key{ID: "overwritten", Account: "overwritten"}
	return info, secret, err
}

// addSecret adds the secret of a new key, or of one that was rotated.
func (m *managerTest) addSecret(method string, k *modelKey, secret string, info manage.KeyInfo) {
	m.Helper()
	if other, _ := m.find(func(s *modelSecret) bool { return s.text == secret }); other != nil {
		kit.Wrong(m, method, "the secret of another key", "a new one")
	}
	if len(info.Prefix) >= len(secret) || !strings.HasPrefix(secret, info.Prefix) {
		kit.Wrong(m, method, fmt.Sprintf("the prefix %q", info.Prefix), "a part of the secret")
	}
	k.secrets = append(k.secrets, &modelSecret{text: secret})
	k.info.Prefix = info.Prefix
	m.wantInfo(method, info, k)
}

// found returns what Lookup of a secret should return, or nil. Expires is that of the key.
func (m *managerTest) found(k *modelKey, s *modelSecret) *llmhttp.Key {
	if k == nil || s.ended || k.info.Suspended || !k.info.Revoked.IsZero() {
		return nil
	}
	found := k.info.Key
	if account := m.account(found.Account); account != nil {
		if account.Suspended {
			return nil
		}
		account.ApplyTo(&found)
	}
	return &found
}
