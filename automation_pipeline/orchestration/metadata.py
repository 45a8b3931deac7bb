"""Metadata of steps and assets. Dagster serialises it when it stores the event and refuses subclasses of plain types,
such as a member of a StrEnum: every value passes through here and becomes plain."""

from datetime import datetime

import dagster as dg

Metadata = dict[str, dg.MetadataValue]


def text(value: object) -> dg.MetadataValue:
    return dg.MetadataValue.text(str(value))


def integer(value: int) -> dg.MetadataValue:
    return dg.MetadataValue.int(int(value))


def real(value: float) -> dg.MetadataValue:
    return dg.MetadataValue.float(float(value))


def markdown(value: str) -> dg.MetadataValue:
    return dg.MetadataValue.md(str(value))


def path(value: object) -> dg.MetadataValue:
    return dg.MetadataValue.path(str(value))


def timestamp(value: datetime) -> dg.MetadataValue:
    return dg.MetadataValue.timestamp(value)
