"""The words of the seed: states, sources, error codes, triggers. Their names are a contract."""

from enum import StrEnum

PRODUCER = "M3"
DEFAULT_TENANT = "main"


class SourceApi(StrEnum):
    """In the order in which they are called."""

    SEARCH = "API_RECHERCHE_ENTREPRISES"
    INPI = "INPI_RNE"
    RCS = "API_ENTREPRISE_RCS"


REQUIRED_SOURCES = (SourceApi.SEARCH,)
OPTIONAL_SOURCES = (SourceApi.INPI, SourceApi.RCS)


class ErrorCode(StrEnum):
    MISSING_COMPANY_IDENTIFIER = "MISSING_COMPANY_IDENTIFIER"
    INVALID_SIREN_FORMAT = "INVALID_SIREN_FORMAT"
    INVALID_SIRET_FORMAT = "INVALID_SIRET_FORMAT"
    SIREN_SIRET_MISMATCH = "SIREN_SIRET_MISMATCH"
    AUTH_ERROR = "AUTH_ERROR"
    FORBIDDEN = "FORBIDDEN"
    NOT_FOUND = "NOT_FOUND"
    RATE_LIMIT = "RATE_LIMIT"
    TIMEOUT = "TIMEOUT"
    UPSTREAM_5XX = "UPSTREAM_5XX"
    SOURCE_UNAVAILABLE = "SOURCE_UNAVAILABLE"
    INTERNAL_ERROR = "INTERNAL_ERROR"


class Trigger(StrEnum):
    REQUEST_CREATED = "REQUEST_CREATED"
    REQUEST_OPENED = "REQUEST_OPENED"
    MANUAL_REFRESH = "MANUAL_REFRESH"
    STALE_SWEEP = "STALE_SWEEP"


class DocumentType(StrEnum):
    ENTERPRISE_SEARCH = "ENTERPRISE_SEARCH"
    RNE_FORMALITY = "RNE_FORMALITY"
    RCS_EXTRACT = "RCS_EXTRACT"


DOCUMENT_TYPES = {
    SourceApi.SEARCH: DocumentType.ENTERPRISE_SEARCH,
    SourceApi.INPI: DocumentType.RNE_FORMALITY,
    SourceApi.RCS: DocumentType.RCS_EXTRACT,
}


class CallStatus(StrEnum):
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"


class JobState(StrEnum):
    """PENDING: asked for. RUNNING: begun, maybe by somebody who died. DONE: its outcome is the enrichment's status."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    DONE = "DONE"


class Asked(StrEnum):
    """What became of a request for enrichment."""

    CACHE_HIT = "CACHE_HIT"
    ATTACHED = "ATTACHED"
    ENQUEUED = "ENQUEUED"
