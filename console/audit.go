// The audit log: its newest entries and their page.

package console

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// An AuditEntry says who did what. It contains no secrets.
type AuditEntry struct {
	Time    time.Time
	User    string // the Name of the User; empty for a failed sign-in with an unknown name or key
	Action  AuditAction
	KeyID   string // of the key that was changed; empty if none was
	Account string // the ID of the account that was changed; empty if none was
	Detail  string // what changed, such as "requests: none to 60/m"
	Addr    string // the address of the client: see SignIn.ClientAddr
}

// An AuditAction is the kind of an [AuditEntry].
type AuditAction string

// The actions in the audit log.
const (
	ActionSignIn       AuditAction = "sign in"
	ActionSignInFailed AuditAction = "sign in failed"
	ActionSignOut      AuditAction = "sign out"
	ActionCreate       AuditAction = "create key"
	ActionUpdate       AuditAction = "update key"
	ActionRotate       AuditAction = "rotate key"
	ActionSuspend      AuditAction = "suspend key"
	ActionResume       AuditAction = "resume key"
	ActionRevoke       AuditAction = "revoke key"

	ActionCreateAccount AuditAction = "create account"
	ActionUpdateAccount AuditAction = "update account"
	ActionAddCredit     AuditAction = "add credit"
)

// maxAuditEntries is how many entries of each auditGroup the console shows.
const maxAuditEntries = 1000

// An auditGroup are people whose entries displace only each other: strangers cannot
// displace what others have done, nor can people displace what administrators have done.
type auditGroup int

const (
	auditAdmins auditGroup = iota
	auditOthers
	auditFailures // failed sign-ins
	auditGroups
)

// groupOf returns the group of an entry about what user did.
func groupOf(user *User, action AuditAction) auditGroup {
	switch {
	case action == ActionSignInFailed:
		return auditFailures
	case user.Admin:
		return auditAdmins
	}
	return auditOthers
}

// An auditLog keeps the newest entries and passes each entry to the host.
type auditLog struct {
	write      func(context.Context, AuditEntry) // Options.Audit, or a function that logs
	clientAddr func(*http.Request) string

	mu      sync.Mutex // guards entries
	entries [auditGroups][]AuditEntry
}

func newAuditLog(o *Options) *auditLog {
	write := o.Audit
	if write == nil {
		write = func(ctx context.Context, e AuditEntry) {
			o.Logger.InfoContext(
				ctx,
				"console: "+string(e.Action),
				"user",
				e.User,
				"key",
				e.KeyID,
				"detail",
				e.Detail,
				"addr",
				e.Addr,
				"account",
				e.Account,
			)
		}
	}
	return &auditLog{write: write, clientAddr: o.clientAddr()}
}

// add records what user, the sender of r, did. It sets the fields of e that tell who, when and from
// where.
func (l *auditLog) add(r *http.Request, user *User, e AuditEntry) {
	e.Time, e.User, e.Addr = time.Now(), user.Name, l.clientAddr(r)
	l.mu.Lock()
	entries := &l.entries[groupOf(user, e.Action)]
	if len(*entries) >= maxAuditEntries {
		*entries = slices.Delete(*entries, 0, 1)
	}
	*entries = append(*entries, e)
	l.mu.Unlock()
	l.write(context.WithoutCancel(r.Context()), e)
}

// newest returns the entries, beginning with the newest.
func (l *auditLog) newest() []AuditEntry {
	l.mu.Lock()
	entries := slices.Concat(l.entries[:]...)
	l.mu.Unlock()
	slices.SortStableFunc(entries, func(a, b AuditEntry) int { return a.Time.Compare(b.Time) })
	slices.Reverse(entries)
	return entries
}

func (l *auditLog) serve(q *request) error {
	return q.render("audit.html", "Audit log", l.newest())
}
