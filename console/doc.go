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
//
// # Several processes
//
// The overview and the page of the audit log are those of one process; Options.Audit receives every entry.
// So are the limits of sign-in attempts, the addresses from which administrators have signed in, which a
// restart forgets, sessions that were ended by signing out, and the memory of forms: one that is sent
// again to another process makes another secret. A form for credit that is sent again adds nothing, but
// has a second entry in the audit log, with the same ID.
//
// # What is left out
//
//   - A browser is known for one administrator. If two sign in with it, only the last has its way in while
//     others attack the name.
//   - Keys are compared limit by limit, so several keys within that of a person can allow more together. A
//     quota is within another only if its period contains the other's, whatever the amounts are.
//   - The playground names no end user: a key whose account has a quota for each needs {"user": "NAME"} in
//     "Other parameters". It offers at most 50 keys. To people who have signed in with a key it offers those
//     among the 1000 newest of the account that are within theirs; the search and the page of a key find
//     older ones.
//   - The page of usage shows the 25 keys with the most tokens, and at most seven series in a chart; a CSV file has
//     every key, which takes seconds with 100,000. With sqlstore the page takes up to a second if the
//     period has a million sums by key, day and model.
//   - Usage of a key is that for its present account.
package console
