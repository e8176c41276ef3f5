package console

import "github.com/llmhttp/llmhttp/route"

// overviewData is the data of overview.html.
type overviewData struct {
	Monitor *snapshot // nil if there is no Monitor
	Targets []route.TargetStatus
	Router  bool // whether there is a Router
}

// overviewPages serve the overview and its chart to administrators.
type overviewPages struct {
	monitor *Monitor                    // nil if the host has none
	targets func() []route.TargetStatus // Options.Targets; may be nil
}

func (o *overviewPages) serve(q *request) error {
	if !q.user.Admin {
		return errForbidden
	}
	if o.monitor == nil && o.targets == nil {
		return errNotFound
	}
	data := &overviewData{}
	if o.monitor != nil {
		data.Monitor = o.monitor.snapshot()
	}
	if o.targets != nil {
		data.Targets, data.Router = o.targets(), true
	}
	return q.render("overview.html", "Overview", data)
}

// serveChart draws the requests of each minute of the last hour.
func (o *overviewPages) serveChart(q *request) error {
	if !q.user.Admin || o.monitor == nil {
		return errNotFound
	}
	succeeded, failed := chartSeries{Name: "succeeded"}, chartSeries{Name: "failed", Errors: true}
	c := &chart{Format: shortNumber}
	for _, m := range o.monitor.snapshot().minutes {
		c.Labels = append(c.Labels, m.time.Format("15:04"))
		succeeded.Values = append(succeeded.Values, m.succeeded)
		failed.Values = append(failed.Values, m.failed)
	}
	c.Series = []chartSeries{succeeded, failed}
	return q.writeChart(c)
}
