"""The id that a Dagster run works under: what it was wished for with, or its own."""

import dagster as dg

from automation_pipeline.core.correlation import CORRELATION_TAG, usable_id


def correlation_of(run: dg.DagsterRun) -> str:
    """Tags can be typed in: one that could not stand in a header is not taken."""
    tag = run.tags.get(CORRELATION_TAG)
    return tag if tag and usable_id(tag) == tag else run.run_id
