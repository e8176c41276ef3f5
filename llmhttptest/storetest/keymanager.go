// TestKeyManager and its checks.

package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ascii"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
	"github.com/llmhttp/llmhttp/manage"
)

// TestKeyManager tests a [manage.KeyManager]. It calls newStore once, and again to shorten a sequence
// of calls that fails. Test the methods of [llmhttp.KeyStore] with [TestKeyStore] too.
func TestKeyManager(t *testing.T, newStore func(t testing.TB) manage.KeyManager) {
	t.Helper()
	kit.Run(t, keyManagerSequences, nil, newStore)
}

type createKey struct {
	Key    string
	Secret string // a form of the test's word: see formOf; empty lets the store choose the secret
	manage.KeyParams
}

func (c createKey) call(m *managerTest) {
	p, secret, want := m.params(c.KeyParams), "", error(nil)
	if c.Secret != "" {
		secret = formOf(c.Secret, m.word)
		if k, _ := m.find(func(s *modelSecret) bool { return s.text == secret }); k != nil {
			return
		}
	}
	if p.Validate() != nil {
		if want = errAny; m.fixture != nil {
			return
		}
	}
	time.Sleep(time.Microsecond) // so that no two have the same time
	info, secret, err := m.create(m.params(c.KeyParams), secret)
	if m.fixture != nil {
		p = m.params(info.Params()) // which Add may have changed
		if err != nil && hasExpired(p.Expires) {
			return // a store may refuse it
		}
	}
	if m.failed("CreateKey", err, want) {
		return
	}
	if info.ID == "" || info.Created.IsZero() {
		kit.Wrong(m, "CreateKey", fmt.Sprintf("the ID %q, Created %v", info.ID, info.Created), "an ID and a time")
	}
	k := &modelKey{name: c.Key, info: manage.KeyInfo{Key: llmhttp.Key{ID: info.ID}, Created: info.Created}}
	k.setParams(p)
	m.addSecret("CreateKey", k, secret, info)
	m.keys = append(m.keys, k)
}

type updateKey struct {
	Key     string
	Refused bool // change returns an error
	manage.KeyParams
}

func (c updateKey) call(m *managerTest) {
	k := m.key(c.Key)
	info, err := m.UpdateKey(m.Context(), m.keyID(c.Key), func(stored *manage.KeyParams) error {
		if k != nil {
			kit.WantSame(m, "change", *stored, k.info.Params())
		}
		if *stored = m.params(c.KeyParams); c.Refused {
			return errRefused
		}
		return nil
	})
	want := k.err(true)
	if want == nil && c.Refused {
		want = errRefused
	} else if want == nil && c.Validate() != nil {
		want = errAny
	}
	if !m.failed("UpdateKey", err, want) {
		k.setParams(m.params(c.KeyParams))
		m.wantInfo("UpdateKey", info, k)
	}
}

type rotateKey struct {
	Key     string
	Overlap time.Duration
}

func (c rotateKey) call(m *managerTest) {
	k := m.key(c.Key)
	from := time.Now().Add(c.Overlap)
	info, secret, err := m.RotateKey(m.Context(), m.keyID(c.Key), c.Overlap)
	to, want := time.Now().Add(c.Overlap), k.err(true)
	if c.Overlap < 0 {
		want = errAny
	}
	if m.failed("RotateKey", err, want) {
		return
	}
	for _, s := range k.secrets {
		s.ended = s.ended || c.Overlap == 0
		if s.from.IsZero() || from.Before(s.from) {
			s.from, s.to = from, to
		}
	}
	m.addSecret("RotateKey", k, secret, info)
}

type revokeKey struct{ Key string }

func (c revokeKey) call(m *managerTest) {
	k, err := m.key(c.Key), error(nil)
	if m.fixture == nil {
		err = m.RevokeKey(m.Context(), m.keyID(c.Key))
	} else if k == nil || !k.info.Revoked.IsZero() {
		return
	} else {
		err = m.fixture.Remove(k.secrets[0].text, copyKey(&k.info.Key))
	}
	if !m.failed("RevokeKey", err, k.err(false)) {
		k.info.Revoked = time.Now()
	}
}

type readKey struct{ Key string }

func (c readKey) call(m *managerTest) {
	k := m.key(c.Key)
	info, err := m.Key(m.Context(), m.keyID(c.Key))
	if !m.failed("Key", err, k.err(false)) {
		m.wantInfo("Key", info, k)
	}
}

// keyBySecret finds a key by the hash of a secret, or by another text.
type keyBySecret struct {
	Key    string
	Secret int    // the number of rotations since
	Form   string // of the hash: see formOf; <secret> stands for the secret
}

