// Package servertest starts PostgreSQL and Redis for tests: real servers, on
// free ports of the loopback interface, with their data in temporary folders.
//
// A server lives as long as its test, or as the process if it is shared, and
// ends with the process even when that is killed. One that is not installed
// fails the test: scripts/setup.sh installs both.
package servertest
