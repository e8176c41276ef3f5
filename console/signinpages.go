// The sign-in page.

package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/llmhttp/llmhttp/console/internal/session"
)

// signInData is the data of signin.html.
type signInData struct {
	Passwords, Keys bool
	Next            string // the page to show afterwards: a path below that of the console
	Error           string

	WrongPassword, WrongKey bool // whether that is the Error
}

// signInPages sign people in and out.
type signInPages struct {
	renderer *renderer
	signIn   *session.SignIn
	audit    *auditLog
}

// askToSignIn redirects a GET to the sign-in page, which leads back to it. Other
// requests, and those of scripts, which cannot sign in, get a 401.
func (s *signInPages) askToSignIn(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Sec-Fetch-Mode") == "cors" || r.Method != http.MethodGet {
		s.renderer.showError(w, r, nil, &pageError{http.StatusUnauthorized, "Your session has ended. Please sign in again."})
		return
	}
	target := s.renderer.path + "sign-in"
	if next := strings.TrimPrefix(r.URL.Path, s.renderer.path); next != "" {
		if r.URL.RawQuery != "" {
			next += "?" + r.URL.RawQuery
		}
		target += "?" + url.Values{"next": {next}}.Encode()
	}
	http.Redirect(w, r, target, http.StatusSeeOther)
}

func (s *signInPages) serve(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, http.StatusOK, &signInData{Next: r.URL.Query().Get("next")})
}

// show shows the sign-in page. It sets Passwords and Keys.
func (s *signInPages) show(w http.ResponseWriter, r *http.Request, status int, data *signInData) {
	data.Passwords, data.Keys = s.signIn.HasPasswords(), s.signIn.HasKeys()
	if err := s.renderer.render(w, r, status, "signin.html", "Sign in", nil, "", data); err != nil {
		s.renderer.showError(w, r, nil, err)
	}
}

// post signs a person in with the password or the API key in the form.
func (s *signInPages) post(w http.ResponseWriter, r *http.Request) {
	person, err := s.checkForm(r)
	if reason, ok := errors.AsType[*session.Refusal](err); ok {
		s.refuse(w, r, reason)
		return
	}
	if err != nil {
		s.renderer.showError(w, r, nil, err)
		return
	}
	s.signIn.Begin(w, r, s.renderer.path, &person)
	user := newUser(&person)
	s.audit.add(r, &user, AuditEntry{Action: ActionSignIn})
	http.Redirect(w, r, s.renderer.path+localPath(r.PostForm.Get("next")), http.StatusSeeOther)
}

// checkForm returns the person whose password or API key the form has.
func (s *signInPages) checkForm(r *http.Request) (session.Person, error) {
	if r.PostForm.Has("key") {
		return s.signIn.CheckKey(r, strings.TrimSpace(r.PostForm.Get("key")))
	}
	return s.signIn.CheckPassword(r, r.PostForm.Get("name"), r.PostForm.Get("password"))
}

// refuse shows the sign-in page again, with the reason.
func (s *signInPages) refuse(w http.ResponseWriter, r *http.Request, reason *session.Refusal) {
	name := r.PostForm.Get("name")
	if r.PostForm.Has("key") || !s.signIn.IsAdmin(name) { // an unknown name may be a password in the wrong field
		name = ""
	}
	if reason != session.ErrTooManyAttempts || s.signIn.IsFirstRefusal(r) {
		s.audit.add(r, &User{Name: name}, AuditEntry{Action: ActionSignInFailed, Detail: reason.Text})
	}
	s.show(w, r, reason.Status, &signInData{
		Next: r.PostForm.Get("next"), Error: reason.Text, WrongPassword: reason == session.ErrWrongPassword, WrongKey: reason == session.ErrWrongKey,
	})
}

// signOut ends the session and removes the cookie.
func (s *signInPages) signOut(q *request) error {
	s.signIn.End(q.w, q.r, s.renderer.path, q.user.session)
	s.audit.add(q.r, &q.user, AuditEntry{Action: ActionSignOut})
	return q.redirect("sign-in")
}

// localPath returns next if it is a path below that of the console. Otherwise it
// returns "".
func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil {
		return ""
	}
	// Browsers read a backslash as a slash.
	if strings.HasPrefix(next, "/") || strings.ContainsAny(next, "\\\r\n") || strings.Contains(u.Path, "..") {
		return ""
	}
	return next
}
