"""Why an enrichment came to less, as one text that fits."""

from automation_pipeline.enrichment.models import ErrorCode, SourceApi
from automation_pipeline.enrichment.rules.evaluation import (
    LOST_WORKER,
    MAX_ERROR_LENGTH,
    error_item,
    error_text,
)


def test_it_is_told_in_the_order_of_the_calls() -> None:
    items = [
        error_item(SourceApi.INPI, 503, ErrorCode.UPSTREAM_5XX),
        error_item(SourceApi.RCS, None, ErrorCode.TIMEOUT),
    ]
    assert error_text(items) == "INPI_RNE:503:UPSTREAM_5XX|API_ENTREPRISE_RCS:-:TIMEOUT"


def test_it_is_cut_at_the_last_whole_one() -> None:
    text = error_text(["x" * 999] * 4)
    assert (len(text), text.count("|")) == (1999, 1)
    assert len(text) <= MAX_ERROR_LENGTH


def test_a_worker_that_was_lost_has_no_source() -> None:
    assert LOST_WORKER == "-:-:INTERNAL_ERROR"
