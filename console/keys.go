package console

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/keytext"
)

// keysPerPage is the number of keys on a page of the list.
const keysPerPage = 50

// keysPage is the data of keys.html.
type keysPage struct {
	Keys            []llmhttp.KeyInfo
	Search, Account string
	Status          llmhttp.KeyStatus
	Statuses        []llmhttp.KeyStatus
	Newer, Older    string // queries of the neighboring pages; empty on the first and the last page
	Admin           bool
	MayCreate       bool
}

func (h *Handler) serveKeys(p *page) error {
	query := p.r.URL.Query()
	data := &keysPage{
		Search: strings.TrimSpace(query.Get("search")), Account: query.Get("account"), Status: llmhttp.KeyStatus(query.Get("status")),
		Statuses: []llmhttp.KeyStatus{llmhttp.KeyActive, llmhttp.KeySuspended, llmhttp.KeyExpired, llmhttp.KeyRevoked},
		Admin:    p.user.Admin, MayCreate: p.user.mayCreate(),
	}
	if !p.user.Admin {
		data.Account = p.user.Account
	}
	if !slices.Contains(data.Statuses, data.Status) {
		data.Status = ""
	}
	before := query.Get("before")
	q := llmhttp.KeyQuery{
		Account: data.Account, Status: data.Status, Search: data.Search,
		After: query.Get("after"), Newest: true, Limit: keysPerPage + 1,
	}
	if before != "" { // the list in the other direction, from there
		q.After, q.Newest = before, false
	}
	if q.After != "" {
		if _, err := h.findKey(p, q.After); err != nil {
			return err
		}
	}
	keys, err := h.keys.ListKeys(p.r.Context(), q)
	if err != nil {
		return err
	}
	more := len(keys) > keysPerPage
	keys = keys[:min(len(keys), keysPerPage)]
	if before != "" {
		slices.Reverse(keys)
	}
	data.Keys = keys
	if len(keys) > 0 {
		if more || before != "" {
			data.Older = data.pageQuery("after", keys[len(keys)-1].ID)
		}
		if query.Has("after") || before != "" && more {
			data.Newer = data.pageQuery("before", keys[0].ID)
		}
	}
	return p.render("keys.html", "API keys", data)
}

func (d *keysPage) pageQuery(direction, id string) string {
	v := url.Values{direction: {id}}
	if d.Search != "" {
		v.Set("search", d.Search)
	}
	if d.Account != "" && d.Admin {
		v.Set("account", d.Account)
	}
	if d.Status != "" {
		v.Set("status", string(d.Status))
	}
	return "?" + v.Encode()
}

// keyPage is the data of the pages of one key.
type keyPage struct {
	Key    llmhttp.KeyInfo
	Form   *keyForm
	Nonce  string
	Secret string // only in the reply that shows it
	Error  string

	Limits []limitUse
	Totals *usageTotals // of the last 30 days; nil if there is no usage
	Days   int

	Admin, MayUse, Active, Playground bool
	Overlap                           string
}

// findKey returns a key. One that the user does not see looks like one that does
// not exist.
func (h *Handler) findKey(p *page, id string) (llmhttp.KeyInfo, error) {
	info, err := h.keys.Key(p.r.Context(), id)
	if err == nil && !p.user.sees(&info) {
		err = errNoKey
	}
	return info, err
}

// findUsableKey is findKey for a key of which the user may obtain a secret.
func (h *Handler) findUsableKey(p *page, id string) (llmhttp.KeyInfo, error) {
	info, err := h.findKey(p, id)
	if err == nil && !p.user.mayUse(&info) {
		err = errForbidden
	}
	return info, err
}

// keyID returns the ID of the key that the page is about.
func (p *page) keyID() string { return p.r.URL.Query().Get("id") }

func (h *Handler) newKeyPage(p *page, info *llmhttp.KeyInfo) *keyPage {
	return &keyPage{
		Key: *info, Nonce: newNonce(), Admin: p.user.Admin, MayUse: p.user.mayUse(info),
		Active: info.Status(time.Now()) == llmhttp.KeyActive, Playground: h.opts.API != nil,
	}
}

