-- oldest: 1
-- Programs of older versions record no protocol.

ALTER TABLE llmhttp_usage_records ADD COLUMN protocol TEXT NOT NULL DEFAULT ''; -- empty if it is not known