func (c keyBySecret) call(m *managerTest) {
	secret := m.secret(c.Key, c.Secret)
	hash := strings.ReplaceAll(formOf(c.Form, llmhttp.HashSecret(secret)), "<secret>", secret)
	k, s := m.find(func(s *modelSecret) bool { return llmhttp.HashSecret(s.text) == hash })
	want := k.err(false)
	if k != nil && s.ended {
		want = llmhttp.ErrKeyNotFound
	}
	info, ends, err := m.KeyBySecret(m.Context(), hash)
	if !m.failed("KeyBySecret", err, want) {
		m.wantInfo("KeyBySecret", info, k)
		m.wantEnd("KeyBySecret", ends, s)
	}
}

// lookupKey looks up a secret of a key, or the test's word if there is no such secret.
type lookupKey struct {
	Key    string
	Secret int    // the number of rotations since
	Form   string // see formOf
	Byte   int    // the number of a byte to change

	Cancelled bool // the context, so that Lookup may return any error except ErrKeyNotFound

	// Marked changes the Keys that Lookup has returned while it runs, to see whether it writes to
	// them, if only the values that they have. Then the result does not count.
	Marked bool
}

func (c lookupKey) call(m *managerTest) {
	form := c.Form
	if k := m.key(c.Key); k != nil {
		form = strings.NewReplacer("<id>", k.info.ID, "<account>", k.info.Account).Replace(form)
	}
	secret := []byte(formOf(form, m.secret(c.Key, c.Secret)))
	if c.Byte > 0 {
		secret[c.Byte%len(secret)] ^= 1
	}
	k, s := m.find(func(s *modelSecret) bool { return s.text == string(secret) })
	if k != nil {
		k.used = true
	}
	if c.Marked {
		m.lookupMarked(string(secret))
		return
	}
	want := m.found(k, s)
	ctx, cancel := context.WithCancel(m.Context())
	defer cancel()
	if c.Cancelled {
		cancel()
	}
	got, err := m.store.Lookup(ctx, string(secret))
	switch {
	case c.Cancelled && err != nil && !errors.Is(err, llmhttp.ErrKeyNotFound):
		return
	case want == nil && err != nil && !isWellFormed(string(secret)):
		return
	case want != nil && hasExpired(want.Expires) && errors.Is(err, llmhttp.ErrKeyNotFound):
		return
	case want != nil && got != nil && !s.from.IsZero() && (want.Expires.IsZero() || s.from.Before(want.Expires)):
		m.wantEnd("Lookup", got.Expires, s)
		want.Expires = got.Expires
	}
	wantFound(m, "Lookup", got, err, want)
	const maxHeld = 8 // because all are compared after each call
	if got != nil && m.held[got] == nil && len(m.held) < maxHeld {
		m.held[got] = copyKey(got)
	}
}

func (m *managerTest) lookupMarked(secret string) {
	marked := *fullKey()
	for key := range m.held {
		*key = marked
	}
	_, _ = m.store.Lookup(m.Context(), secret)
	for key, was := range m.held {
		kit.WantSame(m, "Lookup", *key, marked) // which requests in progress read
		*key = *copyKey(was)
	}
}

// listKeys lists keys. After is a name.
type listKeys struct{ manage.KeyQuery }

func (c listKeys) call(m *managerTest) {
	q, last, want := c.KeyQuery, m.key(c.After), error(nil)
	q.Account = m.text(q.Account)
	if q.Account == "" || q.Search != "" {
		q.Search = m.search(q.Search)
	}
	if q.After != "" {
		q.After, want = m.keyID(q.After), last.err(false)
	}
	page, err := m.ListKeys(m.Context(), q)
	if m.failed("ListKeys", err, want) {
		return
	}
	now := time.Now()
	isLast := func(k *modelKey) bool { return q.After != "" && k == last }
	wantPage(m, "ListKeys", page, m.keys, q.Newest, q.Limit, isLast, func(k *modelKey) bool { return k.matches(&q, now) }, m.wantInfo)
}

// matches reports whether q selects k.
func (k *modelKey) matches(q *manage.KeyQuery, now time.Time) bool {
	i := &k.info
	texts := ascii.ToLower(strings.Join([]string{i.ID, i.Account, i.Name, i.Prefix}, "\n"))
	return (q.Account == "" || q.Account == i.Account) && (q.Status == "" || q.Status == i.Status(now)) &&
		strings.Contains(texts, ascii.ToLower(q.Search))
}
