// Package console is a web console for API keys, usage and the state of a server.
// It is an http.Handler that a host mounts beside its API, over the stores that
// it already has.
//
//	keys := ... // a manage.KeyManager, such as a sqlstore.Store
//	monitor := console.NewMonitor()
//	api := llmhttp.NewHandler(backend, console.NewKeyStore(keys), &llmhttp.Options{Usage: usage, Observe: monitor.Observe})
//	c, err := console.New(keys, &console.Options{
//		SignIn:  &console.SignIn{Admins: map[string]string{"ada": hash}},
//		Usage:   usage,
//		API:     api,
//		Monitor: monitor,
//	})
//	if err != nil {
//		return err
//	}
//	mux.Handle("/v1/", api)
//	mux.Handle("/console/", c)
//
// # Pages
//
// The overview shows the requests in flight, and the errors, latencies and times
// to the first token of the last hour, which a [Monitor] collects, and the targets
// of a [route.Router]. Further pages list, create, change, rotate, suspend and
// revoke keys, show usage and its cost by day, model, key, account, end user, label and
// part of the cost as a chart, a table and a CSV file, and send requests to the API from
// a playground. Everything but the playground works without JavaScript.
//
// If the KeyManager is a [manage.AccountManager] too, as those of memory and sqlstore are,
// there are pages that list, create and change accounts, with their limits and those of
// each end user, and add to the credit of accounts that are prepaid.
//
// Options that are nil leave out what needs them. Usage must be able to report, as stores of
// memory and sqlstore are, also behind package usagebuffer: see [manage.ReporterOf]. Reports and
// lists have a time limit and wait for each other: see Options.ReportTimeout. A store should read them
// with other connections than what requests of the API wait for, as sqlstore does.
//
// # People
//
// A [UserFunc] of the host, or the console's [SignIn], says who sends a request. People whom
// the UserFunc does not know see a link to Options.LoginURL. A
// [User] with Admin sees and changes everything. Others see the keys, the
// usage, the limits and the credit of their account, for which other accounts and their
// keys do not exist. They can rename
// their keys, and rotate and revoke them. They can create keys only within the
// Grant that the host gives them, and they cannot raise limits. People who have signed
// in with a key can manage and use this key and those that allow no more in any
// respect; see [SignIn.Keys].
//
// # Security
//
// A new secret is in the reply to the form that makes it, and nowhere else: not in
// other pages, logs or URLs. The playground needs no secrets, because the console
// calls the API in the same process on behalf of a key; see [NewKeyStore].
//
// Session cookies are encrypted, HttpOnly and SameSite=Strict, and need TLS except
// on the same machine. Requests from other sites are refused. The
// Content-Security-Policy forbids scripts and styles inside of pages. Attempts to
// sign in are limited, by address and by name: behind a proxy, set
// Options.TrustedProxies. They do not lock out an administrator with a password of
// passwordhash.Generate; see [SignIn] for others. What people change is in an audit log.
package console
