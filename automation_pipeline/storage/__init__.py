"""Database mechanisms: engine, transactions, claims, and shared tables (outbox, run requests,
leases, transitions)."""
