// Showing, changing, suspending and revoking a key.

package console

import (
	"cmp"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp/console/internal/session"
	"github.com/llmhttp/llmhttp/manage"
)

// keyData is the data of the pages of one key.
type keyData struct {
	Key    manage.KeyInfo
	Form   *keyForm
	Nonce  string
	Secret string // only in the reply that shows it

	SignInAgain bool // whether Secret replaces the secret with which the user has signed in

	Error string

	Account *manage.AccountInfo // nil if it is not known

	Limits   []limitUse
	Subjects []subjectLimits // what else bounds the requests of the key
	PerUser  []limitUse      // of each end user

	Totals *usageTotals  // of the last Days days; nil if the store is no UsageReporter
	Used   []usageColumn // of Totals
	Days   int

	Admin, MayManage, MayCall bool
	Active                    bool
	Replaced                  bool   // see User.isReplaced
	Playground                bool   // whether the console has a playground
	Overlap                   string // the value of the field in the form for a rotation
}

// OverlapField returns the field for Overlap, with Error.
func (d *keyData) OverlapField() formField {
	return formField{Name: "overlap", Value: d.Overlap, Error: d.Error, Focus: d.Error != ""}
}

// UsedUp returns whose quota is used up, such as "this key" or "account acme", or "".
func (d *keyData) UsedUp() string {
	if slices.ContainsFunc(d.Limits, limitUse.UsedUp) {
		return "this key"
	}
	for _, s := range d.Subjects {
		if slices.ContainsFunc(s.Limits, limitUse.UsedUp) {
			return s.Title
		}
	}
	return ""
}

// newKeyData returns the data for a key that user sees.
func newKeyData(user *User, info *manage.KeyInfo) *keyData {
	return &keyData{
		Key: *info, Nonce: session.NewNonce(), Admin: user.Admin, MayManage: user.mayManage(info), MayCall: user.mayCall(info),
		Active: info.Status(time.Now()) == manage.KeyActive, Replaced: user.isReplaced(info),
	}
}

// keyTitle returns the name of a key, or its ID if it has no name.
func keyTitle(info *manage.KeyInfo) string { return cmp.Or(info.Name, info.ID) }

// keyPages serve the list of keys and the pages that show, change, suspend and
// revoke a key.
type keyPages struct {
	keys       manage.KeyManager
	accounts   manage.AccountManager // nil if the store keeps none
	limits     *limitReader
	reports    *usageReports
	audit      *auditLog
	playground bool // whether the console has a playground
}

func (k *keyPages) serve(q *request) error {
	info, err := q.findKey(k.keys, q.keyID())
	if err != nil {
		return err
	}
	return k.show(q, &info, newKeyForm(&info, q.user.Admin))
}

// show shows a key with a form for its settings.
func (k *keyPages) show(q *request, info *manage.KeyInfo, form *keyForm) error {
	totals, err := k.reports.totals(q.r.Context(), &usageFilter{KeyID: info.ID, Account: info.Account})
	if err != nil {
		return err
	}
	data := newKeyData(&q.user, info)
	data.Form, data.Playground = form, k.playground
	if data.Account, err = findAccount(q.r.Context(), k.accounts, info.Account); err != nil {
		return err
	}
	data.Active = data.Active && (data.Account == nil || !data.Account.Suspended)
	data.Limits = k.limits.read(q.r.Context(), keySubject(info))
	data.Subjects, data.PerUser = k.limits.readSubjects(q.r.Context(), info, data.Account)
	if totals != nil {
		data.Totals, data.Used, data.Days = totals, totals.columns(false), defaultDays
	}
	return q.renderStatus(form.status(), "key.html", keyTitle(info), data)
}

// update changes the settings of a key that differ from those that the form showed.
func (k *keyPages) update(q *request) error {
	info, err := q.findKeyToManage(k.keys, q.keyID())
	if err != nil {
		return err
	}
	form := readKeyForm(q.r.PostForm, q.user.Admin)
	var before, after manage.KeyParams
	_, err = k.keys.UpdateKey(q.r.Context(), info.ID, func(params *manage.KeyParams) error {
		before = *params
		err := form.apply(params, time.Now())
		after = *params
		return err
	})
	if err != nil {
		if len(form.Errors) == 0 {
			return err
		}
		return k.show(q, &info, form)
	}
	detail := describeChange(&before, &after)
	if detail != "" {
		k.audit.add(q.r, &q.user, AuditEntry{Action: ActionUpdate, KeyID: info.ID, Detail: detail})
	}
	return q.redirectToKey(info.ID, savedNotice(detail))
}

// serveRevoke shows a page that asks for a confirmation.
func (k *keyPages) serveRevoke(q *request) error {
	info, err := q.findKeyToManage(k.keys, q.keyID())
	if err != nil {
		return err
	}
	return q.render("revoke.html", "Revoke "+keyTitle(&info), newKeyData(&q.user, &info))
}

func (k *keyPages) revoke(q *request) error {
	info, err := q.findKeyToManage(k.keys, q.keyID())
	if err != nil {
		return err
	}
	if err := k.keys.RevokeKey(q.r.Context(), info.ID); err != nil {
		return err
	}
	k.audit.add(q.r, &q.user, AuditEntry{Action: ActionRevoke, KeyID: info.ID})
	return q.redirectToKey(info.ID, "revoked")
}

func (k *keyPages) suspend(q *request) error {
	return k.setSuspended(q, true, ActionSuspend, "suspended")
}
func (k *keyPages) resume(q *request) error { return k.setSuspended(q, false, ActionResume, "resumed") }

func (k *keyPages) setSuspended(q *request, suspended bool, action AuditAction, notice string) error {
	info, err := q.findKey(k.keys, q.keyID())
	if err != nil {
		return err
	}
	_, err = k.keys.UpdateKey(q.r.Context(), info.ID, func(params *manage.KeyParams) error {
		params.Suspended = suspended
		return nil
	})
	if err != nil {
		return err
	}
	k.audit.add(q.r, &q.user, AuditEntry{Action: action, KeyID: info.ID})
	return q.redirectToKey(info.ID, notice)
}
