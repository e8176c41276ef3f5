// Package sqlstore stores API keys, accounts, usage and responses in a SQL database:
// SQLite for one machine, PostgreSQL for any number of machines.
//
//	store, err := sqlstore.Open(ctx, "/var/lib/llm/llm.db", nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	usage := usagebuffer.New(store, nil)
//	h := llmhttp.NewHandler(backend, store, &llmhttp.Options{Usage: usage})
//
// A [Store] implements [llmhttp.KeyStore], [llmhttp.UsageStore] and
// [responsestore.Store]. Any number of Stores, in any number of processes, can
// share a database. The command github.com/llmhttp/llmhttp/llmhttpctl manages keys and
// accounts and prints usage.
//
// # Keys
//
// [Store.CreateKey] returns the secret of a new key. The secret cannot be
// recovered later: the database holds only its [llmhttp.HashSecret] and a short
// prefix for display. [Store.UpdateKey], [Store.RotateKey] and
// [Store.RevokeKey] change keys.
//
// [Store.Lookup] caches keys for Options.KeyTTL, and caches for as long that a
// secret is unknown. A change takes effect at once in the Store that made it
// and within KeyTTL in others. The time of a key's last use is written once a
// minute.
//
// # Accounts
//
// [Store.CreateAccount] and [Store.UpdateAccount] keep limits that all keys of an account
// share, limits of each of its end users, and labels. [Store.AddCredit] adds to what a prepaid
// account may spend. Keys whose account does not exist work without it. Lookup reads the
// account together with the key, so changes take effect as those of keys do.
//
// # Usage
//
// [Store.Record] stores records and, in the same transaction, adds them to sums
// by account, day and model. It skips records whose ID is already stored.
// [Store.Query] reads the sums, so the cost of a query by whole days does not
// depend on the number of requests. [Store.Report] sums them up over accounts
// and keys. Single records are deleted after
// Options.KeepRecords; see [Store.Prune].
//
// # Durability
//
// If the Store itself is the Usage of [llmhttp.Options], each record is committed before the client
// receives the end of its reply. Committed records survive a crash of the process or of the
// database. If the database does not answer, Record retries for ten seconds while the client waits.
// Then the Handler logs that the record is lost.
//
// Behind a Buffer of package usagebuffer, requests do not wait for the database. A
// process that is killed loses the records that the buffer has not stored yet.
// While the database is unavailable the buffer keeps records until it is full.
// Then it refuses further records, and the Handler logs each of them.
//
// PostgreSQL commits are as durable as its synchronous_commit setting. SQLite
// commits also survive a loss of power, unless the DSN sets another synchronous
// pragma.
//
// # Responses
//
// [Store.SaveResponse] stores a response in one row, and each of its items in a row of
// another table, so that a request reads only what it needs. Responses that have
// expired are not found, and a Store deletes them once an hour; see
// [Store.PruneResponses]. Options.MaxResponseBytes limits what an account stores.
package sqlstore
