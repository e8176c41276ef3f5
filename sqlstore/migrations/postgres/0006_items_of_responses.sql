-- oldest: 1
-- Programs of older versions report responses of newer ones as damaged or newer.

-- What a request needs to continue a conversation, so that it can be read without data.
-- Both are null in rows of older programs, whose data has everything.
ALTER TABLE llmhttp_responses ADD COLUMN previous bytea; -- the ID of the response that this one continues
ALTER TABLE llmhttp_responses ADD COLUMN item_bytes bigint; -- the size of the items

CREATE INDEX llmhttp_responses_created ON llmhttp_responses (account, created);
CREATE INDEX llmhttp_response_items_response ON llmhttp_response_items (account, response);

-- The items of responses. Those of older programs are in llmhttp_response_items and in
-- the data of their responses.
CREATE TABLE llmhttp_stored_items (
	account  text COLLATE "C" NOT NULL,
	response text COLLATE "C" NOT NULL,
	position integer NOT NULL, -- from 0; the output follows the input
	id       text COLLATE "C" NOT NULL,
	name     bytea, -- the ID, if id is not enough to tell it
	output   boolean NOT NULL,
	repeated boolean NOT NULL, -- an earlier item of the response has the same ID
	data     bytea NOT NULL,
	PRIMARY KEY (account, response, position)
);
CREATE INDEX llmhttp_stored_items_id ON llmhttp_stored_items (account, id, response) WHERE NOT repeated;

-- The size of all responses of an account is the sum over its slots. There are several so
-- that responses that are saved at the same time need not wait for each other.
CREATE TABLE llmhttp_response_bytes (
	account text COLLATE "C" NOT NULL,
	slot    integer NOT NULL,
	bytes   bigint NOT NULL,
	PRIMARY KEY (account, slot)
) WITH (fillfactor = 70);

-- Triggers count what older programs save and delete, too.
CREATE FUNCTION llmhttp_response_saved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO llmhttp_response_bytes AS b (account, slot, bytes)
	VALUES (new.account, ascii(right(new.id, 1)) & 15, length(new.data) + coalesce(new.item_bytes, 0))
	ON CONFLICT (account, slot) DO UPDATE SET bytes = b.bytes + excluded.bytes;
	RETURN NULL;
END
$$;
CREATE TRIGGER llmhttp_response_saved AFTER INSERT ON llmhttp_responses
	FOR EACH ROW EXECUTE FUNCTION llmhttp_response_saved();

CREATE FUNCTION llmhttp_responses_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	DELETE FROM llmhttp_stored_items i USING gone WHERE i.account = gone.account AND i.response = gone.id;
	DELETE FROM llmhttp_response_items i USING gone WHERE i.account = gone.account AND i.response = gone.id;
	INSERT INTO llmhttp_response_bytes AS b (account, slot, bytes)
	SELECT account, ascii(right(id, 1)) & 15 AS slot, -sum(length(data) + coalesce(item_bytes, 0))
	FROM gone GROUP BY account, slot ORDER BY account, slot
	ON CONFLICT (account, slot) DO UPDATE SET bytes = b.bytes + excluded.bytes;
	RETURN NULL;
END
$$;
CREATE TRIGGER llmhttp_responses_deleted AFTER DELETE ON llmhttp_responses
	REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION llmhttp_responses_deleted();

INSERT INTO llmhttp_response_bytes (account, slot, bytes)
SELECT account, 0, sum(length(data)) FROM llmhttp_responses GROUP BY account;
