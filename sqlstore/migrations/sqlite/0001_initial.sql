-- oldest: 1
-- Times are microseconds since 1970 in UTC: datetime(time / 1e6, 'unixepoch').
-- Names that are not valid text are stored as \x and hexadecimal digits.

CREATE TABLE llmhttp_keys (
	id        TEXT PRIMARY KEY,
	account   TEXT NOT NULL,
	name      TEXT NOT NULL,
	prefix    TEXT NOT NULL, -- the beginning of the newest secret
	scopes    TEXT, -- a JSON array; null means all
	models    TEXT, -- a JSON array; null means all
	limits    TEXT NOT NULL, -- a JSON object
	suspended INTEGER NOT NULL,
	expires   INTEGER, -- null means never
	created   INTEGER NOT NULL,
	last_used INTEGER,
	revoked   INTEGER
) STRICT;
CREATE INDEX llmhttp_keys_created ON llmhttp_keys (created, id);
CREATE INDEX llmhttp_keys_account ON llmhttp_keys (account, created, id);
-- For searches and filters of keys, which read only the index.
CREATE INDEX llmhttp_keys_list ON llmhttp_keys (created, id, account, name, prefix, suspended, expires, revoked);

-- A rotated key has several secrets until the older ones expire.
CREATE TABLE llmhttp_secrets (
	hash    TEXT PRIMARY KEY, -- SHA-256, in hexadecimal
	key_id  TEXT NOT NULL REFERENCES llmhttp_keys,
	expires INTEGER -- null means when the key expires
) STRICT, WITHOUT ROWID;
CREATE INDEX llmhttp_secrets_key ON llmhttp_secrets (key_id);

-- What keys of an account share. Keys may name accounts that are not here.
CREATE TABLE llmhttp_accounts (
	id        TEXT PRIMARY KEY,
	name      TEXT NOT NULL,
	limits    TEXT NOT NULL, -- a JSON object
	per_user  TEXT NOT NULL, -- a JSON object; the limits of each end user
	labels    TEXT NOT NULL, -- a JSON object; empty means none
	prepaid   INTEGER NOT NULL,
	suspended INTEGER NOT NULL,
	created   INTEGER NOT NULL
) STRICT;
-- For lists of accounts, of which searches and filters read only the index.
CREATE INDEX llmhttp_accounts_list ON llmhttp_accounts (created, id, name, suspended);

-- The credit of accounts. Rows do not change.
CREATE TABLE llmhttp_credit (
	id      TEXT PRIMARY KEY,
	account TEXT NOT NULL REFERENCES llmhttp_accounts,
	number  INTEGER NOT NULL, -- 1 for the first of the account, then 2 and so on
	time    INTEGER NOT NULL,
	amount  INTEGER NOT NULL, -- billionths of the currency's unit
	total   INTEGER NOT NULL, -- the sum of the amounts of the account up to this one
	note    TEXT NOT NULL,
	UNIQUE (account, number)
) STRICT;

-- Names of llmhttp.UsageRecord and of its Units. Costs are billionths of the currency's unit.
CREATE TABLE llmhttp_usage_records (
	id                      TEXT NOT NULL UNIQUE,
	request_id              TEXT NOT NULL,
	part                    INTEGER NOT NULL, -- 0 for the first record of a request
	time                    INTEGER NOT NULL,
	account                 TEXT NOT NULL,
	key_id                  TEXT NOT NULL,
	end_user                TEXT NOT NULL,
	subjects                TEXT NOT NULL, -- a JSON array of objects with kind and id; empty means none
	labels                  TEXT NOT NULL, -- a JSON object; empty means none
	protocol                TEXT NOT NULL,
	operation               TEXT NOT NULL,
	model                   TEXT NOT NULL, -- the name that the client used
	served_model            TEXT NOT NULL,
	target                  TEXT NOT NULL,
	service_tier            TEXT NOT NULL,
	image_size              TEXT NOT NULL,
	image_quality           TEXT NOT NULL,
	error_class             TEXT NOT NULL, -- why the request failed; empty if it did not
	estimated               INTEGER NOT NULL,
	unpriced                INTEGER NOT NULL,
	prompt_tokens           INTEGER NOT NULL,
	cached_tokens           INTEGER NOT NULL,
	cache_write_tokens      INTEGER NOT NULL,
	cache_writes            TEXT NOT NULL, -- a JSON object of tokens by lifetime, such as 5m or 1h; empty means none
	prompt_audio_tokens     INTEGER NOT NULL,
	prompt_image_tokens     INTEGER NOT NULL,
	completion_tokens       INTEGER NOT NULL,
	reasoning_tokens        INTEGER NOT NULL,
	completion_audio_tokens INTEGER NOT NULL,
	images                  INTEGER NOT NULL,
	audio_millis            INTEGER NOT NULL,
	characters              INTEGER NOT NULL,
	search_units            INTEGER NOT NULL,
	cost_input              INTEGER NOT NULL,
	cost_cache_read         INTEGER NOT NULL,
	cost_cache_write        INTEGER NOT NULL,
	cost_output             INTEGER NOT NULL,
	cost_other              INTEGER NOT NULL
) STRICT;
CREATE INDEX llmhttp_usage_records_account ON llmhttp_usage_records (account, time);
CREATE INDEX llmhttp_usage_records_user ON llmhttp_usage_records (end_user, account, time) WHERE end_user <> '';
CREATE INDEX llmhttp_usage_records_time ON llmhttp_usage_records (time);