func (h *Handler) serveKey(p *page) error {
	info, err := h.findKey(p, p.keyID())
	if err != nil {
		return err
	}
	return h.showKey(p, &info, newKeyForm(&info, p.user.Admin))
}

// showKey shows a key with a form for its settings.
func (h *Handler) showKey(p *page, info *llmhttp.KeyInfo, form *keyForm) error {
	data := h.newKeyPage(p, info)
	data.Form = form
	data.Limits = h.limitUse(p.r.Context(), info)
	if h.usage != nil {
		totals, err := h.keyTotals(p, info)
		if err != nil {
			return err
		}
		data.Totals, data.Days = totals, defaultDays
	}
	return p.renderStatus(form.status(), "key.html", title(info), data)
}

func title(info *llmhttp.KeyInfo) string {
	if info.Name != "" {
		return info.Name
	}
	return info.ID
}

func (h *Handler) updateKey(p *page) error {
	info, err := h.findUsableKey(p, p.keyID())
	if err == nil {
		err = p.parseForm()
	}
	if err != nil {
		return err
	}
	form := readKeyForm(p.r.PostForm, p.user.Admin)
	var before, after llmhttp.KeyParams
	_, err = h.keys.UpdateKey(p.r.Context(), info.ID, func(params *llmhttp.KeyParams) error {
		before = *params
		err := form.apply(params, time.Now())
		after = *params
		return err
	})
	if err != nil {
		if len(form.Errors) == 0 {
			return err
		}
		return h.showKey(p, &info, form)
	}
	if detail := describeChange(&before, &after); detail != "" {
		h.audit.add(p.r, p.user.Name, ActionUpdate, info.ID, detail)
	}
	return p.redirect("key?" + url.Values{"id": {info.ID}}.Encode())
}

func (h *Handler) serveNewKey(p *page) error {
	if !p.user.mayCreate() {
		return errForbidden
	}
	return h.showNewKey(p, newKeyForm(&llmhttp.KeyInfo{}, p.user.Admin))
}

func (h *Handler) showNewKey(p *page, form *keyForm) error {
	data := &keyPage{Form: form, Nonce: newNonce(), Admin: p.user.Admin}
	if g := p.user.Grant; !p.user.Admin && g != nil {
		data.Key.Key = llmhttp.Key{Account: p.user.Account, Scopes: g.Scopes, Models: g.Models, Limits: g.Limits, Expires: g.Expires}
	}
	return p.renderStatus(form.status(), "newkey.html", "New API key", data)
}

func (h *Handler) createKey(p *page) error {
	if !p.user.mayCreate() {
		return errForbidden
	}
	if err := p.parseForm(); err != nil {
		return err
	}
	form := readKeyForm(p.r.PostForm, p.user.Admin)
	var params llmhttp.KeyParams
	if !p.user.Admin {
		params = *p.user.Grant
		params.Account, params.Name, params.Suspended = p.user.Account, "", false
	}
	if form.apply(&params, time.Now()) != nil {
		return h.showNewKey(p, form)
	}
	if err := h.takeNonce(p); err != nil {
		return err
	}
	info, secret, err := h.keys.CreateKey(p.r.Context(), params)
	if err != nil {
		return err
	}
	h.audit.add(p.r, p.user.Name, ActionCreate, info.ID, describeChange(&llmhttp.KeyParams{}, &params))
	return h.showSecret(p, &info, secret, "API key created")
}

// showSecret shows a new secret in the reply to the form that made it. It is in
// no other page, and the browser is told not to store this one.
func (h *Handler) showSecret(p *page, info *llmhttp.KeyInfo, secret, title string) error {
	data := h.newKeyPage(p, info)
	data.Secret = secret
	return p.render("secret.html", title, data)
}

