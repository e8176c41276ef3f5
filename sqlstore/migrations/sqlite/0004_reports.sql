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
END;

INSERT INTO llmhttp_usage_totals (day, model, requests, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images)
SELECT day, model, CAST(total(requests) AS INTEGER), CAST(total(prompt_tokens) AS INTEGER), CAST(total(completion_tokens) AS INTEGER), CAST(total(cached_tokens) AS INTEGER), CAST(total(reasoning_tokens) AS INTEGER), CAST(total(images) AS INTEGER)
FROM llmhttp_usage_days GROUP BY day, model;
