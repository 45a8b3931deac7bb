"""Jobs of organisations in Dagster: the job that does them, what makes them due, what follows them,
and the day."""
