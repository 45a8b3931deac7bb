"""Why an enrichment came to less, as one text that fits."""

from automation_pipeline.enrichment.domain.error_text import LONGEST, LOST_WORKER, error_text, item
from automation_pipeline.enrichment.domain.vocabulary import ErrorCode, SourceApi


def test_it_is_told_in_the_order_of_the_calls() -> None:
    items = [
        item(SourceApi.INPI, 503, ErrorCode.UPSTREAM_5XX),
        item(SourceApi.RCS, None, ErrorCode.TIMEOUT),
    ]
    assert error_text(items) == "INPI_RNE:503:UPSTREAM_5XX|API_ENTREPRISE_RCS:-:TIMEOUT"


def test_it_is_cut_at_the_last_whole_one() -> None:
    text = error_text(["x" * 999] * 4)
    assert (len(text), text.count("|")) == (1999, 1)
    assert len(text) <= LONGEST


def test_a_worker_that_was_lost_has_no_source() -> None:
    assert LOST_WORKER == "-:-:INTERNAL_ERROR"
