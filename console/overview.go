package console

import (
	"github.com/llmhttp/llmhttp/route"
)

// overviewPage is the data of overview.html.
type overviewPage struct {
	Monitor *snapshot // nil if there is no Monitor
	Targets []route.TargetStatus
	Router  bool
}

func (h *Handler) serveOverview(p *page) error {
	if !p.user.Admin {
		return errForbidden
	}
	if !h.showsOverview(&p.user) {
		return errNotFound
	}
	data := &overviewPage{}
	if h.opts.Monitor != nil {
		data.Monitor = h.opts.Monitor.snapshot()
	}
	if h.opts.Router != nil {
		data.Targets, data.Router = h.opts.Router(), true
	}
	return p.render("overview.html", "Overview", data)
}

// serveOverviewChart draws the requests of each minute of the last hour.
func (h *Handler) serveOverviewChart(p *page) error {
	if !p.user.Admin || h.opts.Monitor == nil {
		return errNotFound
	}
	s := h.opts.Monitor.snapshot()
	succeeded, failed := chartSeries{Name: "succeeded"}, chartSeries{Name: "failed", Bad: true}
	c := &chart{Format: shortNumber}
	for _, m := range s.minutes {
		c.Labels = append(c.Labels, m.time.Format("15:04"))
		succeeded.Values, failed.Values = append(succeeded.Values, m.succeeded), append(failed.Values, m.failed)
	}
	c.Series = []chartSeries{succeeded, failed}
	return p.writeChart(c)
}
