-- oldest: 1
-- Programs of older versions report responses of newer ones as damaged or newer.

-- What a request needs to continue a conversation, so that it can be read without data.
-- Both are null in rows of older programs, whose data has everything.
ALTER TABLE llmhttp_responses ADD COLUMN previous BLOB; -- the ID of the response that this one continues
ALTER TABLE llmhttp_responses ADD COLUMN item_bytes INTEGER; -- the size of the items

CREATE INDEX llmhttp_responses_created ON llmhttp_responses (account, created);
CREATE INDEX llmhttp_response_items_response ON llmhttp_response_items (account, response);

-- The items of responses. Those of older programs are in llmhttp_response_items and in
-- the data of their responses.
CREATE TABLE llmhttp_stored_items (
	account  TEXT NOT NULL,
	response TEXT NOT NULL,
	position INTEGER NOT NULL, -- from 0; the output follows the input
	id       TEXT NOT NULL,
	name     BLOB, -- the ID, if id is not enough to tell it
	output   INTEGER NOT NULL,
	repeated INTEGER NOT NULL, -- an earlier item of the response has the same ID
	data     BLOB NOT NULL,
	PRIMARY KEY (account, response, position)
) STRICT;
CREATE INDEX llmhttp_stored_items_id ON llmhttp_stored_items (account, id, response) WHERE NOT repeated;

-- The size of all responses of an account.
CREATE TABLE llmhttp_response_bytes (
	account TEXT PRIMARY KEY,
	bytes   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Triggers count what older programs save and delete, too.
CREATE TRIGGER llmhttp_response_saved AFTER INSERT ON llmhttp_responses BEGIN
	INSERT INTO llmhttp_response_bytes (account, bytes) VALUES (new.account, length(new.data) + coalesce(new.item_bytes, 0))
	ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER llmhttp_response_deleted AFTER DELETE ON llmhttp_responses BEGIN
	DELETE FROM llmhttp_stored_items WHERE account = old.account AND response = old.id;
	DELETE FROM llmhttp_response_items WHERE account = old.account AND response = old.id;
	UPDATE llmhttp_response_bytes SET bytes = bytes - length(old.data) - coalesce(old.item_bytes, 0) WHERE account = old.account;
END;

INSERT INTO llmhttp_response_bytes (account, bytes)
SELECT account, sum(length(data)) FROM llmhttp_responses GROUP BY account;
