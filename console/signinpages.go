package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// signInPage is the data of signin.html.
type signInPage struct {
	Passwords, Keys bool
	Next            string // where to go afterwards
	Error           string
}

// askToSignIn redirects to the sign-in page. A POST is not repeated afterwards.
func (h *Handler) askToSignIn(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Sec-Fetch-Mode") == "cors" || r.Method != http.MethodGet { // a script's request: it cannot follow
		h.showError(w, r, nil, &pageError{http.StatusUnauthorized, "Your session has ended. Please sign in again."})
		return
	}
	target := h.opts.Path + "sign-in"
	if at := strings.TrimPrefix(r.URL.Path, h.opts.Path); at != "" {
		if r.URL.RawQuery != "" {
			at += "?" + r.URL.RawQuery
		}
		target += "?" + url.Values{"next": {at}}.Encode()
	}
	http.Redirect(w, r, target, http.StatusSeeOther)
}

func (h *Handler) newSignInPage(next string) *signInPage {
	return &signInPage{Passwords: len(h.signIn.admins) > 0, Keys: h.signIn.config.Keys, Next: next}
}

func (h *Handler) showSignIn(w http.ResponseWriter, r *http.Request, status int, data *signInPage) {
	if err := h.render(w, r, nil, status, "signin.html", "Sign in", data); err != nil {
		h.showError(w, r, nil, err)
	}
}

func (h *Handler) serveSignIn(w http.ResponseWriter, r *http.Request) {
	h.showSignIn(w, r, http.StatusOK, h.newSignInPage(r.URL.Query().Get("next")))
}

func (h *Handler) postSignIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		h.showError(w, r, nil, &pageError{http.StatusBadRequest, "The form could not be read."})
		return
	}
	next := r.PostForm.Get("next")
	name := r.PostForm.Get("name")
	var user User
	var err error
	if r.PostForm.Has("key") {
		name = ""
		user, err = h.signIn.checkKey(r, strings.TrimSpace(r.PostForm.Get("key")))
	} else {
		user, err = h.signIn.checkPassword(r, name, r.PostForm.Get("password"))
	}
	if refused, ok := errors.AsType[*signInError](err); ok {
		if h.signIn.admins[name] == nil { // it may be a password in the wrong field
			name = ""
		}
		h.audit.add(r, name, ActionSignInFailed, "", refused.text)
		data := h.newSignInPage(next)
		data.Error = refused.text
		h.showSignIn(w, r, refused.status, data)
		return
	}
	if err != nil {
		h.showError(w, r, nil, err)
		return
	}
	if old, err := r.Cookie(sessionCookie); err == nil {
		h.signIn.sessions.end(old.Value, time.Now())
	}
	h.signIn.setCookie(w, r, h.opts.Path, h.signIn.newSession(&user))
	h.audit.add(r, user.Name, ActionSignIn, "", "")
	http.Redirect(w, r, h.opts.Path+localPath(next), http.StatusSeeOther)
}

// localPath returns next if it is a path below that of the console, and
// otherwise "".
func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || strings.HasPrefix(next, "/") || strings.ContainsAny(next, "\\\r\n") || strings.Contains(u.Path, "..") {
		return ""
	}
	return next
}

func (h *Handler) signOut(p *page) error {
	h.signIn.sessions.end(p.user.session, time.Now())
	h.signIn.setCookie(p.w, p.r, h.opts.Path, "")
	h.audit.add(p.r, p.user.Name, ActionSignOut, "", "")
	return p.redirect("sign-in")
}
