-- oldest: 1
-- Times are microseconds since 1970 in UTC: to_timestamp(time / 1e6).
-- Names that are not valid text are stored as \x and hexadecimal digits.

CREATE TABLE llmhttp_keys (
	id        text COLLATE "C" PRIMARY KEY,
	account   text COLLATE "C" NOT NULL,
	name      text NOT NULL,
	prefix    text NOT NULL, -- the beginning of the newest secret
	scopes    text, -- a JSON array; null means all
	models    text, -- a JSON array; null means all
	limits    text NOT NULL, -- a JSON object
	suspended boolean NOT NULL,
	expires   bigint, -- null means never
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

-- What keys of an account share. Keys may name accounts that are not here.
CREATE TABLE llmhttp_accounts (
	id        text COLLATE "C" PRIMARY KEY,
	name      text NOT NULL,
	limits    text NOT NULL, -- a JSON object
	per_user  text NOT NULL, -- a JSON object; the limits of each end user
	labels    text NOT NULL, -- a JSON object; empty means none
	prepaid   boolean NOT NULL,
	suspended boolean NOT NULL,
	created   bigint NOT NULL
);
CREATE INDEX llmhttp_accounts_created ON llmhttp_accounts (created, id);

-- The credit of accounts. Rows do not change.
CREATE TABLE llmhttp_credit (
	id      text COLLATE "C" PRIMARY KEY,
	account text COLLATE "C" NOT NULL REFERENCES llmhttp_accounts,
	number  bigint NOT NULL, -- 1 for the first of the account, then 2 and so on
	time    bigint NOT NULL,
	amount  bigint NOT NULL, -- billionths of the currency's unit
	total   bigint NOT NULL, -- the sum of the amounts of the account up to this one
	note    text NOT NULL,
	UNIQUE (account, number)
);

-- Names of llmhttp.UsageRecord and of its Units. Costs are billionths of the currency's unit.
CREATE TABLE llmhttp_usage_records (
	id                      text COLLATE "C" PRIMARY KEY,
	request_id              text COLLATE "C" NOT NULL,
	part                    integer NOT NULL, -- 0 for the first record of a request
	time                    bigint NOT NULL,
	account                 text COLLATE "C" NOT NULL,
	key_id                  text COLLATE "C" NOT NULL,
	end_user                text COLLATE "C" NOT NULL,
	subjects                text NOT NULL, -- a JSON array of objects with kind and id; empty means none
	labels                  text NOT NULL, -- a JSON object; empty means none
	protocol                text COLLATE "C" NOT NULL,
	operation               text COLLATE "C" NOT NULL,
	model                   text COLLATE "C" NOT NULL, -- the name that the client used
	served_model            text COLLATE "C" NOT NULL,
	target                  text COLLATE "C" NOT NULL,
	service_tier            text COLLATE "C" NOT NULL,
	image_size              text COLLATE "C" NOT NULL,
	image_quality           text COLLATE "C" NOT NULL,
	error_class             text COLLATE "C" NOT NULL, -- why the request failed; empty if it did not
	estimated               boolean NOT NULL,
	unpriced                boolean NOT NULL,
	prompt_tokens           bigint NOT NULL,
	cached_tokens           bigint NOT NULL,
	cache_write_tokens      bigint NOT NULL,
	cache_writes            text NOT NULL, -- a JSON object of tokens by lifetime, such as 5m or 1h; empty means none
	prompt_audio_tokens     bigint NOT NULL,
	prompt_image_tokens     bigint NOT NULL,
	completion_tokens       bigint NOT NULL,
	reasoning_tokens        bigint NOT NULL,
	completion_audio_tokens bigint NOT NULL,
	images                  bigint NOT NULL,
	audio_millis            bigint NOT NULL,
	characters              bigint NOT NULL,
	search_units            bigint NOT NULL,
	cost_input              bigint NOT NULL,
	cost_cache_read         bigint NOT NULL,
	cost_cache_write        bigint NOT NULL,
	cost_output             bigint NOT NULL,
	cost_other              bigint NOT NULL
);
CREATE INDEX llmhttp_usage_records_account ON llmhttp_usage_records (account, time);
CREATE INDEX llmhttp_usage_records_user ON llmhttp_usage_records (end_user, account, time) WHERE end_user <> '';
CREATE INDEX llmhttp_usage_records_time ON llmhttp_usage_records USING brin (time) WITH (autosummarize = on);

-- Sums of the records by day, which the statements that insert records add to. Pruning records
-- does not change them, except that it adds up those of an end user by month.
CREATE TABLE llmhttp_usage_sums (
	kind                    text COLLATE "C" NOT NULL, -- what has used it: key, account, user, the kind of another subject, or empty for all accounts together
	account                 text COLLATE "C" NOT NULL, -- empty if kind is empty
	subject                 text COLLATE "C" NOT NULL, -- the ID of the key, end user or other subject; empty for accounts, for all, and for the requests of an account that name no end user
	day                     bigint NOT NULL, -- the time of its first microsecond
	model                   text COLLATE "C" NOT NULL,
	requests                bigint NOT NULL,
	unpriced                bigint NOT NULL,
	prompt_tokens           bigint NOT NULL,
	cached_tokens           bigint NOT NULL,
	cache_write_tokens      bigint NOT NULL,
	cache_writes            text NOT NULL, -- a JSON object of tokens by lifetime, such as 5m or 1h; empty means none
	prompt_audio_tokens     bigint NOT NULL,
	prompt_image_tokens     bigint NOT NULL,
	completion_tokens       bigint NOT NULL,
	reasoning_tokens        bigint NOT NULL,
	completion_audio_tokens bigint NOT NULL,
	images                  bigint NOT NULL,
	audio_millis            bigint NOT NULL,
	characters              bigint NOT NULL,
	search_units            bigint NOT NULL,
	cost_input              bigint NOT NULL,
	cost_cache_read         bigint NOT NULL,
	cost_cache_write        bigint NOT NULL,
	cost_output             bigint NOT NULL,
	cost_other              bigint NOT NULL,
	PRIMARY KEY (kind, account, subject, day, model)
) WITH (fillfactor = 70);
-- For reports about a few days, also on a key or an end user of any account.
CREATE INDEX llmhttp_usage_sums_day ON llmhttp_usage_sums (kind, day, subject);

-- The value named pruned is a time; records from before it may be missing. That named user_months
-- is the end of the months for which the sums of end users were added up.
CREATE TABLE llmhttp_state (
	name  text COLLATE "C" PRIMARY KEY,
	value bigint NOT NULL
);

-- Quotas of which a share was used in a period, so that it is told once.
CREATE TABLE llmhttp_quota_events (
	id      text COLLATE "C" PRIMARY KEY, -- quotawatch.Event.ID
	claimed bigint, -- until when a process has claimed it; null means that it was handled
	keep    bigint -- until when the row is kept; null means forever
);
CREATE INDEX llmhttp_quota_events_keep ON llmhttp_quota_events (keep) WHERE keep IS NOT NULL;

-- llmhttp_bigint converts a sum to bigint. It returns the nearest bound of bigint
-- for a sum outside of its range.
CREATE FUNCTION llmhttp_bigint(numeric) RETURNS bigint LANGUAGE sql IMMUTABLE
	RETURN least(greatest($1, -9223372036854775808), 9223372036854775807)::bigint;

-- llmhttp_add_cache_writes adds two values of cache_writes. It keeps the 8 shortest lifetimes, so that
-- a sum does not depend on its order.
CREATE FUNCTION llmhttp_add_cache_writes(text, text) RETURNS text LANGUAGE sql IMMUTABLE
	RETURN CASE WHEN $1 = '' THEN $2 WHEN $2 = '' THEN $1 ELSE (
		SELECT json_object_agg(lifetime, tokens)::text FROM (
			SELECT key AS lifetime, llmhttp_bigint(sum(value::numeric)) AS tokens
			FROM (SELECT * FROM json_each_text($1::json) UNION ALL SELECT * FROM json_each_text($2::json)) AS e
			GROUP BY key ORDER BY left(key, -1)::numeric * CASE right(key, 1) WHEN 'h' THEN 3600 WHEN 'm' THEN 60 ELSE 1 END LIMIT 8
		) AS s
	) END;
CREATE AGGREGATE llmhttp_sum_cache_writes(text) (SFUNC = llmhttp_add_cache_writes, STYPE = text, INITCOND = '');

-- Responses that clients can continue. What a request needs to continue a conversation can be
-- read without data.
CREATE TABLE llmhttp_responses (
	account     text COLLATE "C" NOT NULL,
	id          text COLLATE "C" NOT NULL,
	created     bigint NOT NULL,
	expires     bigint, -- null means never
	previous    bytea NOT NULL, -- the ID of the response that this one continues
	item_bytes  bigint NOT NULL, -- the size of the items
	data        bytea NOT NULL,
	PRIMARY KEY (account, id)
);
CREATE INDEX llmhttp_responses_expires ON llmhttp_responses (expires) WHERE expires IS NOT NULL;
CREATE INDEX llmhttp_responses_created ON llmhttp_responses (account, created);

-- The items of responses. A client may send the same item several times.
CREATE TABLE llmhttp_response_items (
	account     text COLLATE "C" NOT NULL,
	response    text COLLATE "C" NOT NULL,
	position    integer NOT NULL, -- from 0; the output follows the input
	id          text COLLATE "C" NOT NULL,
	name        bytea, -- the ID, if id is not enough to tell it
	output      boolean NOT NULL,
	repeated    boolean NOT NULL, -- an earlier item of the response has the same ID
	data        bytea NOT NULL,
	PRIMARY KEY (account, response, position)
);
CREATE INDEX llmhttp_response_items_id ON llmhttp_response_items (account, id, response) WHERE NOT repeated;

-- The size of all responses of an account is the sum over its slots. There are several so
-- that responses that are saved at the same time need not wait for each other.
CREATE TABLE llmhttp_response_bytes (
	account text COLLATE "C" NOT NULL,
	slot    integer NOT NULL,
	bytes   bigint NOT NULL,
	PRIMARY KEY (account, slot)
) WITH (fillfactor = 70);

-- Triggers keep the items and the sizes, because several statements delete responses.
CREATE FUNCTION llmhttp_response_saved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO llmhttp_response_bytes AS b (account, slot, bytes)
	VALUES (new.account, ascii(right(new.id, 1)) & 15, length(new.data) + new.item_bytes)
	ON CONFLICT (account, slot) DO UPDATE SET bytes = b.bytes + excluded.bytes;
	RETURN NULL;
END
$$;
CREATE TRIGGER llmhttp_response_saved AFTER INSERT ON llmhttp_responses
	FOR EACH ROW EXECUTE FUNCTION llmhttp_response_saved();

CREATE FUNCTION llmhttp_responses_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	DELETE FROM llmhttp_response_items i USING gone WHERE i.account = gone.account AND i.response = gone.id;
	INSERT INTO llmhttp_response_bytes AS b (account, slot, bytes)
	SELECT account, ascii(right(id, 1)) & 15 AS slot, -sum(length(data) + item_bytes)
	FROM gone GROUP BY account, slot ORDER BY account, slot
	ON CONFLICT (account, slot) DO UPDATE SET bytes = b.bytes + excluded.bytes;
	RETURN NULL;
END
$$;
CREATE TRIGGER llmhttp_responses_deleted AFTER DELETE ON llmhttp_responses
	REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION llmhttp_responses_deleted();
