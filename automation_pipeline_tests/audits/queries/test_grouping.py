"""Groups of audits, compared with the same computation in Python."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import select

from automation_pipeline.audits.models.audits import AuditStatus
from automation_pipeline.audits.models.requests import AuditGrouping
from automation_pipeline.audits.queries.documents import ListingScope, group_audits
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.core.access import EVERYTHING, Reach, Scope
from automation_pipeline.core.json_model import parse
from automation_pipeline.fiches.tables import FicheCacheRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.archive import Archive
from automation_pipeline_tests.factories import make_open_run
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fiches.queries.mirror import statements

PARIS = ZoneInfo("Europe/Paris")
NIVEAUX = ("EXCELLENT", "BON", "REJET")


@pytest.fixture
def archive(database: Database, clock: FakeClock) -> Archive:
    """Sixty audits within one year, which includes both clock changes. Their fiches have one of three
    groupes, or none."""
    archive, chance = Archive(database), Random(7)
    run_id = make_open_run(database, clock).run_id
    for number in range(60):
        status = chance.choice(list(AuditStatus))
        judged: dict[str, Any] = {"niveau": "PENDING"}
        if status is AuditStatus.COMPLETED:
            niveau = chance.choice(NIVEAUX)
            score = chance.choice(
                [Decimal(0), Decimal(100), Decimal(chance.randrange(10_000)) / 100]
            )
            judged = {
                "niveau": niveau,
                "is_compliant": niveau != "REJET",
                "score_percentage": score,
            }
        linked = (
            {"automation_schedule_id": 1, "automation_run_id": run_id}
            if chance.random() < 0.5
            else {}
        )
        archive.put(
            str(900 + number % 23),
            status=status,
            audit_config_id=chance.choice(archive.configs),
            is_latest=False,
            of_fiche_groupe=(None, "NORD", "SUD", "EST")[number % 23 % 4],
            created_at=datetime(2026, 1, 1, 22, 59, 59, tzinfo=UTC)
            + timedelta(minutes=chance.randrange(525_600)),
            **judged,
            **linked,
        )
    return archive


def grouped(
    database: Database, by: str, reach: Reach = EVERYTHING, **given: str
) -> list[dict[str, Any]]:
    chosen = parse(
        AuditGrouping, {"group_by": by, "latest_only": "false", "limit": "500", **given}, "no list"
    )
    with database.reading() as session:
        groups, total = group_audits(session, chosen, ListingScope(reach, PARIS))
    assert total == len(groups)
    return groups  # type: ignore[return-value]


def key_of(row: AuditRow, fiche: FicheCacheRow, by: str) -> str | None:
    match by:
        case "fiche":
            return fiche.fiche_id
        case "groupe":
            return fiche.groupe
        case "created_day":
            return row.created_at.astimezone(PARIS).date().isoformat()
        case "score_bucket":
            if row.status != "completed":
                return None
            lowest = min(int(row.score_percentage) // 30 * 30, 90)
            return f"{lowest}-{min(lowest + 30, 100)}"
    column = {
        "audit_config": row.audit_config_id,
        "automation_schedule": row.automation_schedule_id,
        "automation_run": row.automation_run_id,
        "status": row.status,
        "niveau": row.niveau,
    }
    return None if column[by] is None else str(column[by])


def computed_groups(database: Database, by: str) -> dict[str | None, dict[str, Any]]:
    with database.reading() as session:
        rows = session.execute(
            select(AuditRow, FicheCacheRow).join(
                FicheCacheRow, FicheCacheRow.id == AuditRow.fiche_cache_id
            )
        )
        groups: dict[str | None, list[AuditRow]] = defaultdict(list)
        for row, fiche in rows.tuples():
            groups[key_of(row, fiche, by)].append(row)
    return {key: {"key": key, **summed(of_it)} for key, of_it in groups.items()}


def summed(rows: list[AuditRow]) -> dict[str, Any]:
    completed = [row for row in rows if row.status == "completed"]
    scores = [row.score_percentage for row in completed]
    return {
        "count": len(rows),
        "compliantCount": sum(row.is_compliant for row in completed),
        "nonCompliantCount": sum(not row.is_compliant for row in completed),
        "avgScore": float(round(sum(scores) / len(scores), 2)) if scores else None,
        "minScore": float(min(scores)) if scores else None,
        "maxScore": float(max(scores)) if scores else None,
        "statusCounts": {
            status.value: sum(row.status == status for row in rows) for status in AuditStatus
        },
    }


@pytest.mark.parametrize(
    "by",
    [
        "fiche",
        "audit_config",
        "status",
        "niveau",
        "automation_schedule",
        "automation_run",
        "groupe",
        "created_day",
        "score_bucket",
    ],
)
def test_groups_equal_those_computed_in_python(archive: Archive, by: str) -> None:
    groups = grouped(archive.database, by, bucket_size="30")
    assert {group["key"]: group for group in groups} == computed_groups(archive.database, by)


def test_groups_are_sorted_by_size_and_scales_by_rank(archive: Archive) -> None:
    sizes = [group["count"] for group in grouped(archive.database, "fiche")]
    assert sizes == sorted(sizes, reverse=True)
    sizes = [group["count"] for group in grouped(archive.database, "fiche", sort_order="asc")]
    assert sizes == sorted(sizes)
    days = [group["key"] for group in grouped(archive.database, "created_day")]
    assert days == sorted(days, reverse=True)
    buckets = [
        group["key"]
        for group in grouped(archive.database, "score_bucket", bucket_size="50", sort_order="asc")
    ]
    assert buckets == ["0-50", "50-100", None]


def test_groups_respect_filters_and_access(archive: Archive) -> None:
    reach = Reach(Scope.GROUP, frozenset({"NORD"}))
    assert [group["key"] for group in grouped(archive.database, "groupe", reach)] == ["NORD"]
    assert [group["key"] for group in grouped(archive.database, "status", status="completed")] == [
        "completed"
    ]
    assert grouped(archive.database, "created_day", fiche_ids="77") == []
    assert grouped(archive.database, "score_bucket", fiche_ids="77") == []


def test_a_page_of_groups_takes_at_most_three_queries(archive: Archive) -> None:
    everything = grouped(archive.database, "created_day")
    given = {"group_by": "created_day", "latest_only": "false", "limit": "5", "offset": "10"}
    chosen = parse(AuditGrouping, given, "no list")
    with statements(archive.database) as executed, archive.database.reading() as session:
        page, total = group_audits(session, chosen, ListingScope(zone=PARIS))
    assert (page, total) == (everything[10:15], len(everything))
    assert len([one for one in executed if one.startswith("SELECT")]) == 3
