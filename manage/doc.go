// Package manage has the interfaces of programs that manage keys and accounts and report
// usage, such as a console or a command:
//
//	reporter, err := manage.ReporterOf(usage) // an llmhttp.UsageStore
//	...
//	report, err := reporter.Report(ctx, manage.ReportQuery{By: manage.ByModel, From: from, To: to})
//
// Stores implement them beside the interfaces of package llmhttp; a [llmhttp.Handler] needs none of
// them. A [ReportBuilder] groups, orders and limits what a [UsageReporter] has read from its
// database.
package manage
