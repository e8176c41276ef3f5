-- oldest: 1
-- Times are microseconds since 1970 in UTC: to_timestamp(time / 1e6).
-- Names that are not valid text are stored as \x and hexadecimal digits.

CREATE TABLE llmhttp_keys (
	id        text COLLATE "C" PRIMARY KEY,
	account   text COLLATE "C" NOT NULL,
	name      text NOT NULL,
	prefix    text NOT NULL, -- the beginning of the newest secret
	scopes    text,          -- a JSON array; null means all
	models    text,          -- a JSON array; null means all
	limits    text NOT NULL, -- a JSON object
	expires   bigint,        -- null means never
	created   bigint NOT NULL,
	last_used bigint,
	revoked   bigint
);
CREATE INDEX llmhttp_keys_created ON llmhttp_keys (created, id);
CREATE INDEX llmhttp_keys_account ON llmhttp_keys (account, created, id);

-- A rotated key has several secrets until the older ones expire.
CREATE TABLE llmhttp_secrets (
	hash    text COLLATE "C" PRIMARY KEY, -- SHA-256, in hexadecimal
	key_id  text COLLATE "C" NOT NULL REFERENCES llmhttp_keys,
	expires bigint -- null means when the key expires
);
CREATE INDEX llmhttp_secrets_key ON llmhttp_secrets (key_id);

CREATE TABLE llmhttp_usage_records (
	id                text COLLATE "C" PRIMARY KEY,
	time              bigint NOT NULL,
	account           text COLLATE "C" NOT NULL,
	key_id            text COLLATE "C" NOT NULL,
	model             text COLLATE "C" NOT NULL,
	endpoint          text COLLATE "C" NOT NULL,
	prompt_tokens     bigint NOT NULL,
	completion_tokens bigint NOT NULL,
	images            bigint NOT NULL,
	estimated         boolean NOT NULL
);
CREATE INDEX llmhttp_usage_records_account ON llmhttp_usage_records (account, time);
CREATE INDEX llmhttp_usage_records_time ON llmhttp_usage_records USING brin (time) WITH (autosummarize = on);

-- Sums of the records by day. Pruning records does not change them.
CREATE TABLE llmhttp_usage_days (
	account           text COLLATE "C" NOT NULL,
	day               bigint NOT NULL, -- the time of its first microsecond
	model             text COLLATE "C" NOT NULL,
	requests          bigint NOT NULL,
	prompt_tokens     bigint NOT NULL,
	completion_tokens bigint NOT NULL,
	images            bigint NOT NULL,
	PRIMARY KEY (account, day, model)
) WITH (fillfactor = 70);

-- The value named pruned is a time; records from before it may be missing.
CREATE TABLE llmhttp_state (
	name  text COLLATE "C" PRIMARY KEY,
	value bigint NOT NULL
);

-- llmhttp_bigint converts a sum to bigint. It returns the nearest bound of bigint
-- for a sum outside of its range.
CREATE FUNCTION llmhttp_bigint(numeric) RETURNS bigint LANGUAGE sql IMMUTABLE
	RETURN least(greatest($1, -9223372036854775808), 9223372036854775807)::bigint;
