"""The database: engine, transactions, and the tables without business words (outbox, requests,
leases, transitions)."""
