-- oldest: 1
-- Programs of version 1 record no cached and reasoning tokens, and admit suspended keys.

ALTER TABLE llmhttp_schema ADD COLUMN oldest INTEGER NOT NULL DEFAULT 1; -- the version of the oldest program that can use the schema

ALTER TABLE llmhttp_keys ADD COLUMN suspended INTEGER NOT NULL DEFAULT 0;
ALTER TABLE llmhttp_usage_records ADD COLUMN cached_tokens INTEGER NOT NULL DEFAULT 0; -- of prompt_tokens
ALTER TABLE llmhttp_usage_records ADD COLUMN reasoning_tokens INTEGER NOT NULL DEFAULT 0; -- of completion_tokens
ALTER TABLE llmhttp_usage_days ADD COLUMN cached_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE llmhttp_usage_days ADD COLUMN reasoning_tokens INTEGER NOT NULL DEFAULT 0;

-- For reports about all accounts, which read only the index.
CREATE INDEX llmhttp_usage_days_report ON llmhttp_usage_days
	(day, model, account, requests, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images);

-- Sums of the records by key and day. Pruning records does not change them.
CREATE TABLE llmhttp_usage_key_days (
	account           TEXT NOT NULL,
	key_id            TEXT NOT NULL,
	day               INTEGER NOT NULL, -- the time of its first microsecond
	model             TEXT NOT NULL,
	requests          INTEGER NOT NULL,
	prompt_tokens     INTEGER NOT NULL,
	completion_tokens INTEGER NOT NULL,
	cached_tokens     INTEGER NOT NULL,
	reasoning_tokens  INTEGER NOT NULL,
	images            INTEGER NOT NULL,
	PRIMARY KEY (account, key_id, day, model)
) STRICT, WITHOUT ROWID;

-- A trigger adds to the sums, so that they include the records of programs of
-- version 1. A sum that overflows becomes a REAL, which the cast converts to the
-- nearest INTEGER.
CREATE TRIGGER llmhttp_add_to_key_days AFTER INSERT ON llmhttp_usage_records BEGIN
	INSERT INTO llmhttp_usage_key_days (account, key_id, day, model, requests, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images)
	VALUES (new.account, new.key_id, new.time - ((new.time % 86400000000) + 86400000000) % 86400000000, new.model,
		1, new.prompt_tokens, new.completion_tokens, new.cached_tokens, new.reasoning_tokens, new.images)
	ON CONFLICT DO UPDATE SET
		requests          = CAST(requests          + excluded.requests          AS INTEGER),
		prompt_tokens     = CAST(prompt_tokens     + excluded.prompt_tokens     AS INTEGER),
		completion_tokens = CAST(completion_tokens + excluded.completion_tokens AS INTEGER),
		cached_tokens     = CAST(cached_tokens     + excluded.cached_tokens     AS INTEGER),
		reasoning_tokens  = CAST(reasoning_tokens  + excluded.reasoning_tokens  AS INTEGER),
		images            = CAST(images            + excluded.images            AS INTEGER);
END;

INSERT INTO llmhttp_usage_key_days (account, key_id, day, model, requests, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images)
SELECT account, key_id, time - ((time % 86400000000) + 86400000000) % 86400000000, model, 1, prompt_tokens, completion_tokens, 0, 0, images
FROM llmhttp_usage_records WHERE true -- or ON would begin the condition of a join
	ON CONFLICT DO UPDATE SET
		requests          = CAST(requests          + excluded.requests          AS INTEGER),
		prompt_tokens     = CAST(prompt_tokens     + excluded.prompt_tokens     AS INTEGER),
		completion_tokens = CAST(completion_tokens + excluded.completion_tokens AS INTEGER),
		cached_tokens     = CAST(cached_tokens     + excluded.cached_tokens     AS INTEGER),
		reasoning_tokens  = CAST(reasoning_tokens  + excluded.reasoning_tokens  AS INTEGER),
		images            = CAST(images            + excluded.images            AS INTEGER);
