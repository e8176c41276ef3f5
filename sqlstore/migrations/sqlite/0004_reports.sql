-- oldest: 1

-- For searches and filters of keys, which read only the index.
CREATE INDEX llmhttp_keys_list ON llmhttp_keys (created, id, account, name, prefix, suspended, expires, revoked);

-- For reports about a few days, which read only the indexes.
DROP INDEX llmhttp_usage_days_report;
CREATE INDEX llmhttp_usage_days_report ON llmhttp_usage_days (day, account, prompt_tokens, completion_tokens, requests);
CREATE INDEX llmhttp_usage_key_days_report ON llmhttp_usage_key_days (day, account, key_id, prompt_tokens, completion_tokens, requests);

-- Sums of the records of all accounts by day.
CREATE TABLE llmhttp_usage_totals (
	day               INTEGER NOT NULL, -- the time of its first microsecond
	model             TEXT NOT NULL,
	requests          INTEGER NOT NULL,
	prompt_tokens     INTEGER NOT NULL,
	completion_tokens INTEGER NOT NULL,
	cached_tokens     INTEGER NOT NULL,
	reasoning_tokens  INTEGER NOT NULL,
	images            INTEGER NOT NULL,
	PRIMARY KEY (day, model)
) STRICT, WITHOUT ROWID;

-- The tokens that a key used in each block of 32 days. Reports find the keys with
-- the most tokens with it. Negative numbers of tokens count as zero.
CREATE TABLE llmhttp_usage_key_blocks (
	block   INTEGER NOT NULL, -- the time of its first microsecond
	account TEXT NOT NULL,
	key_id  TEXT NOT NULL,
	tokens  INTEGER NOT NULL,
	PRIMARY KEY (block, account, key_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX llmhttp_usage_key_blocks_tokens ON llmhttp_usage_key_blocks (block, tokens);

-- A sum that overflows becomes a REAL, which the cast converts to the nearest
-- INTEGER.
CREATE TRIGGER llmhttp_add_to_reports AFTER INSERT ON llmhttp_usage_records BEGIN
	INSERT INTO llmhttp_usage_totals (day, model, requests, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images)
	VALUES (new.time - ((new.time % 86400000000) + 86400000000) % 86400000000, new.model, 1, new.prompt_tokens, new.completion_tokens, new.cached_tokens, new.reasoning_tokens, new.images)
	ON CONFLICT DO UPDATE SET
		requests          = CAST(requests          + excluded.requests          AS INTEGER),
		prompt_tokens     = CAST(prompt_tokens     + excluded.prompt_tokens     AS INTEGER),
		completion_tokens = CAST(completion_tokens + excluded.completion_tokens AS INTEGER),
		cached_tokens     = CAST(cached_tokens     + excluded.cached_tokens     AS INTEGER),
		reasoning_tokens  = CAST(reasoning_tokens  + excluded.reasoning_tokens  AS INTEGER),
		images            = CAST(images            + excluded.images            AS INTEGER);
	INSERT INTO llmhttp_usage_key_blocks (block, account, key_id, tokens)
	VALUES (new.time - ((new.time % 2764800000000) + 2764800000000) % 2764800000000, new.account, new.key_id,
		CAST(max(new.prompt_tokens, 0) + max(new.completion_tokens, 0) AS INTEGER))
	ON CONFLICT DO UPDATE SET tokens = CAST(tokens + excluded.tokens AS INTEGER);
END;

INSERT INTO llmhttp_usage_totals (day, model, requests, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images)
SELECT day, model, CAST(total(requests) AS INTEGER), CAST(total(prompt_tokens) AS INTEGER), CAST(total(completion_tokens) AS INTEGER), CAST(total(cached_tokens) AS INTEGER), CAST(total(reasoning_tokens) AS INTEGER), CAST(total(images) AS INTEGER)
FROM llmhttp_usage_days GROUP BY day, model;

INSERT INTO llmhttp_usage_key_blocks (block, account, key_id, tokens)
SELECT day - ((day % 2764800000000) + 2764800000000) % 2764800000000 AS block, account, key_id,
	CAST(total(max(prompt_tokens, 0)) + total(max(completion_tokens, 0)) AS INTEGER)
FROM llmhttp_usage_key_days GROUP BY block, account, key_id;
