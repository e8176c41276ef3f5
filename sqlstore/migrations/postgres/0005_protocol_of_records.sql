-- oldest: 1
-- Programs of older versions record no protocol.

ALTER TABLE llmhttp_usage_records ADD COLUMN protocol text COLLATE "C" NOT NULL DEFAULT ''; -- empty if it is not known
