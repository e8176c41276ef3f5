package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// An AccountManager keeps accounts: limits that the keys of an account share, and what was paid
// in advance. A [llmhttp.Handler] does not need one; programs that manage accounts do. Its
// methods are safe for concurrent use.
//
// An account need not exist: what keys of other accounts use is recorded and reported too, and
// only the limits of each key hold. Accounts cannot be deleted, because usage and credit are
// recorded for them.
//
// If the store is also a [KeyManager], its Lookup does not find keys of accounts that are
// suspended, and the Keys that it returns have what [AccountInfo.ApplyTo] sets. A change of an
// account, or of its credit, takes effect as soon as a change of a key does. The Key of a
// KeyInfo has nothing of the account but its ID.
//
// Methods that take the ID of an account return an error that wraps [ErrAccountNotFound] if
// there is no such account.
type AccountManager interface {
	// Account returns the account with the given ID.
	Account(ctx context.Context, id string) (AccountInfo, error)

	// ListAccounts returns a page of accounts. A page with fewer accounts than the limit is
	// the last. If there is no account q.After, the error wraps ErrAccountNotFound.
	ListAccounts(ctx context.Context, q AccountQuery) ([]AccountInfo, error)

	// CreateAccount creates an account. Keys may have named it before. The ID may be that of
	// a key, which is the account of a key that names none. If an account has the ID, the
	// error wraps [ErrAccountExists]. IDs that [llmhttp.SubjectID.Validate] refuses are an
	// error, and so is what params.Validate returns.
	CreateAccount(ctx context.Context, id string, params AccountParams) (AccountInfo, error)

	// UpdateAccount calls change with the settings of an account and stores the result.
	// Other changes of the account wait meanwhile, so that no change is lost. If
	// change returns an error, UpdateAccount returns it and changes nothing. change must
	// not use the store, and may be called several times. An error of
	// AccountParams.Validate for the changed settings is an error of change.
	UpdateAccount(ctx context.Context, id string, change func(*AccountParams) error) (AccountInfo, error)

	// AddCredit adds an entry to the credit of an account and returns it with its Time and
	// Total, which the store sets. Entries never change and cannot be deleted: an entry
	// with a negative Amount corrects an earlier one.
	//
	// The ID makes it harmless to repeat a call: if there is an entry with the ID and the
	// same Account, Amount and Note, AddCredit returns that one and adds nothing. If there is
	// another entry with the ID, of any account, the error wraps [ErrCreditConflict]. A Total
	// that does not fit into a Money, and what CreditEntry.Validate refuses, are errors.
	AddCredit(ctx context.Context, e CreditEntry) (CreditEntry, error)

	// ListCredit returns a page of the credit entries of an account. A page with fewer
	// entries than the limit is the last. If the account has no entry q.After, the error
	// wraps [ErrCreditNotFound].
	ListCredit(ctx context.Context, q CreditQuery) ([]CreditEntry, error)
}

// Errors that the errors of an [AccountManager] wrap.
var (
	ErrAccountNotFound = errors.New("manage: no such account")
	ErrAccountExists   = errors.New("manage: the account exists already")
	ErrCreditNotFound  = errors.New("manage: the account has no such credit entry")
	ErrCreditConflict  = errors.New("manage: another credit entry has this ID")
)

// AccountParams are the settings of an account in an [AccountManager].
type AccountParams struct {
	Name    string          // for display: text of at most 512 bytes; may be empty and need not be unique
	Limits  llmhttp.Limits  // of all keys of the account together
	PerUser llmhttp.Limits  // of each end user of the account: see [llmhttp.Key]
	Labels  []llmhttp.Label // recorded with each request of the keys, in any order; nil and empty mean none

	// Prepaid says that the keys of the account together may use what its credit sums to and no
	// more. All usage counts, also from before the account was prepaid or existed, for which an
	// entry of that amount makes up. A sum of
	// zero or less permits nothing. Limits.Quota must be the zero Quota then, and the Handler
	// needs Options.Price, as for each Quota with a Cost.
	Prepaid bool

	Suspended bool // Lookup does not find keys of the account until this is false again
}

