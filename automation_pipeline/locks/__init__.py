"""Permits and rate limits in Redis: the same ports as in `storage`, for installations that have one."""
