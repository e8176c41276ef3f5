package llmhttptest

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// TestKeyManager tests a [manage.KeyManager]. It calls newStore once for each
// subtest. Test the methods of [llmhttp.KeyStore] with [TestKeyStore] too.
func TestKeyManager(t *testing.T, newStore func(t testing.TB) manage.KeyManager) {
	t.Helper()
	runChecks(t, managerChecks, newStore)
}

var managerChecks = []check[manage.KeyManager]{
	{"CreatedKey", "a setting is dropped, or the secret is not stored.", checkManagerCreate},
	{"UpdatedKey", "a setting is dropped, or a refused change is stored.", checkManagerUpdate},
	{
		"NilAndEmptyLists",
		"a change does not tell nil Scopes or Models, which allow everything, from empty ones, which allow nothing.",
		checkManagerNilLists,
	},
	{"InvalidLimits", "Limits.Validate is not called for a new key or for a change.", checkManagerLimits},
	{"SuspendedKey", "Lookup ignores Suspended, or uses an outdated cache.", checkManagerSuspend},
	{"RotatedKey", "the previous secret works too long or too short.", checkManagerRotate},
	{
		"KeyBySecret",
		"the hash is not that of HashSecret, the answer is cached, or the time is not that of the rotation.",
		checkManagerBySecret,
	},
	{"RevokedKey", "a revoked key still works or can be changed.", checkManagerRevoke},
	{"UnknownKey", "the error of a query without a result is passed on, or not checked.", checkManagerUnknown},
	{"Pages", "pages overlap, leave out keys, or are not in order.", checkManagerPages},
	{"Search", "the search compares a part of a name only, or takes special characters for patterns.", checkManagerSearch},
}

func newParams(k *llmhttp.Key) manage.KeyParams {
	return manage.KeyParams{
		Account: k.Account,
		Name:    unique("name"),
		Scopes:  k.Scopes,
		Models:  k.Models,
		Expires: k.Expires,
		Limits:  k.Limits,
	}
}

func mustCreate(t testing.TB, s manage.KeyManager, p manage.KeyParams) (manage.KeyInfo, string) {
	t.Helper()
	info, secret, err := s.CreateKey(t.Context(), p)
	if err != nil {
		t.Fatalf("CreateKey returned the error %v, want nil", err)
	}
	return info, secret
}

// wantSettings reports an error unless the store returns want as the settings of
// a key.
func wantSettings(t testing.TB, s manage.KeyManager, id string, want manage.KeyParams) {
	t.Helper()
	info, err := s.Key(t.Context(), id)
	if got := info.Params(); err != nil || !reflect.DeepEqual(normalParams(got), normalParams(want)) {
		t.Errorf("Key returned the settings %+v and the error %v, want %+v", got, err, want)
	}
}

// normalParams makes settings comparable with reflect.DeepEqual.
func normalParams(p manage.KeyParams) manage.KeyParams {
	p.Expires = p.Expires.UTC().Round(0)
	return p
}

// wantLookup reports an error unless Lookup of the secret finds a key that works or, if
// works is false, finds none.
func wantLookup(t testing.TB, s manage.KeyManager, secret, what string, works bool) {
	t.Helper()
	key, err := s.Lookup(t.Context(), secret)
	if err == nil && !key.Expires.IsZero() && !time.Now().Before(key.Expires) {
		err = llmhttp.ErrKeyNotFound // the Handler checks the expiry
	}
	switch {
	case works && err != nil:
		t.Errorf("Lookup of %s returned the error %v, want a key that has not expired", what, err)
	case !works && !errors.Is(err, llmhttp.ErrKeyNotFound):
		t.Errorf("Lookup of %s returned the key %v and the error %v, want ErrKeyNotFound", what, key, err)
	}
}

func checkManagerCreate(t testing.TB, s manage.KeyManager) {
	for _, key := range []*llmhttp.Key{fullKey(), newKey()} {
		p := newParams(key)
		info, secret := mustCreate(t, s, p)
		wantSettings(t, s, info.ID, p)
		wantLookup(t, s, secret, "a new key", true)
		if len(info.Prefix) >= len(secret) || !strings.HasPrefix(secret, info.Prefix) {
			t.Errorf("CreateKey returned the prefix %q, want a part of the secret", info.Prefix)
		}
		if got := info.Status(time.Now()); got != manage.KeyActive || info.Created.IsZero() {
			t.Errorf("CreateKey returned a key that is %s and was created at %v, want an active key", got, info.Created)
		}
	}
	info, _ := mustCreate(t, s, manage.KeyParams{})
	if info.Account != info.ID || info.ID == "" {
		t.Errorf("a key without an account has the account %q, want its ID %q", info.Account, info.ID)
	}
}

