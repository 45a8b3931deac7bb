"""Why an enrichment came to less than all, as one text: `SOURCE:HTTP:ERROR_CODE`, in the order of the calls."""

from collections.abc import Iterable

from automation_pipeline.enrichment.domain.vocabulary import ErrorCode

LONGEST = 2000
NOBODY = "-"


def item(source: str, http_status: int | None, code: ErrorCode) -> str:
    return f"{source}:{NOBODY if http_status is None else http_status}:{code}"


def error_text(items: Iterable[str]) -> str:
    """Cut at the last whole one that fits."""
    text = ""
    for one in items:
        longer = f"{text}|{one}" if text else one
        if len(longer) > LONGEST:
            break
        text = longer
    return text


LOST_WORKER = item(NOBODY, None, ErrorCode.INTERNAL_ERROR)
