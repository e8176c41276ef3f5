// An HTTP request of a person who is signed in, and its reply: forms, redirects, the keys and the
// account that the user sees.

package console

import (
	"net/http"
	"net/url"

	"github.com/llmhttp/llmhttp/manage"
)

// A request is an HTTP request of a person who is signed in, and its reply.
type request struct {
	renderer *renderer
	w        http.ResponseWriter
	r        *http.Request
	user     User
}

// maxForm is the maximum size of a form in bytes.
const maxForm = 64 << 10

// withForm returns a handler that parses the form in the body and then calls serve. So
// serve authenticates the person after the body has arrived: a client that sends it slowly
// does not keep rights that end meanwhile.
func (rd *renderer) withForm(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := parseForm(w, r); err != nil {
			rd.showError(w, r, nil, err)
			return
		}
		serve(w, r)
	}
}

// parseForm parses the form in the body of r. Its error is a pageError.
func parseForm(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return &pageError{http.StatusBadRequest, "The form could not be read, or it is too long."}
	}
	return nil
}

// keyID returns the ID of the key in the query.
func (q *request) keyID() string { return q.r.URL.Query().Get("id") }

// findKey returns the key with the given ID. The error is the same for a key that the
// user may not see and for one that does not exist.
func (q *request) findKey(keys manage.KeyManager, id string) (manage.KeyInfo, error) {
	info, err := keys.Key(q.r.Context(), id)
	if err == nil && !q.user.sees(&info) {
		err = errNoKey
	}
	return info, err
}

// findKeyToManage is findKey for a key that the user may also manage; see User.mayManage.
func (q *request) findKeyToManage(keys manage.KeyManager, id string) (manage.KeyInfo, error) {
	info, err := q.findKey(keys, id)
	if err == nil && !q.user.mayManage(&info) {
		err = q.user.refusal(&info)
	}
	return info, err
}

// findKeyToCall is findKey for a key that the user may call the API with; see User.mayCall.
func (q *request) findKeyToCall(keys manage.KeyManager, id string) (manage.KeyInfo, error) {
	info, err := q.findKey(keys, id)
	if err == nil && !q.user.mayCall(&info) {
		err = errForbidden
	}
	return info, err
}

// findAccount returns the account with the given ID. The error is the same for an account that
// the user may not see and for one that does not exist.
func (q *request) findAccount(accounts manage.AccountManager, id string) (manage.AccountInfo, error) {
	if !q.user.Admin && id != q.user.Account {
		return manage.AccountInfo{}, manage.ErrAccountNotFound
	}
	return accounts.Account(q.r.Context(), id)
}

func (q *request) render(template, title string, data any) error {
	return q.renderStatus(http.StatusOK, template, title, data)
}

func (q *request) renderStatus(status int, template, title string, data any) error {
	return q.renderer.render(q.w, q.r, status, template, title, &q.user, q.takeNotice(), data)
}

// redirect sends the browser to another page of the console. It returns nil.
func (q *request) redirect(path string) error {
	http.Redirect(q.w, q.r, q.renderer.path+path, http.StatusSeeOther)
	return nil
}

// redirectToKey sends the browser to the page of a key, which shows a notice: a key of notices. It
// returns nil.
func (q *request) redirectToKey(id, notice string) error {
	q.setNotice(notice, 60)
	return q.redirect("key?" + url.Values{"id": {id}}.Encode())
}

// redirectToAccount is redirectToKey for an account.
func (q *request) redirectToAccount(id, notice string) error {
	q.setNotice(notice, 60)
	return q.redirect("account?" + url.Values{"id": {id}}.Encode())
}

// noticeCookie is the name of a cookie that names a notice for the next page. The address of the page
// stays the same, so that reloading it or going back to it does not show the notice again.
const noticeCookie = "llmhttp_console_notice"

// setNotice sets the cookie for maxAge seconds, or removes it if maxAge is negative.
func (q *request) setNotice(notice string, maxAge int) {
	http.SetCookie(q.w, &http.Cookie{
		Name: noticeCookie, Value: notice, Path: q.renderer.path, MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
}

// takeNotice returns the text of the notice for this page, which is not shown again.
func (q *request) takeNotice() string {
	cookie, err := q.r.Cookie(noticeCookie)
	if err != nil || q.r.Method != http.MethodGet {
		return ""
	}
	q.setNotice("", -1)
	return notices[cookie.Value]
}

// notices tell people what a form has done, on the page to which it led.
var notices = map[string]string{
	"saved":           "The changes were saved.",
	"unchanged":       "Nothing was changed: these were the settings already.",
	"account-created": "The account was created.",
	"credit-added":    "The credit was added.",
	"suspended":       "The key was suspended.",
	"resumed":         "The key was resumed.",
	"revoked":         "The key was revoked.",
}

// savedNotice returns the notice after a form for settings, whose changes detail describes.
func savedNotice(detail string) string {
	if detail == "" {
		return "unchanged"
	}
	return "saved"
}
