// Package servertest starts PostgreSQL, PgBouncer and Redis servers for tests. The
// servers listen on free ports of the loopback interface and keep their data in
// temporary directories.
//
// A server ends with its test, or with the process if tests share it, even if the process is
// killed. If a server is not installed, the test fails with a message that names the command that
// installs it.
package servertest
