-- oldest: 1
-- Programs of version 1 record no cached and reasoning tokens, and admit suspended keys.

ALTER TABLE llmhttp_schema ADD COLUMN oldest integer NOT NULL DEFAULT 1; -- the version of the oldest program that can use the schema

ALTER TABLE llmhttp_keys ADD COLUMN suspended boolean NOT NULL DEFAULT false;
ALTER TABLE llmhttp_usage_records ADD COLUMN cached_tokens bigint NOT NULL DEFAULT 0; -- of prompt_tokens
ALTER TABLE llmhttp_usage_records ADD COLUMN reasoning_tokens bigint NOT NULL DEFAULT 0; -- of completion_tokens
ALTER TABLE llmhttp_usage_days ADD COLUMN cached_tokens bigint NOT NULL DEFAULT 0;
ALTER TABLE llmhttp_usage_days ADD COLUMN reasoning_tokens bigint NOT NULL DEFAULT 0;

-- Sums of the records by key and day. Pruning records does not change them.
CREATE TABLE llmhttp_usage_key_days (
	account           text COLLATE "C" NOT NULL,
	key_id            text COLLATE "C" NOT NULL,
	day               bigint NOT NULL, -- the time of its first microsecond
	model             text COLLATE "C" NOT NULL,
	requests          bigint NOT NULL,
	prompt_tokens     bigint NOT NULL,
	completion_tokens bigint NOT NULL,
	cached_tokens     bigint NOT NULL,
	reasoning_tokens  bigint NOT NULL,
	images            bigint NOT NULL,
	PRIMARY KEY (account, key_id, day, model)
) WITH (fillfactor = 70);

-- A trigger adds to the sums, so that they include the records of programs of
-- version 1.
CREATE FUNCTION llmhttp_add_to_key_days() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO llmhttp_usage_key_days AS d (account, key_id, day, model, requests, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images)
	SELECT account, key_id, time - ((time % 86400000000) + 86400000000) % 86400000000 AS day, model, count(*),
		llmhttp_bigint(sum(prompt_tokens)), llmhttp_bigint(sum(completion_tokens)), llmhttp_bigint(sum(cached_tokens)), llmhttp_bigint(sum(reasoning_tokens)), llmhttp_bigint(sum(images))
	FROM added GROUP BY account, key_id, day, model ORDER BY account, key_id, day, model
	ON CONFLICT (account, key_id, day, model) DO UPDATE SET
		requests          = llmhttp_bigint(d.requests::numeric          + excluded.requests),
		prompt_tokens     = llmhttp_bigint(d.prompt_tokens::numeric     + excluded.prompt_tokens),
		completion_tokens = llmhttp_bigint(d.completion_tokens::numeric + excluded.completion_tokens),
		cached_tokens     = llmhttp_bigint(d.cached_tokens::numeric     + excluded.cached_tokens),
		reasoning_tokens  = llmhttp_bigint(d.reasoning_tokens::numeric     + excluded.reasoning_tokens),
		images            = llmhttp_bigint(d.images::numeric            + excluded.images);
	RETURN NULL;
END
$$;
CREATE TRIGGER llmhttp_add_to_key_days AFTER INSERT ON llmhttp_usage_records
	REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION llmhttp_add_to_key_days();

INSERT INTO llmhttp_usage_key_days
SELECT account, key_id, time - ((time % 86400000000) + 86400000000) % 86400000000 AS day, model, count(*),
	llmhttp_bigint(sum(prompt_tokens)), llmhttp_bigint(sum(completion_tokens)), 0, 0, llmhttp_bigint(sum(images))
FROM llmhttp_usage_records GROUP BY account, key_id, day, model;
