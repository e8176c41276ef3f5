// Reports of a UsageStore.

package memory

import (
	"context"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// Report implements [manage.UsageReporter]. It can do all that a [manage.ReportQuery] asks for.
func (u *UsageStore) Report(ctx context.Context, q manage.ReportQuery) (manage.Report, error) {
	err := q.CheckFields("Account", "KeyID", "Model", "User", "Label", "Operation", "Target", "Status", "From", "To", "By", "GroupLabel",
		"Interval", "Location", "PerModel", "Order", "Limit")
	if err != nil {
		return manage.Report{}, err
	}
	report, err := manage.NewReportBuilder(q)
	if err != nil {
		return manage.Report{}, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	from, lost := q.From, u.dropped
	if q.NeedsDetail() {
		lost = u.reduced
	}
	cut := lost.After(from)
	if cut {
		from = lost
	}
	isSelected := selectedBy(&q)
	for account, sources := range u.accounts {
		if q.Account != "" && account != q.Account {
			continue
		}
		for source, entries := range sources {
			if !isSelected(&source) {
				continue
			}
			id := manage.ReportRowID{Account: account, KeyID: source.keyID, User: source.user, Model: source.model}
			if q.By == manage.ByLabel {
				id.Label = labelValue(source.labels, q.GroupLabel)
			}
			for e := range sumsBetween(*entries, from, q.To) {
				e.Model = source.model
				report.Add(id, e)
			}
		}
	}
	r := report.Report()
	if cut {
		r.Since = lost
	}
	return r, nil
}

// selectedBy returns a function that reports whether q selects the entries of a source, if it selects
// their account.
func selectedBy(q *manage.ReportQuery) func(s *usageSource) bool {
	label := encodeLabels([]llmhttp.Label{q.Label})
	return func(s *usageSource) bool {
		return (q.KeyID == "" || s.keyID == q.KeyID) && (q.Model == "" || s.model == q.Model) && (q.User == "" || s.user == q.User) &&
			(q.Label.Name == "" || strings.Contains(s.labels, label)) && (q.Operation == "" || s.operation == q.Operation) &&
			(q.Target == "" || s.target == q.Target) && q.Status.Includes(s.errorClass)
	}
}

// encodeLabels returns labels as a text: a line break, and then a line with the quoted name and
// value of each. It is empty if there are none. As with encodeSubjects, it contains the text of
// a label only if that is one of labels.
func encodeLabels(labels []llmhttp.Label) string {
	if len(labels) == 0 {
		return ""
	}
	b := []byte{'\n'}
	for _, l := range labels {
		b = append(strconv.AppendQuote(b, l.Name), ' ')
		b = append(strconv.AppendQuote(b, l.Value), '\n')
	}
	return string(b)
}

// labelValue returns the value of the label with a name. It is empty if there is none.
func labelValue(encoded, name string) string {
	_, rest, found := strings.Cut(encoded, "\n"+strconv.Quote(name)+" ")
	if !found {
		return ""
	}
	quoted, _, _ := strings.Cut(rest, "\n")
	value, _ := strconv.Unquote(quoted) // encodeLabels has quoted it
	return value
}
