// Creating and rotating keys. A nonce keeps a form from making two secrets.

package console

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console/internal/session"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/manage/keytext"
)

// secretPages serve the forms that make a new secret, of a new key or by rotation,
// and show the secret in the reply.
type secretPages struct {
	keys  manage.KeyManager
	audit *auditLog
	used  session.Nonces // of forms that have made a secret
}

func (s *secretPages) serveCreate(q *request) error {
	if !q.user.mayCreate() {
		return errForbidden
	}
	return s.showCreate(q, newKeyForm(&manage.KeyInfo{}, q.user.Admin))
}

func (s *secretPages) showCreate(q *request, form *keyForm) error {
	data := &keyData{Form: form, Nonce: session.NewNonce(), Admin: q.user.Admin}
	if g := q.user.Grant; !q.user.Admin && g != nil {
		data.Key.Key = llmhttp.Key{Account: q.user.Account, Scopes: g.Scopes, Models: g.Models, Limits: g.Limits, Expires: g.Expires}
	}
	return q.renderStatus(form.status(), "newkey.html", "New API key", data)
}

// create creates a key. What people who are not administrators cannot choose comes
// from their Grant.
func (s *secretPages) create(q *request) error {
	if !q.user.mayCreate() {
		return errForbidden
	}
	form := readKeyForm(q.r.PostForm, q.user.Admin)
	var params manage.KeyParams
	if !q.user.Admin {
		params = *q.user.Grant
		params.Account, params.Name, params.Suspended = q.user.Account, "", false
	}
	if form.apply(&params, time.Now()) != nil {
		return s.showCreate(q, form)
	}
	if err := s.takeNonce(q); err != nil {
		return err
	}
	info, secret, err := s.keys.CreateKey(q.r.Context(), params)
	if err != nil {
		return err
	}
	s.audit.add(q.r, &q.user, AuditEntry{Action: ActionCreate, KeyID: info.ID, Detail: describeChange(&manage.KeyParams{}, &params)})
	return s.showSecret(q, &info, secret, "API key created")
}

func (s *secretPages) serveRotate(q *request) error {
	info, err := q.findKeyToManage(s.keys, q.keyID())
	if err != nil {
		return err
	}
	return s.showRotate(q, &info, "24h", "")
}

func (s *secretPages) showRotate(q *request, info *manage.KeyInfo, overlap, problem string) error {
	data := newKeyData(&q.user, info)
	data.Overlap, data.Error = overlap, problem
	status := http.StatusOK
	if problem != "" {
		status = http.StatusUnprocessableEntity
	}
	return q.renderStatus(status, "rotate.html", "Rotate "+keyTitle(info), data)
}

// maxOverlap bounds how long the previous secret of a key works after a rotation.
const maxOverlap = 90 * day

func (s *secretPages) rotate(q *request) error {
	info, err := q.findKeyToManage(s.keys, q.keyID())
	if err != nil {
		return err
	}
	text := cmp.Or(strings.TrimSpace(q.r.PostForm.Get("overlap")), "0")
	overlap, ok := parseOverlap(text)
	if !ok {
		return s.showRotate(q, &info, text, "Enter a time of at most 90 days, such as 0, 12h or 7d.")
	}
	if err := s.takeNonce(q); err != nil {
		return err
	}
	info, secret, err := s.keys.RotateKey(q.r.Context(), info.ID, overlap)
	if err != nil {
		return err
	}
	s.audit.add(q.r, &q.user, AuditEntry{Action: ActionRotate, KeyID: info.ID, Detail: "overlap: " + text})
	return s.showSecret(q, &info, secret, "API key rotated")
}

// parseOverlap returns the duration that text names. It reports false if there is no
// such duration, or if it is out of range.
func parseOverlap(text string) (overlap time.Duration, ok bool) {
	if text == "0" {
		return 0, true
	}
	overlap, err := keytext.ParsePeriod(text)
	return overlap, err == nil && overlap >= 0 && overlap <= maxOverlap
}

// takeNonce returns an error if the form was sent before, so that reloading the
// page that shows a secret does not make another one.
func (s *secretPages) takeNonce(q *request) error {
	if s.used.Take(q.r.PostForm.Get("nonce")) {
		return nil
	}
	return &pageError{http.StatusConflict, "This form was sent before. The secret that it made cannot be shown again."}
}

// showSecret shows a new secret. Only the reply to the form that made the secret
// has it, and the header Cache-Control keeps browsers from storing that reply.
func (s *secretPages) showSecret(q *request, info *manage.KeyInfo, secret, heading string) error {
	data := newKeyData(&q.user, info)
	data.Secret, data.SignInAgain = secret, q.user.key != nil && q.user.key.ID == info.ID
	return q.render("secret.html", heading, data)
}
