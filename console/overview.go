package console

import "github.com/llmhttp/llmhttp/route"

// overviewData is the data of overview.html.
type overviewData struct {
	Monitor *snapshot // nil if there is no Monitor
	Chart   *chartView
	Targets []route.TargetStatus
	Router  bool // whether there is a Router
}

// overviewPages serve the overview.
type overviewPages struct {
	monitor *Monitor                    // nil if the host has none
	targets func() []route.TargetStatus // Options.Targets; may be nil
}

func (o *overviewPages) serve(q *request) error {
	if o.monitor == nil && o.targets == nil {
		return errNotFound
	}
	data := &overviewData{}
	if o.monitor != nil {
		data.Monitor = o.monitor.snapshot()
		data.Chart = data.Monitor.chart().view("requests of each minute of the last hour")
	}
	if o.targets != nil {
		data.Targets, data.Router = o.targets(), true
	}
	return q.render("overview.html", "Overview", data)
}

// chart returns a chart of the requests of each minute.
func (s *snapshot) chart() *chart {
	succeeded, failed := chartSeries{Name: "succeeded"}, chartSeries{Name: "failed", Errors: true}
	c := &chart{Format: formatCount, Tick: shortCount}
	for _, m := range s.minutes {
		at := m.time.Format("15:04")
		c.Labels = append(c.Labels, barLabel{Axis: at, Name: at})
		succeeded.Values = append(succeeded.Values, m.succeeded)
		failed.Values = append(failed.Values, m.failed)
	}
	c.Series = []chartSeries{succeeded, failed}
	return c
}
