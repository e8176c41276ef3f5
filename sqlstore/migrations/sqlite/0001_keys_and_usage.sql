-- oldest: 1
-- Times are microseconds since 1970 in UTC: datetime(time / 1e6, 'unixepoch').
-- Names that are not valid text are stored as \x and hexadecimal digits.

CREATE TABLE llmhttp_keys (
	id        TEXT PRIMARY KEY,
	account   TEXT NOT NULL,
	name      TEXT NOT NULL,
	prefix    TEXT NOT NULL, -- the beginning of the newest secret
	scopes    TEXT,          -- a JSON array; null means all
	models    TEXT,          -- a JSON array; null means all
	limits    TEXT NOT NULL, -- a JSON object
	expires   INTEGER,       -- null means never
	created   INTEGER NOT NULL,
	last_used INTEGER,
	revoked   INTEGER
) STRICT;
CREATE INDEX llmhttp_keys_created ON llmhttp_keys (created, id);
CREATE INDEX llmhttp_keys_account ON llmhttp_keys (account, created, id);

-- A rotated key has several secrets until the older ones expire.
CREATE TABLE llmhttp_secrets (
	hash    TEXT PRIMARY KEY, -- SHA-256, in hexadecimal
	key_id  TEXT NOT NULL REFERENCES llmhttp_keys,
	expires INTEGER -- null means when the key expires
) STRICT, WITHOUT ROWID;
CREATE INDEX llmhttp_secrets_key ON llmhttp_secrets (key_id);

CREATE TABLE llmhttp_usage_records (
	id                TEXT NOT NULL UNIQUE,
	time              INTEGER NOT NULL,
	account           TEXT NOT NULL,
	key_id            TEXT NOT NULL,
	model             TEXT NOT NULL,
	endpoint          TEXT NOT NULL,
	prompt_tokens     INTEGER NOT NULL,
	completion_tokens INTEGER NOT NULL,
	images            INTEGER NOT NULL,
	estimated         INTEGER NOT NULL
) STRICT;
CREATE INDEX llmhttp_usage_records_account ON llmhttp_usage_records (account, time);
CREATE INDEX llmhttp_usage_records_time ON llmhttp_usage_records (time);

-- Sums of the records by day. Pruning records does not change them.
CREATE TABLE llmhttp_usage_days (
	account           TEXT NOT NULL,
	day               INTEGER NOT NULL, -- the time of its first microsecond
	model             TEXT NOT NULL,
	requests          INTEGER NOT NULL,
	prompt_tokens     INTEGER NOT NULL,
	completion_tokens INTEGER NOT NULL,
	images            INTEGER NOT NULL,
	PRIMARY KEY (account, day, model)
) STRICT, WITHOUT ROWID;

-- The value named pruned is a time; records from before it may be missing.
CREATE TABLE llmhttp_state (
	name  TEXT PRIMARY KEY,
	value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
