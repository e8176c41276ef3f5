-- oldest: 1

-- Records wait before they lock the sums, which the statements below lock too.
LOCK TABLE llmhttp_usage_records IN SHARE ROW EXCLUSIVE MODE;

-- For reports about a few days.
CREATE INDEX llmhttp_usage_days_day ON llmhttp_usage_days (day);
CREATE INDEX llmhttp_usage_key_days_day ON llmhttp_usage_key_days (day);

-- Sums of the records of all accounts by day.
CREATE TABLE llmhttp_usage_totals (
	day               bigint NOT NULL, -- the time of its first microsecond
	model             text COLLATE "C" NOT NULL,
	requests          bigint NOT NULL,
	prompt_tokens     bigint NOT NULL,
	completion_tokens bigint NOT NULL,
	cached_tokens     bigint NOT NULL,
	reasoning_tokens  bigint NOT NULL,
	images            bigint NOT NULL,
	PRIMARY KEY (day, model)
) WITH (fillfactor = 70);

CREATE FUNCTION llmhttp_add_to_reports() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO llmhttp_usage_totals AS t (day, model, requests, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images)
	SELECT time - ((time % 86400000000) + 86400000000) % 86400000000 AS day, model, count(*),
		llmhttp_bigint(sum(prompt_tokens)), llmhttp_bigint(sum(completion_tokens)), llmhttp_bigint(sum(cached_tokens)), llmhttp_bigint(sum(reasoning_tokens)), llmhttp_bigint(sum(images))
	FROM added GROUP BY day, model ORDER BY day, model
	ON CONFLICT (day, model) DO UPDATE SET
		requests          = llmhttp_bigint(t.requests::numeric          + excluded.requests),
		prompt_tokens     = llmhttp_bigint(t.prompt_tokens::numeric     + excluded.prompt_tokens),
		completion_tokens = llmhttp_bigint(t.completion_tokens::numeric + excluded.completion_tokens),
		cached_tokens     = llmhttp_bigint(t.cached_tokens::numeric     + excluded.cached_tokens),
		reasoning_tokens  = llmhttp_bigint(t.reasoning_tokens::numeric  + excluded.reasoning_tokens),
		images            = llmhttp_bigint(t.images::numeric            + excluded.images);
	RETURN NULL;
END
$$;
CREATE TRIGGER llmhttp_add_to_reports AFTER INSERT ON llmhttp_usage_records
	REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION llmhttp_add_to_reports();

INSERT INTO llmhttp_usage_totals (day, model, requests, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images)
SELECT day, model, llmhttp_bigint(sum(requests)), llmhttp_bigint(sum(prompt_tokens)), llmhttp_bigint(sum(completion_tokens)), llmhttp_bigint(sum(cached_tokens)), llmhttp_bigint(sum(reasoning_tokens)), llmhttp_bigint(sum(images))
FROM llmhttp_usage_days GROUP BY day, model;