func checkManagerUpdate(t testing.TB, s manage.KeyManager) {
	p, want := newParams(fullKey()), newParams(newKey())
	info, secret := mustCreate(t, s, p)
	refused := errors.New("refused")
	if _, err := s.UpdateKey(t.Context(), info.ID, func(p *manage.KeyParams) error { *p = want; return refused }); !errors.Is(
		err,
		refused,
	) {
		t.Errorf("UpdateKey returned the error %v, want that of change", err)
	}
	wantSettings(t, s, info.ID, p)
	change := func(p *manage.KeyParams) error { *p = want; return nil }
	if _, err := s.UpdateKey(t.Context(), info.ID, change); err != nil {
		t.Fatalf("UpdateKey returned the error %v, want nil", err)
	}
	wantSettings(t, s, info.ID, want)
	if key, err := s.Lookup(t.Context(), secret); err != nil || key.Account != want.Account {
		t.Errorf("Lookup returned %v and the error %v after an update, want the account %q", key, err, want.Account)
	}
}

func checkManagerNilLists(t testing.TB, s manage.KeyManager) {
	for _, scopes := range [][]llmhttp.Scope{nil, {}} {
		for _, models := range [][]string{nil, {}} {
			p := manage.KeyParams{Account: unique("account"), Scopes: scopes, Models: models}
			info, secret := mustCreate(t, s, p)
			wantSettings(t, s, info.ID, p)
			p.Name = unique("name")
			if _, err := s.UpdateKey(t.Context(), info.ID, func(stored *manage.KeyParams) error { stored.Name = p.Name; return nil }); err != nil {
				t.Fatalf("UpdateKey returned the error %v, want nil", err)
			}
			if _, _, err := s.RotateKey(t.Context(), info.ID, time.Hour); err != nil {
				t.Fatalf("RotateKey returned the error %v, want nil", err)
			}
			wantSettings(t, s, info.ID, p)
			key, err := s.Lookup(t.Context(), secret)
			switch {
			case err != nil:
				t.Errorf("Lookup returned the error %v, want a key", err)
			case (key.Scopes == nil) != (scopes == nil), (key.Models == nil) != (models == nil):
				t.Errorf("Lookup returned the Scopes %#v and the Models %#v, want %#v and %#v", key.Scopes, key.Models, scopes, models)
			}
		}
	}
}

func checkManagerLimits(t testing.TB, s manage.KeyManager) {
	invalid := llmhttp.Limits{Requests: llmhttp.Rate{Burst: 1}}
	p := newParams(newKey())
	info, _ := mustCreate(t, s, p)
	if _, err := s.UpdateKey(t.Context(), info.ID, func(p *manage.KeyParams) error { p.Limits = invalid; return nil }); err == nil {
		t.Errorf("UpdateKey with the limits %+v returned no error", invalid)
	}
	wantSettings(t, s, info.ID, p)
	p.Limits = invalid
	if _, _, err := s.CreateKey(t.Context(), p); err == nil {
		t.Errorf("CreateKey with the limits %+v returned no error", invalid)
	}
}

func checkManagerSuspend(t testing.TB, s manage.KeyManager) {
	info, secret := mustCreate(t, s, newParams(newKey()))
	for _, suspended := range []bool{true, false} {
		wantLookup(t, s, secret, "a key before a change", suspended)
		info, err := s.UpdateKey(t.Context(), info.ID, func(p *manage.KeyParams) error { p.Suspended = suspended; return nil })
		if err != nil || info.Suspended != suspended {
			t.Errorf("UpdateKey returned a key with Suspended %v and the error %v, want %v", info.Suspended, err, suspended)
		}
		wantLookup(t, s, secret, "a key after a change of Suspended", !suspended)
	}
}

func checkManagerRotate(t testing.TB, s manage.KeyManager) {
	p := newParams(newKey())
	info, first := mustCreate(t, s, p)
	rotate := func(overlap time.Duration) string {
		rotated, secret, err := s.RotateKey(t.Context(), info.ID, overlap)
		if err != nil || !strings.HasPrefix(secret, rotated.Prefix) {
			t.Fatalf("RotateKey returned the prefix %q and the error %v, want the beginning of the secret", rotated.Prefix, err)
		}
		return secret
	}
	second := rotate(time.Hour)
	wantLookup(t, s, first, "the previous secret during the overlap", true)
	wantLookup(t, s, second, "the new secret", true)
	third := rotate(0)
	wantLookup(t, s, first, "a secret from before a rotation without overlap", false)
	wantLookup(t, s, second, "the previous secret without overlap", false)
	wantLookup(t, s, third, "the new secret", true)
	wantSettings(t, s, info.ID, p)
	if _, _, err := s.RotateKey(t.Context(), info.ID, -1); err == nil {
		t.Error("RotateKey with a negative overlap returned no error")
	}
}

