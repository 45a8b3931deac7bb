"""From what the sources say to one snapshot: by field, the first that says something; what nobody says stays."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from automation_pipeline.enrichment.domain.identifiers import Identifiers
from automation_pipeline.enrichment.domain.record import FIELDS, CompanyFields, Snapshot, SourceRecord
from automation_pipeline.enrichment.domain.vocabulary import SourceApi

_SEARCH, _INPI, _RCS = SourceApi.SEARCH, SourceApi.INPI, SourceApi.RCS
_AS_CALLED = (_SEARCH, _INPI, _RCS)

PRIORITY: Mapping[str, tuple[SourceApi, ...]] = MappingProxyType(
    dict.fromkeys(FIELDS, _AS_CALLED)
    | dict.fromkeys(("legal_form", "creation_date"), (_INPI, _SEARCH, _RCS))
    | {"country_code": (_INPI, _SEARCH)}
    | dict.fromkeys(("siret", "naf_label", "headcount_range"), (_SEARCH,))
    | dict.fromkeys(("rcs_city", "registry_name"), (_RCS, _INPI))
)


def merged(
    before: Snapshot | None,
    records: Mapping[SourceApi, SourceRecord],
    identifiers: Identifiers,
    locked: Collection[str] = (),
    failed: Collection[SourceApi] = (),
) -> Snapshot:
    """What nobody says now is kept as it was, and so is what a user has locked, or a source has said that comes first
    and could not be asked now."""
    said: dict[str, Any] = {}  # Any: a field is a text or a day
    sources = dict(before.sources) if before else {}
    for field in FIELDS:
        first = None if field in locked else _first(field, records)
        if first is not None and not _is_better(field, before, first[0], failed):
            sources[field], said[field] = first
    values = replace(before.values if before else CompanyFields(), **said)
    is_masked = any(record.is_masked for record in records.values()) if records else bool(before and before.is_masked)
    return Snapshot(identifiers.siren, values, sources, is_masked)


def _first(field: str, records: Mapping[SourceApi, SourceRecord]) -> tuple[SourceApi, object] | None:
    """The source that comes first among those which say something."""
    told = ((one, getattr(records[one].said, field)) for one in PRIORITY[field] if one in records)
    return next(((source, value) for source, value in told if value is not None), None)


def _is_better(field: str, before: Snapshot | None, source: SourceApi, failed: Collection[SourceApi]) -> bool:
    """What is known, than what this source says."""
    its = before.sources.get(field) if before else None
    if before is None or its not in failed or getattr(before.values, field) is None:
        return False
    order = PRIORITY[field]
    return its in order and order.index(its) < order.index(source)


def changes(before: Snapshot | None, after: Snapshot) -> dict[str, dict[str, str | None]]:
    """By field what it was and what it is."""
    old = before.values if before else CompanyFields()
    return {
        field: {"before": _shown(getattr(old, field)), "after": _shown(getattr(after.values, field))}
        for field in FIELDS
        if getattr(old, field) != getattr(after.values, field)
    }


def has_core_identity(snapshot: Snapshot) -> bool:
    values = snapshot.values
    return bool(values.legal_name and (values.address_line1 or values.postal_code or values.city))


def value_hash(value: object) -> str:
    return hashlib.sha256(str(value).encode()).hexdigest()


def _shown(value: object) -> str | None:
    return None if value is None else str(value)
