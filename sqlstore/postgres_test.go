package sqlstore

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/manage"
)

// A Store works behind a PgBouncer that assigns connections to transactions: it
// loses prepared statements and refuses some settings of a session.
func TestOpen_PgBouncer(t *testing.T) {
	postgres := servertest.Postgres(t, servertest.Args("-c", "fsync=off"))
	bouncer := servertest.PgBouncer(t, postgres)
	s := openStore(t, bouncer.DSN(), &Options{KeyTTL: -1})
	info, secret := createKey(t, s, manage.KeyParams{Account: "acme"})
	var running sync.WaitGroup
	for worker := range 8 {
		running.Go(func() {
			for i := range 20 {
				_, err := s.Lookup(t.Context(), secret)
				assert.NoError(t, err)
				assert.NoError(t, s.Record(t.Context(), usageRecord(fmt.Sprint(worker, "-", i), "acme", "m", noon, 1)))
				q := allTime("acme")
				q.Subject = llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: info.ID}
				_, err = s.Query(t.Context(), q)
				assert.NoError(t, err)
				_, err = s.UpdateKey(t.Context(), info.ID, func(p *manage.KeyParams) error { p.Name = fmt.Sprint(worker, i); return nil })
				assert.NoError(t, err)
			}
		})
	}
	running.Wait()
	assert.EqualValues(t, 160, countRequests(mustQuery(t, s, allTime("acme"))))
	require.NoError(t, s.RevokeKey(t.Context(), info.ID))

	_, err := Open(t.Context(), bouncer.DSN()+"&search_path=other", nil)
	assert.ErrorContains(t, err, "unsupported startup parameter: search_path")
}

func TestOpen_WrongPassword(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t, servertest.Args("-c", "fsync=off"))
	admin := openStore(t, server.DSN(), nil)
	for _, statement := range []string{
		"CREATE USER host PASSWORD 'hunter2'",
		"COPY (SELECT 'host all host 127.0.0.1/32 scram-sha-256') TO PROGRAM 'cat >pg_hba.conf'",
		"SELECT pg_reload_conf()",
	} {
		_, err := admin.db.write.Exec(statement)
		require.NoError(t, err)
	}
	dsn := strings.Replace(server.DSN(), "postgres@", "host:hunter3@", 1)
	eventually(t, func() bool { // the server reloads its configuration in the background
		s, err := Open(t.Context(), dsn, nil)
		if err == nil {
			s.Close()
			return false
		}
		assert.NotContains(t, err.Error(), "hunter")
		return strings.Contains(err.Error(), "password authentication failed")
	}, "the password is accepted")
}

func TestOpen_WrongEncoding(t *testing.T) {
	dsn := newPostgres(t)
	s := openStore(t, dsn, nil)
	name := "latin1_" + strings.ToLower(rand.Text())
	_, err := s.db.write.Exec("CREATE DATABASE " + name + " ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
	require.NoError(t, err)
	_, err = Open(t.Context(), strings.Replace(dsn, "/postgres?", "/"+name+"?", 1), nil)
	assert.EqualError(t, err, "sqlstore: the encoding of the database is LATIN1; it must be UTF8")
}

// FuzzParsePostgres_Password checks that no error contains the password.
func FuzzParsePostgres_Password(f *testing.F) {
	for _, password := range []string{"hunter2!", "p@ss:word", "sla/sh?query", "per%cent", `quo'te`, "sp ace", "#fragment", "[::1]:x@", "x@h:99999/"} {
		for _, rest := range []string{"@h/db", "@h:x/db", "@h/db?sslmode=x", "' port=x", " port=x", "@h:70000/db", "@/db?host=%zz"} {
			f.Add(password, rest)
		}
	}
	f.Fuzz(func(t *testing.T, password, rest string) {
		if len(password) < 6 {
			t.Skip("such a password may occur in an error by chance")
		}
		for _, start := range []string{"postgres://u:", "host=h password=", "host=h password='", "postgres://h/db?password=", "mysql://u:"} {
			source, err := parseDSN(start + password + rest)
			if err == nil && source.postgres {
				_, err = parsePostgres(source.address)
			}
			if err == nil {
				continue
			}
			// An error may contain the rest of the DSN and fixed texts.
			harmless := rest + errMalformedDSN.Error() + "sslmode is invalid failed to configure TLS"
			if !strings.Contains(harmless, password) {
				assert.NotContains(t, err.Error(), password, "DSN %q", start+password+rest)
			}
		}
	})
}

// pool_max_conns and ReportConns bound the connections of a process together.
func TestPostgres_BoundedConnections(t *testing.T) {
	dsn := newPostgres(t)
	name := "bounded " + rand.Text()
	s := openStore(t, dsn+"&pool_max_conns=2&application_name="+url.QueryEscape(name), &Options{KeyTTL: -1, ReportConns: 1})
	now := time.Now()
	var running sync.WaitGroup
	for i := range 20 {
		running.Go(func() {
			_, err := s.Lookup(t.Context(), "sk-unknown")
			assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
			assert.NoError(t, s.Record(t.Context(), usageRecord(fmt.Sprint(i), "acme", "m", now, 1)))
			_, err = s.Report(t.Context(), manage.ReportQuery{From: now.Add(-day), To: now.Add(day)})
			assert.NoError(t, err)
		})
	}
	running.Wait()
	var conns int
	require.NoError(t, s.db.write.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", name).Scan(&conns))
	assert.LessOrEqual(t, conns, 3)
}