// wantBySecret reports an error unless KeyBySecret finds the key want with a secret that
// ends overlap after a time between from and now, or never if overlap is zero.
func wantBySecret(t testing.TB, s manage.KeyManager, secret, what, want string, overlap time.Duration, from time.Time) manage.KeyInfo {
	t.Helper()
	const rounding = time.Millisecond
	info, ends, err := s.KeyBySecret(t.Context(), llmhttp.HashSecret(secret))
	switch {
	case err != nil || info.ID != want:
		t.Errorf("KeyBySecret of %s returned the key %q and the error %v, want the key %q", what, info.ID, err, want)
	case overlap == 0 && !ends.IsZero():
		t.Errorf("KeyBySecret of %s returned the end %v, want none", what, ends)
	case overlap != 0 && (ends.Before(from.Add(overlap-rounding)) || ends.After(time.Now().Add(overlap+rounding))):
		t.Errorf("KeyBySecret of %s returned the end %v, want %v after the rotation", what, ends, overlap)
	}
	return info
}

// wantNoSecret reports an error unless KeyBySecret finds no key.
func wantNoSecret(t testing.TB, s manage.KeyManager, hash, what string) {
	t.Helper()
	if info, ends, err := s.KeyBySecret(t.Context(), hash); !errors.Is(err, llmhttp.ErrKeyNotFound) {
		t.Errorf("KeyBySecret of %s returned the key %q, the end %v and the error %v, want ErrKeyNotFound", what, info.ID, ends, err)
	}
}

func checkManagerBySecret(t testing.TB, s manage.KeyManager) {
	p := newParams(fullKey())
	created, first := mustCreate(t, s, p)
	other, otherSecret := mustCreate(t, s, newParams(newKey()))
	info := wantBySecret(t, s, first, "the secret of a new key", created.ID, 0, time.Time{})
	if got := info.Params(); !reflect.DeepEqual(normalParams(got), normalParams(p)) {
		t.Errorf("KeyBySecret returned the settings %+v, want %+v", got, p)
	}
	if !info.LastUsed.IsZero() {
		t.Errorf("KeyBySecret counted as a use of the key at %v", info.LastUsed)
	}
	for _, hash := range append(trickyNames(), "", first, llmhttp.HashSecret(first)[1:], llmhttp.HashSecret(first)+"00", llmhttp.HashSecret(unique("secret"))) {
		wantNoSecret(t, s, hash, "the unknown hash "+hash)
	}
	rotate := func(overlap time.Duration) (secret string, at time.Time) {
		at = time.Now()
		_, secret, err := s.RotateKey(t.Context(), created.ID, overlap)
		if err != nil {
			t.Fatalf("RotateKey returned the error %v, want nil", err)
		}
		return secret, at
	}
	second, at := rotate(time.Hour)
	wantBySecret(t, s, first, "the previous secret during the overlap", created.ID, time.Hour, at)
	wantBySecret(t, s, second, "the new secret", created.ID, 0, at)
	third, _ := rotate(2 * time.Hour)
	wantBySecret(t, s, first, "a secret whose end was set by an earlier rotation", created.ID, time.Hour, at)
	_, _ = rotate(0)
	for _, secret := range []string{first, second, third} {
		wantNoSecret(t, s, llmhttp.HashSecret(secret), "a secret from before a rotation without overlap")
	}
	if err := s.RevokeKey(t.Context(), other.ID); err != nil {
		t.Fatal(err)
	}
	if info := wantBySecret(t, s, otherSecret, "the secret of a revoked key", other.ID, 0, at); info.Revoked.IsZero() {
		t.Error("KeyBySecret returned a revoked key without the time at which it was revoked")
	}
}

func checkManagerRevoke(t testing.TB, s manage.KeyManager) {
	info, secret := mustCreate(t, s, newParams(newKey()))
	for range 2 {
		if err := s.RevokeKey(t.Context(), info.ID); err != nil {
			t.Errorf("RevokeKey returned the error %v, want nil", err)
		}
	}
	wantLookup(t, s, secret, "a revoked key", false)
	_, err := s.UpdateKey(t.Context(), info.ID, func(*manage.KeyParams) error { return nil })
	_, _, rotateErr := s.RotateKey(t.Context(), info.ID, 0)
	if !errors.Is(err, manage.ErrKeyRevoked) || !errors.Is(rotateErr, manage.ErrKeyRevoked) {
		t.Errorf("UpdateKey and RotateKey of a revoked key returned the errors %v and %v, want ErrKeyRevoked", err, rotateErr)
	}
	if info, err = s.Key(t.Context(), info.ID); err != nil || info.Status(time.Now()) != manage.KeyRevoked {
		t.Errorf("Key returned a key that is %s and the error %v, want a revoked key", info.Status(time.Now()), err)
	}
}

