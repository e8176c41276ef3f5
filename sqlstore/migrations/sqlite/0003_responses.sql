-- oldest: 1

-- Responses that clients can continue. The items are in data, with their bodies.
CREATE TABLE llmhttp_responses (
	account TEXT NOT NULL,
	id      TEXT NOT NULL,
	created INTEGER NOT NULL,
	expires INTEGER, -- null means never
	data    BLOB NOT NULL,
	PRIMARY KEY (account, id)
) STRICT;
CREATE INDEX llmhttp_responses_expires ON llmhttp_responses (expires) WHERE expires IS NOT NULL;

-- The responses that have an item. A client may send the same item several times.
CREATE TABLE llmhttp_response_items (
	account  TEXT NOT NULL,
	id       TEXT NOT NULL,
	response TEXT NOT NULL,
	PRIMARY KEY (account, id, response)
) STRICT, WITHOUT ROWID;
