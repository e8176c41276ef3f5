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
	return q.renderer.render(q.w, q.r, status, template, title, &q.user, data)
}

// redirect sends the browser to another page of the console. It returns nil.
func (q *request) redirect(path string) error {
	http.Redirect(q.w, q.r, q.renderer.path+path, http.StatusSeeOther)
	return nil
}

// redirectToKey sends the browser to the page of a key, which shows a notice: a key of notices. It
// returns nil.
func (q *request) redirectToKey(id, notice string) error {
	return q.redirect("key?" + url.Values{"id": {id}, noticeParam: {notice}}.Encode())
}

// redirectToAccount is redirectToKey for an account.
func (q *request) redirectToAccount(id, notice string) error {
	return q.redirect("account?" + url.Values{"id": {id}, noticeParam: {notice}}.Encode())
}

// noticeParam is the parameter of a query that names a notice.
const noticeParam = "done"

// notices tell people what a form has done, on the page to which it led. A query names the notice, so
// that a link cannot make the console show any other text.
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
