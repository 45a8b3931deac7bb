"""The names of what is counted about schedules and jobs."""

FIRES = "schedules_fire_count_total"
LATENCY_MS = "schedules_fire_latency_ms"
DURATION_MS = "job_run_duration_ms"
RETRIES = "job_run_retries_total"
STALE_RUNS = "job_run_stale_total"
ENDED_RUNS = "job_run_count_total"
