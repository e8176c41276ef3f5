// Package sqlstore keeps keys and usage in a database: SQLite for one process
// or a few on one machine, PostgreSQL for a fleet.
//
//	store, err := sqlstore.Open(ctx, "/var/lib/llm/llm.db", nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	usage := llmhttp.NewUsageBuffer(store, 0, 0)
//	h := llmhttp.NewHandler(backend, store, &llmhttp.Options{Usage: usage})
//
// A [Store] is a [llmhttp.KeyStore] and a [llmhttp.UsageStore]. Any number of
// Stores may share a database. The command llmhttpctl, in this module, makes
// keys and shows usage for people.
//
// # Keys
//
// [Store.CreateKey] makes a key and tells its secret once: what is kept is
// [llmhttp.HashSecret] of it, and its first characters for people to see.
// [Store.UpdateKey], [Store.RotateKey] and [Store.RevokeKey] change keys.
//
// [Store.Lookup] asks the database for a key once in Options.KeyTTL, however
// many requests come with it, and as often for a secret that is of no key. A
// change takes effect at once where it was made, and within that time
// elsewhere. When a key was used last is written every minute.
//
// # Usage
//
// [Store.Record] adds records up by account, day and model in the transaction
// that stores them, and skips those that are stored. [Store.Query] reads the
// sums of days: what it takes does not grow with the number of requests.
// Single records are kept for Options.KeepRecords; see [Store.Prune].
//
// # What is lost when
//
// Who passes the Store itself as Usage of [llmhttp.Options] has each record
// committed before the client gets the end of its reply: then it stays, whether
// the process or the database is killed. If the database does not answer, Record
// tries again for ten seconds, for which the client waits; after that, the
// Handler logs that the record is lost.
//
// Behind a [llmhttp.UsageBuffer] requests never wait for the database. A process
// that is killed loses what the buffer has gathered since it last stored: what
// came in its delay, or while it stored. A database that is away loses nothing
// until the buffer is full, which it says with each record that it drops.
//
// PostgreSQL keeps what is committed as its synchronous_commit says, SQLite
// also through a loss of power, unless the DSN says otherwise.
package sqlstore
