// Errors that people see.

package console

import (
	"errors"
	"net/http"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// A pageError is an error whose text people see on the error page.
type pageError struct {
	status int
	text   string
}

func (e *pageError) Error() string { return e.text }

var (
	errNotFound       = &pageError{http.StatusNotFound, "There is no such page."}
	errNoKey          = &pageError{http.StatusNotFound, "There is no such key."}
	errNoAccount      = &pageError{http.StatusForbidden, "You have no account whose keys this console could show."}
	errUnknownAccount = &pageError{http.StatusNotFound, "There is no such account."}
	errForbidden      = &pageError{http.StatusForbidden, "You may not do this."}
	errNotSignedIn    = &pageError{http.StatusForbidden, "You are not signed in, or you may not use this console."}

	errReplacedSecret = &pageError{http.StatusForbidden, "The key has been rotated. Sign in with its new secret to change it."}
)

// errorData is the data of error.html.
type errorData struct {
	Text     string
	LoginURL string // empty for no link
}

// showError replies with an error page. Errors other than a pageError are logged
// and not shown. The user is nil if nobody is signed in.
func (rd *renderer) showError(w http.ResponseWriter, r *http.Request, user *User, err error) {
	shown, ok := errors.AsType[*pageError](err)
	switch {
	case ok:
	case errors.Is(err, llmhttp.ErrKeyNotFound):
		shown = errNoKey
	case errors.Is(err, manage.ErrAccountNotFound):
		shown = errUnknownAccount
	case errors.Is(err, manage.ErrCreditNotFound):
		shown = errNotFound
	case errors.Is(err, manage.ErrKeyRevoked):
		shown = &pageError{http.StatusConflict, "The key is revoked."}
	case r.Context().Err() != nil: // the client has left
		return
	default:
		rd.logger.ErrorContext(r.Context(), "console: request failed", "path", r.URL.Path, "error", err)
		shown = &pageError{http.StatusInternalServerError, "Something went wrong. The server's log has the reason."}
	}
	data := errorData{Text: shown.text}
	if shown == errNotSignedIn {
		data.LoginURL = rd.loginURL
	}
	if err := rd.render(w, r, shown.status, "error.html", "Error", user, "", data); err != nil {
		http.Error(w, shown.text, shown.status)
	}
}