func checkManagerUnknown(t testing.TB, s manage.KeyManager) {
	_, _ = mustCreate(t, s, newParams(newKey()))
	for _, id := range append(trickyNames(), "", unique("key")) {
		_, err := s.Key(t.Context(), id)
		_, updateErr := s.UpdateKey(t.Context(), id, func(*manage.KeyParams) error { return nil })
		_, _, rotateErr := s.RotateKey(t.Context(), id, 0)
		errs := []error{err, updateErr, rotateErr, s.RevokeKey(t.Context(), id)}
		if id != "" {
			_, err := s.ListKeys(t.Context(), manage.KeyQuery{After: id})
			errs = append(errs, err)
		}
		for i, err := range errs {
			if !errors.Is(err, llmhttp.ErrKeyNotFound) {
				t.Errorf("call %d with the unknown ID %q returned the error %v, want ErrKeyNotFound", i, id, err)
			}
		}
	}
}

// listIDs reads all pages of q.
func listIDs(t testing.TB, s manage.KeyManager, q manage.KeyQuery) (ids []string) {
	t.Helper()
	for {
		page, err := s.ListKeys(t.Context(), q)
		if err != nil {
			t.Fatalf("ListKeys(%+v) returned the error %v, want nil", q, err)
		}
		if q.Limit > 0 && len(page) > q.Limit {
			t.Fatalf("ListKeys(%+v) returned %d keys", q, len(page))
		}
		for i := range page {
			ids = append(ids, page[i].ID)
		}
		if q.Limit <= 0 || len(page) < q.Limit {
			return ids
		}
		q.After = page[len(page)-1].ID
	}
}

func checkManagerPages(t testing.TB, s manage.KeyManager) {
	account := unique("account")
	var created []string
	for range 7 {
		info, _ := mustCreate(t, s, manage.KeyParams{Account: account})
		created = append(created, info.ID)
		time.Sleep(time.Microsecond) // so that no two have the same time
	}
	_, _ = mustCreate(t, s, newParams(newKey()))
	for _, limit := range []int{-1, 0, 1, 3, 7, 8} {
		for _, newest := range []bool{false, true} {
			got := listIDs(t, s, manage.KeyQuery{Account: account, Limit: limit, Newest: newest})
			if newest {
				slices.Reverse(got)
			}
			if !slices.Equal(got, created) {
				t.Errorf("pages of %d keys with Newest %v have the keys %v, want %v", limit, newest, got, created)
			}
		}
	}
}

func checkManagerSearch(t testing.TB, s manage.KeyManager) {
	account := unique("Account")
	// The word is long, so that no random ID contains it.
	special, _ := mustCreate(t, s, manage.KeyParams{Account: account, Name: `50%_\ Discount`})
	other, _ := mustCreate(t, s, manage.KeyParams{Account: account, Name: "50 xx discount", Expires: time.Now().Add(-time.Hour)})
	suspended, _ := mustCreate(t, s, manage.KeyParams{Account: account, Suspended: true})
	revoked, _ := mustCreate(t, s, manage.KeyParams{Account: account, Suspended: true})
	if err := s.RevokeKey(t.Context(), revoked.ID); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		q    manage.KeyQuery
		want []string
	}{
		{manage.KeyQuery{Search: "dISCOUNT"}, []string{special.ID, other.ID}},
		{manage.KeyQuery{Search: "%"}, []string{special.ID}},
		{manage.KeyQuery{Search: "0%_"}, []string{special.ID}},
		{manage.KeyQuery{Search: `_\ `}, []string{special.ID}},
		{manage.KeyQuery{Search: "50_"}, nil},
		{manage.KeyQuery{Search: strings.ToUpper(account[2:])}, []string{special.ID, other.ID, suspended.ID, revoked.ID}},
		{manage.KeyQuery{Search: other.ID}, []string{other.ID}},
		{manage.KeyQuery{Search: revoked.Prefix[1:]}, []string{revoked.ID}},
		{manage.KeyQuery{Status: manage.KeyActive}, []string{special.ID}},
		{manage.KeyQuery{Status: manage.KeyExpired, Search: "discount"}, []string{other.ID}},
		{manage.KeyQuery{Status: manage.KeySuspended}, []string{suspended.ID}},
		{manage.KeyQuery{Status: manage.KeyRevoked}, []string{revoked.ID}},
	} {
		c.q.Account = account
		got := listIDs(t, s, c.q)
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("ListKeys(%+v) returned the keys %v, want %v", c.q, got, c.want)
		}
	}
}
