// The overview.

package console

import (
	"github.com/llmhttp/llmhttp/console/internal/chart"
	"github.com/llmhttp/llmhttp/console/internal/pages"
	"github.com/llmhttp/llmhttp/route"
)

// overviewData is the data of overview.html.
type overviewData struct {
	Monitor *snapshot // nil if there is no Monitor
	Chart   *chart.View
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
		data.Chart = data.Monitor.chart().Draw("requests of each minute of the last hour")
	}
	if o.targets != nil {
		data.Targets, data.Router = o.targets(), true
	}
	return q.render("overview.html", "Overview", data)
}

// chart returns a chart of the requests of each minute.
func (s *snapshot) chart() *chart.Chart {
	succeeded, refused := chart.Series{Name: "succeeded"}, chart.Series{Name: "refused by a limit"}
	left, failed := chart.Series{Name: "client left"}, chart.Series{Name: "failed", Errors: true}
	c := &chart.Chart{Format: pages.FormatCount, Tick: chart.ShortCount}
	for _, m := range s.minutes {
		at := m.time.Format("15:04")
		c.Labels = append(c.Labels, chart.Label{Axis: at, Name: at})
		succeeded.Values = append(succeeded.Values, m.succeeded)
		refused.Values = append(refused.Values, m.refused)
		left.Values = append(left.Values, m.left)
		failed.Values = append(failed.Values, m.failed)
	}
	c.Series = []chart.Series{succeeded, refused, left, failed}
	return c
}
