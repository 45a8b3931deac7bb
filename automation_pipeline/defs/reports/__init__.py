"""Reports in Dagster: the quality of a day."""
