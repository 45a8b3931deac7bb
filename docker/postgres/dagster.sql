-- Dagster's tables beside ours: one dump holds both at the same moment.
CREATE SCHEMA dagster;
