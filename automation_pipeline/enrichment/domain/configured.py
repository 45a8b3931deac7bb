"""Whether anybody can be asked at all."""

from collections.abc import Container

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.enrichment.domain.vocabulary import REQUIRED_SOURCES, SourceApi

NOT_CONFIGURED = "RECHERCHE_ENTREPRISES_BASE_URL is not set: it is the register without which no company is found."


def is_configured(sources: Container[SourceApi]) -> bool:
    return all(source in sources for source in REQUIRED_SOURCES)


def check_configured(sources: Container[SourceApi]) -> None:
    """PermanentError: without its required source an enrichment can only fail."""
    if not is_configured(sources):
        raise PermanentError(NOT_CONFIGURED)
