// The accounts of a KeyStore, and their credit.

package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ascii"
	"github.com/llmhttp/llmhttp/manage"
)

// accounts are the accounts of a KeyStore, whose mutex guards them.
type accounts struct {
	byID  map[string]*managedAccount
	order []*managedAccount              // in the order in which they were created
	added map[string]*manage.CreditEntry // the credit entries of all accounts, by ID
}

// A managedAccount is an account with its credit entries, which do not change.
type managedAccount struct {
	info   manage.AccountInfo
	credit []*manage.CreditEntry // in the order in which they were added
}

// copyInfo returns an AccountInfo that shares no memory with a.
func (a *managedAccount) copyInfo() manage.AccountInfo {
	info := a.info
	info.Labels = slices.Clone(info.Labels)
	return info
}

// Account implements [manage.AccountManager].
func (s *KeyStore) Account(ctx context.Context, id string) (manage.AccountInfo, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	a := s.accounts.byID[id]
	if a == nil {
		return manage.AccountInfo{}, manage.ErrAccountNotFound
	}
	return a.copyInfo(), nil
}

// ListAccounts implements [manage.AccountManager]. Its cost grows with the number of
// accounts in the store.
func (s *KeyStore) ListAccounts(ctx context.Context, q manage.AccountQuery) ([]manage.AccountInfo, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	last := s.accounts.byID[q.After]
	if q.After != "" && last == nil {
		return nil, manage.ErrAccountNotFound
	}
	search := ascii.ToLower(q.Search)
	selected := func(a *managedAccount) bool {
		return (q.Status == "" || a.info.Status() == q.Status) && strings.Contains(ascii.ToLower(a.info.ID+"\n"+a.info.Name), search)
	}
	var page []manage.AccountInfo
	for a := range pageOf(s.accounts.order, last, q.Newest, q.Limit, selected) {
		page = append(page, a.copyInfo())
	}
	return page, nil
}

// CreateAccount implements [manage.AccountManager].
func (s *KeyStore) CreateAccount(ctx context.Context, id string, params manage.AccountParams) (manage.AccountInfo, error) {
	err := llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: id}.Validate()
	if err == nil {
		err = params.Validate()
	}
	if err != nil {
		return manage.AccountInfo{}, fmt.Errorf("memory: creating an account: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accounts.byID[id] != nil {
		return manage.AccountInfo{}, manage.ErrAccountExists
	}
	if s.accounts.byID == nil {
		s.accounts.byID = make(map[string]*managedAccount)
	}
	a := &managedAccount{info: manage.AccountInfo{ID: id, Created: time.Now()}}
	s.accounts.byID[id] = a
	s.accounts.order = append(s.accounts.order, a)
	return s.changeAccount(a, params), nil
}

// UpdateAccount implements [manage.AccountManager].
func (s *KeyStore) UpdateAccount(ctx context.Context, id string, change func(*manage.AccountParams) error) (manage.AccountInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts.byID[id]
	if a == nil {
		return manage.AccountInfo{}, manage.ErrAccountNotFound
	}
	params := a.copyInfo().AccountParams
	if err := change(&params); err != nil {
		return manage.AccountInfo{}, err
	}
	if err := params.Validate(); err != nil {
		return manage.AccountInfo{}, fmt.Errorf("memory: updating an account: %w", err)
	}
	return s.changeAccount(a, params), nil
}

// changeAccount replaces the settings of a, and returns the result. The caller holds mu.
func (s *KeyStore) changeAccount(a *managedAccount, params manage.AccountParams) manage.AccountInfo {
	a.info.AccountParams = params
	a.info.Labels = slices.Clone(params.Labels)
	s.applyAccount(a)
	return a.copyInfo()
}

// applyAccount replaces what Lookup returns for the keys of a. The caller holds mu.
func (s *KeyStore) applyAccount(a *managedAccount) {
	for _, k := range s.order {
		if k.info.Account == a.info.ID {
			s.applyParams(k, k.info.Params())
		}
	}
}

// AddCredit implements [manage.AccountManager].
func (s *KeyStore) AddCredit(ctx context.Context, e manage.CreditEntry) (manage.CreditEntry, error) {
	if err := e.Validate(); err != nil {
		return manage.CreditEntry{}, fmt.Errorf("memory: adding credit: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts.byID[e.Account]
	if a == nil {
		return manage.CreditEntry{}, manage.ErrAccountNotFound
	}
	if added := s.accounts.added[e.ID]; added != nil {
		e.Time, e.Total = added.Time, added.Total
		if e != *added {
			return manage.CreditEntry{}, manage.ErrCreditConflict
		}
		return e, nil
	}
	e.Time, e.Total = time.Now(), a.info.Credit.Add(e.Amount)
	if e.Total.Sub(e.Amount) != a.info.Credit {
		return manage.CreditEntry{}, errors.New(
			"memory: adding credit: CreditEntry.Amount: the sum of the entries would not fit into a Money",
		)
	}
	if s.accounts.added == nil {
		s.accounts.added = make(map[string]*manage.CreditEntry)
	}
	s.accounts.added[e.ID] = &e
	a.credit = append(a.credit, &e)
	a.info.Credit = e.Total
	s.applyAccount(a)
	return e, nil
}

// ListCredit implements [manage.AccountManager].
func (s *KeyStore) ListCredit(ctx context.Context, q manage.CreditQuery) ([]manage.CreditEntry, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	a := s.accounts.byID[q.Account]
	if a == nil {
		return nil, manage.ErrAccountNotFound
	}
	last := s.accounts.added[q.After]
	if q.After != "" && (last == nil || last.Account != q.Account) {
		return nil, manage.ErrCreditNotFound
	}
	var page []manage.CreditEntry
	for e := range pageOf(a.credit, last, q.Newest, q.Limit, func(*manage.CreditEntry) bool { return true }) {
		page = append(page, *e)
	}
	return page, nil
}
