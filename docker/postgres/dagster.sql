-- Dagster's tables are in the same database as the system's own, so that one dump contains both.
CREATE SCHEMA dagster;
