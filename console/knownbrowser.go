package console

import (
	"net/http"
	"time"
)

// browserCookie is the name of the cookie that tells that an administrator has signed in
// with the browser. It has the form of a session, but opens none.
const browserCookie = "llmhttp_console_browser"

// rememberBrowser makes the browser known as one of the administrator u. The cookie is
// sent to the sign-in page only, and stays when the person signs out. That of another
// administrator is replaced.
func (s *signIn) rememberBrowser(w http.ResponseWriter, r *http.Request, path string, u *User) {
	s.setCookie(w, r, &http.Cookie{
		Name: browserCookie, Path: path + "sign-in", MaxAge: int(knownFor.Seconds()),
		Value: s.browsers.encode(session{Admin: u.Name, Password: s.passwordID(u.Name), Ends: time.Now().Add(knownFor).Unix()}),
	})
}

// knownBrowser returns the ID of the browser that sends r if the administrator with that
// name has signed in with it lately, with the present password. Otherwise it returns "".
func (s *signIn) knownBrowser(r *http.Request, name string) string {
	cookie, err := r.Cookie(browserCookie)
	if err != nil {
		return ""
	}
	sess, ok := s.browsers.decode(cookie.Value, time.Now())
	if !ok || sess.Admin != name || !s.hasPassword(sess) {
		return ""
	}
	return sess.ID
}