-- Sums of the records by day, which the statements that insert records add to. Pruning records
-- does not change them, except that it adds up those of an end user by month.
CREATE TABLE llmhttp_usage_sums (
	kind                    TEXT NOT NULL, -- what has used it: key, account, user, the kind of another subject, or empty for all accounts together
	account                 TEXT NOT NULL, -- empty if kind is empty
	subject                 TEXT NOT NULL, -- the ID of the key, end user or other subject; empty for accounts, for all, and for the requests of an account that name no end user
	day                     INTEGER NOT NULL, -- the time of its first microsecond
	model                   TEXT NOT NULL,
	requests                INTEGER NOT NULL,
	unpriced                INTEGER NOT NULL,
	prompt_tokens           INTEGER NOT NULL,
	cached_tokens           INTEGER NOT NULL,
	cache_write_tokens      INTEGER NOT NULL,
	cache_writes            TEXT NOT NULL, -- a JSON object of tokens by lifetime, such as 5m or 1h; empty means none
	prompt_audio_tokens     INTEGER NOT NULL,
	prompt_image_tokens     INTEGER NOT NULL,
	completion_tokens       INTEGER NOT NULL,
	reasoning_tokens        INTEGER NOT NULL,
	completion_audio_tokens INTEGER NOT NULL,
	images                  INTEGER NOT NULL,
	audio_millis            INTEGER NOT NULL,
	characters              INTEGER NOT NULL,
	search_units            INTEGER NOT NULL,
	cost_input              INTEGER NOT NULL,
	cost_cache_read         INTEGER NOT NULL,
	cost_cache_write        INTEGER NOT NULL,
	cost_output             INTEGER NOT NULL,
	cost_other              INTEGER NOT NULL,
	PRIMARY KEY (kind, account, subject, day, model)
) STRICT, WITHOUT ROWID;
-- For reports about a few days, which read only the index.
CREATE INDEX llmhttp_usage_sums_day ON llmhttp_usage_sums (
	kind, day, account, subject, requests, prompt_tokens, completion_tokens, cost_input, cost_cache_read, cost_cache_write, cost_output, cost_other
);

-- The value named pruned is a time; records from before it may be missing. That named user_months
-- is the end of the months for which the sums of end users were added up.
CREATE TABLE llmhttp_state (
	name  TEXT PRIMARY KEY,
	value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Quotas of which a share was used in a period, so that it is told once.
CREATE TABLE llmhttp_quota_events (
	id      TEXT PRIMARY KEY, -- quotawatch.Event.ID
	claimed INTEGER, -- until when a process has claimed it; null means that it was handled
	keep    INTEGER -- until when the row is kept; null means forever
) STRICT, WITHOUT ROWID;
CREATE INDEX llmhttp_quota_events_keep ON llmhttp_quota_events (keep) WHERE keep IS NOT NULL;

-- Responses that clients can continue. What a request needs to continue a conversation can be
-- read without data.
CREATE TABLE llmhttp_responses (
	account     TEXT NOT NULL,
	id          TEXT NOT NULL,
	created     INTEGER NOT NULL,
	expires     INTEGER, -- null means never
	previous    BLOB NOT NULL, -- the ID of the response that this one continues
	item_bytes  INTEGER NOT NULL, -- the size of the items
	data        BLOB NOT NULL,
	PRIMARY KEY (account, id)
) STRICT;
CREATE INDEX llmhttp_responses_expires ON llmhttp_responses (expires) WHERE expires IS NOT NULL;
CREATE INDEX llmhttp_responses_created ON llmhttp_responses (account, created);

-- The items of responses. A client may send the same item several times.
CREATE TABLE llmhttp_response_items (
	account     TEXT NOT NULL,
	response    TEXT NOT NULL,
	position    INTEGER NOT NULL, -- from 0; the output follows the input
	id          TEXT NOT NULL,
	name        BLOB, -- the ID, if id is not enough to tell it
	output      INTEGER NOT NULL,
	repeated    INTEGER NOT NULL, -- an earlier item of the response has the same ID
	data        BLOB NOT NULL,
	PRIMARY KEY (account, response, position)
) STRICT;
CREATE INDEX llmhttp_response_items_id ON llmhttp_response_items (account, id, response) WHERE NOT repeated;

-- The size of all responses of an account.
CREATE TABLE llmhttp_response_bytes (
	account TEXT PRIMARY KEY,
	bytes   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Triggers keep the items and the sizes, because several statements delete responses.
CREATE TRIGGER llmhttp_response_saved AFTER INSERT ON llmhttp_responses BEGIN
	INSERT INTO llmhttp_response_bytes (account, bytes) VALUES (new.account, length(new.data) + new.item_bytes)
	ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER llmhttp_response_deleted AFTER DELETE ON llmhttp_responses BEGIN
	DELETE FROM llmhttp_response_items WHERE account = old.account AND response = old.id;
	UPDATE llmhttp_response_bytes SET bytes = bytes - length(old.data) - old.item_bytes WHERE account = old.account;
END;