// Validate returns an error that names the first field of p whose value is a mistake: a Name
// out of bounds, Limits or PerUser whose Validate returns an error, a Limits.Quota of an account
// that is prepaid, or Labels that [llmhttp.ValidateLabels] refuses.
func (p *AccountParams) Validate() error {
	if err := checkText("AccountParams.Name", p.Name, 0); err != nil {
		return err
	}
	if err := p.Limits.Validate(); err != nil {
		return fmt.Errorf("AccountParams.%w", err)
	}
	if p.Prepaid && p.Limits.Quota != (llmhttp.Quota{}) {
		return errors.New("AccountParams.Limits.Quota: must be empty, because the account is prepaid: its credit is the quota")
	}
	if err := p.PerUser.Validate(); err != nil {
		return fmt.Errorf("AccountParams.PerUser: %w", err)
	}
	if err := llmhttp.ValidateLabels(p.Labels); err != nil {
		return fmt.Errorf("AccountParams.Labels: %w", err)
	}
	return nil
}

// An AccountInfo describes an account of an [AccountManager].
type AccountInfo struct {
	ID string
	AccountParams
	Credit  llm.Money // the sum of the credit entries; it has no effect unless the account is prepaid
	Created time.Time
}

// Subject returns the account as one of the subjects of its keys. The Quota of an account that
// is prepaid is its credit: what is left is that less what a [llmhttp.UsageQuery] for the Subject
// returns, from Quota.Start on.
func (a *AccountInfo) Subject() llmhttp.Subject {
	s := llmhttp.Subject{ID: llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: a.ID}, Limits: a.Limits}
	if a.Prepaid {
		s.Limits.Quota = llmhttp.Quota{Cost: cmp.Or(max(a.Credit, 0), -1), Per: -1}
	}
	return s
}

// ApplyTo sets in a key of the account what Lookup of a store returns of the account: the Subject,
// unless it has no limits, as the last of the Subjects and in place of one with its ID, PerUser and
// Labels. It does not change what k refers to, and k shares no memory with a.
func (a *AccountInfo) ApplyTo(k *llmhttp.Key) {
	subject := a.Subject()
	k.Subjects = slices.DeleteFunc(slices.Clone(k.Subjects), func(s llmhttp.Subject) bool { return s.ID == subject.ID })
	if subject.Limits != (llmhttp.Limits{}) {
		k.Subjects = append(k.Subjects, subject)
	}
	k.PerUser, k.Labels = a.PerUser, slices.Clone(a.Labels)
}

// An AccountStatus says whether the keys of an account work.
type AccountStatus string

// The states of an account.
const (
	AccountActive    AccountStatus = "active"
	AccountSuspended AccountStatus = "suspended"
)

// Status returns the state of the account.
func (a *AccountInfo) Status() AccountStatus {
	if a.Suspended {
		return AccountSuspended
	}
	return AccountActive
}

// An AccountQuery selects a page of accounts in the order in which they were created.
type AccountQuery struct {
	Status AccountStatus // empty means every status
	Search string        // a part of the ID or name in any case of ASCII letters; empty means every account
	After  string        // the ID of the last account of the previous page; empty means the first page
	Newest bool          // newest first instead of oldest first
	Limit  int           // the maximum number of accounts; zero means 100; negative, or more than 1000, means 1000
}

// A CreditEntry adds to the credit of an account, such as a top-up.
type CreditEntry struct {
	ID      string    // unique in the store, such as the ID of a payment: text of 1 to 512 bytes
	Account string    // the ID of the account
	Amount  llm.Money // not zero; negative for a correction
	Note    string    // for people: text of at most 512 bytes; may be empty

	Time  time.Time // when the entry was added
	Total llm.Money // the sum of the entries of the account up to this one
}

// Validate returns an error that names the first field of e that must be set before it is added
// and whose value is a mistake. Texts are UTF-8 without control characters.
func (e *CreditEntry) Validate() error {
	if err := cmp.Or(checkText("CreditEntry.ID", e.ID, 1), checkText("CreditEntry.Note", e.Note, 0)); err != nil {
		return err
	}
	if e.Amount == 0 {
		return errors.New("CreditEntry.Amount: must not be zero")
	}
	return nil
}

// A CreditQuery selects a page of the credit entries of an account in the order in which they
// were added.
type CreditQuery struct {
	Account string // the ID of the account
	After   string // the ID of the last entry of the previous page; empty means the first page
	Newest  bool   // newest first instead of oldest first
	Limit   int    // the maximum number of entries; zero means 100; negative, or more than 1000, means 1000
}

// maxText is the maximum length of a text in bytes.
const maxText = 512

// checkText returns an error that names the field unless s is a text of at least minLength bytes.
func checkText(field, s string, minLength int) error {
	if len(s) < minLength || len(s) > maxText || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Errorf("%s: must be text of %d to %d bytes without control characters", field, minLength, maxText)
	}
	return nil
}
