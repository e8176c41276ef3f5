package memory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/reportsum"
	"github.com/llmhttp/llmhttp/manage"
)

// Report implements [manage.UsageReporter]. An entry that adds up an hour counts at the beginning
// of that hour.
func (u *UsageStore) Report(ctx context.Context, q manage.ReportQuery) (manage.Report, error) {
	if !reportsum.IsKnown(q.By) {
		return manage.Report{}, fmt.Errorf("memory: cannot report usage by %q: %w", string(q.By), errors.ErrUnsupported)
	}
	r := u.report(&q)
	r.Sums = reportsum.Largest(&q, r.Sums)
	reportsum.Sort(r.Sums)
	return r, nil
}

// report adds up the entries that q selects.
func (u *UsageStore) report(q *manage.ReportQuery) (r manage.Report) {
	u.mu.Lock()
	defer u.mu.Unlock()
	lost := u.dropped
	if q.NeedsDetail() {
		lost = u.reduced
	}
	from := q.From
	if lost.After(from) {
		from, r.Since = lost, lost
	}
	var sums reportsum.Adder
	label := encodeLabels([]llmhttp.Label{q.Label})
	for account, sources := range u.accounts {
		if q.Account != "" && account != q.Account {
			continue
		}
		for source, entries := range sources {
			switch {
			case q.KeyID != "" && source.keyID != q.KeyID, q.Model != "" && source.model != q.Model, q.User != "" && source.user != q.User,
				q.Label.Name != "" && !strings.Contains(source.labels, label):
				continue
			}
			g := reportsum.Group{Start: q.From, Model: source.model}
			switch q.By {
			case manage.ByKey:
				g.Account, g.KeyID = account, source.keyID
			case manage.ByAccount:
				g.Account = account
			case manage.ByUser:
				g.Account, g.User = account, source.user
			case manage.ByLabel:
				g.Label = labelValue(source.labels, q.GroupLabel)
			}
			for e := range sumsBetween(*entries, from, q.To) {
				if q.By == manage.ByDay {
					g.Start = e.Start.Truncate(24 * time.Hour)
				}
				sums.Add(g, e)
			}
		}
	}
	r.Sums = sums.Sums()
	return r
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
