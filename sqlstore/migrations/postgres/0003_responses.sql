-- oldest: 1

-- Responses that clients can continue. The items are in data, with their bodies.
CREATE TABLE llmhttp_responses (
	account text COLLATE "C" NOT NULL,
	id      text COLLATE "C" NOT NULL,
	created bigint NOT NULL,
	expires bigint, -- null means never
	data    bytea NOT NULL,
	PRIMARY KEY (account, id)
);
CREATE INDEX llmhttp_responses_expires ON llmhttp_responses (expires) WHERE expires IS NOT NULL;

-- The responses that have an item. A client may send the same item several times.
CREATE TABLE llmhttp_response_items (
	account  text COLLATE "C" NOT NULL,
	id       text COLLATE "C" NOT NULL,
	response text COLLATE "C" NOT NULL,
	PRIMARY KEY (account, id, response)
);
