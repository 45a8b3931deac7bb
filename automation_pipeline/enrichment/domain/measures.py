"""The names of what is counted about enrichment."""

CALLS = "enrichment_source_calls_total"
ENDED_JOBS = "enrichment_jobs_total"
DURATION_MS = "enrichment_duration_ms"
LATENCY_MS = "enrichment_source_latency_ms"
RATE_LIMITED = "enrichment_rate_limited_total"
ASKED = "enrichment_asked_total"
LOST_LEASES = "enrichment_lost_leases_total"