// takeNonce returns an error if the form was sent before, so that reloading the
// page with a secret makes no other one.
func (h *Handler) takeNonce(p *page) error {
	if h.created.take(p.r.PostForm.Get("nonce")) {
		return nil
	}
	return &pageError{http.StatusConflict, "This form was sent before. The secret that it made cannot be shown again."}
}

func (h *Handler) serveRotateKey(p *page) error {
	info, err := h.findUsableKey(p, p.keyID())
	if err != nil {
		return err
	}
	return h.showRotateKey(p, &info, "24h", "")
}

func (h *Handler) showRotateKey(p *page, info *llmhttp.KeyInfo, overlap, problem string) error {
	data := h.newKeyPage(p, info)
	data.Overlap, data.Error = overlap, problem
	status := http.StatusOK
	if problem != "" {
		status = http.StatusUnprocessableEntity
	}
	return p.renderStatus(status, "rotate.html", "Rotate "+title(info), data)
}

// maxOverlap bounds how long the previous secret of a key works.
const maxOverlap = 90 * 24 * time.Hour

func (h *Handler) rotateKey(p *page) error {
	info, err := h.findUsableKey(p, p.keyID())
	if err == nil {
		err = p.parseForm()
	}
	if err != nil {
		return err
	}
	text := strings.TrimSpace(p.r.PostForm.Get("overlap"))
	overlap := time.Duration(0)
	if text != "" && text != "0" {
		if overlap, err = keytext.ParsePeriod(text); err != nil || overlap < 0 || overlap > maxOverlap {
			return h.showRotateKey(p, &info, text, "Enter a time of at most 90 days, such as 0, 12h or 7d.")
		}
	}
	if err := h.takeNonce(p); err != nil {
		return err
	}
	info, secret, err := h.keys.RotateKey(p.r.Context(), info.ID, overlap)
	if err != nil {
		return err
	}
	h.audit.add(p.r, p.user.Name, ActionRotate, info.ID, "overlap: "+cmp.Or(text, "0"))
	return h.showSecret(p, &info, secret, "API key rotated")
}

func (h *Handler) serveRevokeKey(p *page) error {
	info, err := h.findUsableKey(p, p.keyID())
	if err != nil {
		return err
	}
	return p.render("revoke.html", "Revoke "+title(&info), h.newKeyPage(p, &info))
}

func (h *Handler) revokeKey(p *page) error {
	info, err := h.findUsableKey(p, p.keyID())
	if err != nil {
		return err
	}
	if err := h.keys.RevokeKey(p.r.Context(), info.ID); err != nil {
		return err
	}
	h.audit.add(p.r, p.user.Name, ActionRevoke, info.ID, "")
	return p.redirect("key?" + url.Values{"id": {info.ID}}.Encode())
}

func (h *Handler) suspendKey(p *page) error { return h.setSuspended(p, true, ActionSuspend) }
func (h *Handler) resumeKey(p *page) error  { return h.setSuspended(p, false, ActionResume) }

func (h *Handler) setSuspended(p *page, suspended bool, action AuditAction) error {
	if !p.user.Admin {
		return errForbidden
	}
	info, err := h.findKey(p, p.keyID())
	if err != nil {
		return err
	}
	_, err = h.keys.UpdateKey(p.r.Context(), info.ID, func(params *llmhttp.KeyParams) error {
		params.Suspended = suspended
		return nil
	})
	if err != nil {
		return err
	}
	h.audit.add(p.r, p.user.Name, action, info.ID, "")
	return p.redirect("key?" + url.Values{"id": {info.ID}}.Encode())
}

// describeChange lists the settings in which two keys differ.
func describeChange(before, after *llmhttp.KeyParams) string {
	var changes []string
	was, is := keyFields(before), keyFields(after)
	for _, name := range keyFieldNames {
		if was[name] != is[name] {
			changes = append(changes, name+": "+quoteValue(was[name])+" to "+quoteValue(is[name]))
		}
	}
	return strings.Join(changes, "; ")
}

func quoteValue(s string) string {
	if s == "" {
		return "none"
	}
	return strconv.Quote(s)
}

var errInvalidForm = errors.New("console: the form has mistakes")
