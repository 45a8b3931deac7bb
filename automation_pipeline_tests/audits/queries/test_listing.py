"""Filters, sorting and paging of audit lists, with a constant number of queries."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from automation_pipeline.audits.models.requests import AuditFilter
from automation_pipeline.audits.queries.documents import ListingScope, list_audits, list_by_fiche
from automation_pipeline.core.access import EVERYTHING, Reach, Scope
from automation_pipeline.core.json_model import parse
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.archive import COMPLETED, NOW, Archive
from automation_pipeline_tests.factories import make_open_run
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fiches.queries.mirror import statements

PARIS = ZoneInfo("Europe/Paris")
LATE = datetime(2026, 2, 3, 23, 30, tzinfo=UTC)  # already the 4th in Paris


@pytest.fixture
def archive(database: Database) -> Archive:
    return Archive(database)


def listed(database: Database, reach: Reach = EVERYTHING, **given: str) -> list[str]:
    """The fiches of the matching audits, in the order of the list."""
    with database.reading() as session:
        rows, total = list_audits(
            session, parse(AuditFilter, given, "no list"), ListingScope(reach, PARIS)
        )
    assert total == len(rows)
    return [str(row["ficheId"]) for row in rows]


# The parameter, fields of a matching audit, and fields of an audit that does not match.
FILTERS: list[tuple[dict[str, str], dict[str, Any], dict[str, Any]]] = [
    ({"status": "failed,completed"}, {"status": "failed"}, {"status": "running"}),
    ({"is_compliant": "true"}, COMPLETED, {**COMPLETED, "is_compliant": False}),
    ({"is_compliant": "false"}, {**COMPLETED, "is_compliant": False}, {"is_compliant": False}),
    ({"date_from": "2026-02-04"}, {"created_at": LATE}, {"created_at": LATE - timedelta(hours=1)}),
    ({"date_to": "2026-02-03"}, {"created_at": LATE - timedelta(hours=1)}, {"created_at": LATE}),
    (
        {"date_from": "2026-02-03T23:30:00Z"},
        {"created_at": LATE},
        {"created_at": LATE - timedelta(seconds=1)},
    ),
    (
        {"date_to": "2026-02-03T23:30:00Z"},
        {"created_at": LATE},
        {"created_at": LATE + timedelta(seconds=1)},
    ),
    (
        {"date_to": "2026-02-04T00:30:00"},
        {"created_at": LATE},
        {"created_at": LATE + timedelta(seconds=1)},
    ),
    (
        {"date_to": "2026-02-03T23:30:00.000Z"},
        {"created_at": LATE + timedelta(microseconds=900)},
        {},
    ),
    ({"date_to": "9999-12-31", "date_from": "0001-01-01", "niveau": "BON"}, {"niveau": "BON"}, {}),
    ({"audit_config_ids": "2,77"}, {"audit_config_id": 2}, {"audit_config_id": 1}),
    ({"groupes": "NORD,SUD"}, {"of_fiche_groupe": "SUD"}, {"of_fiche_groupe": "EST"}),
    (
        {"groupes": "NORD"},
        {"of_fiche_groupe": "SUD", "attributed": ("NORD", "7")},
        {"of_fiche_groupe": None},
    ),
    (
        {"groupes": "SUD"},
        {"of_fiche_groupe": "SUD"},
        {"of_fiche_groupe": "SUD", "attributed": ("NORD", "7")},
    ),
    ({"groupe_query": "team"}, {"of_fiche_groupe": "The TEAM R1"}, {"of_fiche_groupe": "EQUIPE"}),
    ({"groupe_query": "%"}, {"of_fiche_groupe": "100 % R1"}, {"of_fiche_groupe": "R1"}),
    ({"groupe_query": "R_1"}, {"of_fiche_groupe": "r_1"}, {"of_fiche_groupe": "RX1"}),
    ({"groupe_query": "a/b\\"}, {"of_fiche_groupe": "A/B\\C"}, {"of_fiche_groupe": "AB"}),
    ({"agence_query": "lyon"}, {"of_fiche_agence_nom": "LYON 2"}, {"of_fiche_agence_nom": None}),
    (
        {"prospect_query": "élo"},
        {"of_fiche_prospect_prenom": "ÉLOÏSE"},
        {"of_fiche_prospect_prenom": "ELSA"},
    ),
    (
        {"prospect_query": "martel odile"},
        {"of_fiche_prospect_prenom": "Odile", "of_fiche_prospect_nom": "MARTEL"},
        {"of_fiche_prospect_nom": "MARTEL"},
    ),
    (
        {"prospect_query": "Odile Mar"},
        {"of_fiche_prospect_prenom": "Odile", "of_fiche_prospect_nom": "MARTEL"},
        {"of_fiche_prospect_prenom": "Odile"},
    ),
    (
        {"sales_dates": "2026-02-03,2026-02-05"},
        {"of_fiche_sales_date": "2026-02-05"},
        {"of_fiche_sales_date": "2026-02-04"},
    ),
    (
        {"sales_date_from": "2026-02-03"},
        {"of_fiche_sales_date": "2026-02-03"},
        {"of_fiche_sales_date": "2026-02-02"},
    ),
    (
        {"sales_date_to": "2026-02-03"},
        {"of_fiche_sales_date": "2026-02-03"},
        {"of_fiche_sales_date": None},
    ),
    ({"has_recordings": "true"}, {"calls": 1}, {}),
    ({"has_recordings": "false"}, {}, {"calls": 1}),
    ({"recordings_count_min": "2"}, {"calls": 2}, {"calls": 1}),
    ({"recordings_count_max": "1"}, {"calls": 1}, {"calls": 2}),
    (
        {"fetched_at_from": "2026-02-04"},
        {"of_fiche_fetched_at": LATE},
        {"of_fiche_fetched_at": LATE - timedelta(hours=1)},
    ),
    ({"fetched_at_to": "2026-02-03"}, {"of_fiche_fetched_at": LATE - timedelta(hours=1)}, {}),
    ({"last_revalidated_from": "2026-02-04"}, {"of_fiche_last_revalidated_at": LATE}, {}),
    (
        {"last_revalidated_to": "2026-02-04"},
        {"of_fiche_last_revalidated_at": LATE},
        {"of_fiche_last_revalidated_at": NOW},
    ),
    ({"niveau": "REJET,BON"}, {"niveau": "REJET"}, {"niveau": "PENDING"}),
    ({"score_min": "79.99"}, COMPLETED, {**COMPLETED, "score_percentage": Decimal("79.98")}),
    ({"score_max": "72.35"}, {**COMPLETED, "score_percentage": Decimal("72.35")}, {}),
    (
        {"duration_min_ms": "5000000000"},
        {"duration_ms": 5_000_000_000},
        {"duration_ms": 4_999_999_999},
    ),
    ({"duration_max_ms": "10"}, {"duration_ms": 10}, {"duration_ms": None}),
    ({"tokens_min": "100"}, {"total_tokens": 100}, {"total_tokens": 99}),
    ({"tokens_max": "100"}, {"total_tokens": 100}, {"total_tokens": 101}),
    ({"has_failed_steps": "true"}, {"failed_steps": 1}, {"failed_steps": None}),
    ({"has_failed_steps": "false"}, {"failed_steps": 0}, {"failed_steps": 2}),
    ({"trigger_source": "batch,api"}, {"trigger_source": "api"}, {"trigger_source": None}),
    ({"q": "config 2"}, {"audit_config_id": 2}, {"audit_config_id": 1}),
    ({"q": "called back"}, {"notes": "She CALLED BACK"}, {"notes": None}),
    ({"q": "t-1"}, {}, {"tracking_id": "other"}),
    ({"q": "dupont"}, {"of_fiche_prospect_nom": "DUPONT"}, {"of_fiche_prospect_nom": "DURAND"}),
    ({"latest_only": "true"}, {}, {"is_latest": False}),
    (
        {"include_deleted": "false", "latest_only": "false"},
        {},
        {"is_latest": False, "deleted_at": NOW},
    ),
]


@pytest.mark.parametrize(
    ("given", "fits", "differs"), FILTERS, ids=[str(given) for given, _, _ in FILTERS]
)
def test_each_filter_selects_matching_audits_only(
    archive: Archive, given: dict[str, str], fits: dict[str, Any], differs: dict[str, Any]
) -> None:
    archive.put("900", **fits)
    archive.put("901", **differs)
    assert listed(archive.database, **given) == ["900"]


def test_fiches_are_filtered_by_any_number_of_ids(archive: Archive) -> None:
    for fiche_id in ("900", "901", "902"):
        archive.put(fiche_id)
    many = ",".join(["900", "902", *(str(number) for number in range(3000, 6000))])
    assert listed(archive.database, fiche_ids=many) == ["902", "900"]


def test_audits_are_filtered_by_automation_schedule_and_run(
    archive: Archive, clock: FakeClock
) -> None:
    ticket = make_open_run(archive.database, clock)
    archive.put("900", automation_schedule_id=1, automation_run_id=ticket.run_id)
    archive.put("901")
    assert listed(archive.database, automation_schedule_ids="1,77") == ["900"]
    assert listed(archive.database, automation_run_ids=str(ticket.run_id)) == ["900"]
    assert listed(archive.database, automation_run_ids="77") == []


def test_deleted_and_superseded_audits_are_listed_on_request(archive: Archive) -> None:
    archive.put("900")
    archive.put("901", is_latest=False)
    archive.put("902", is_latest=False, deleted_at=NOW)
    assert listed(archive.database, latest_only="false") == ["901", "900"]
    assert listed(archive.database, latest_only="false", include_deleted="true") == [
        "902",
        "901",
        "900",
    ]
    assert listed(archive.database, include_deleted="true") == ["900"]


def test_filters_are_combined_with_and(archive: Archive) -> None:
    archive.put("900", **COMPLETED, of_fiche_groupe="SUD")
    archive.put("901", **COMPLETED, of_fiche_groupe="NORD")
    archive.put("902", of_fiche_groupe="SUD")
    assert listed(archive.database, groupes="SUD", status="completed", score_min="50") == ["900"]


@pytest.mark.parametrize(
    ("reach", "fiches"),
    [
        (EVERYTHING, ["902", "901", "900"]),
        (Reach(Scope.GROUP, frozenset({"SUD"})), ["901"]),
        (Reach(Scope.GROUP), []),
        (Reach(Scope.SELF, crm_user_id="7"), ["902"]),
        (Reach(Scope.SELF), []),
    ],
)
def test_audits_of_inaccessible_fiches_are_hidden(
    archive: Archive, reach: Reach, fiches: list[str]
) -> None:
    archive.put("900", of_fiche_groupe="NORD")
    archive.put("901", of_fiche_groupe="SUD")
    archive.put("902", of_fiche_groupe="SUD", attributed=("EST", "7"))
    assert listed(archive.database, reach) == fiches
    assert listed(archive.database, reach, groupes="NORD,SUD,EST") == fiches


@pytest.mark.parametrize(
    ("sort", "fiches"),
    [
        ({}, ["902", "901", "900"]),
        ({"sort_order": "asc"}, ["900", "901", "902"]),
        ({"sort_by": "score_percentage"}, ["901", "900", "902"]),
        ({"sort_by": "duration_ms"}, ["900", "902", "901"]),
        ({"sort_by": "duration_ms", "sort_order": "asc"}, ["902", "900", "901"]),
        ({"sort_by": "completed_at", "sort_order": "asc"}, ["901", "900", "902"]),
    ],
)
def test_lists_are_sorted_with_missing_values_last(
    archive: Archive, sort: dict[str, str], fiches: list[str]
) -> None:
    archive.put(
        "900", duration_ms=20, score_percentage=Decimal(50), completed_at=NOW + timedelta(hours=1)
    )
    archive.put("901", score_percentage=Decimal(100), completed_at=NOW)
    archive.put("902", duration_ms=10)
    assert listed(archive.database, **sort) == fiches


def test_a_page_takes_two_queries_and_has_the_total(archive: Archive) -> None:
    for number in range(7):
        archive.put(f"90{number}", calls=1)
    everything = {"q": "9", "groupes": "", "has_recordings": "true", "limit": "3", "offset": "2"}
    with statements(archive.database) as executed, archive.database.reading() as session:
        rows, total = list_audits(session, parse(AuditFilter, everything, "no list"))
    assert ([row["ficheId"] for row in rows], total) == (["904", "903", "902"], 7)
    assert len([one for one in executed if one.startswith("SELECT")]) == 2


def test_fiches_are_paged_with_all_their_audits(archive: Archive) -> None:
    first = archive.put("900", **COMPLETED)
    second = archive.put(
        "900",
        **{**COMPLETED, "is_compliant": False, "score_percentage": Decimal("60.01")},
        audit_config_id=2,
    )
    archive.put(
        "901",
        of_fiche_groupe="SUD",
        of_fiche_prospect_nom="MARTEL",
        of_fiche_sales_date="2026-02-03",
    )
    third = archive.put("902")
    with statements(archive.database) as executed, archive.database.reading() as session:
        page, total = list_by_fiche(session, parse(AuditFilter, {"limit": "2"}, "no list"))
    assert total == 3
    assert [
        (one["fiche"]["ficheId"], [audit["id"] for audit in one["audits"]]) for one in page
    ] == [  # type: ignore[index]
        ("902", [str(third)]),
        ("901", ["3"]),
    ]
    assert len([one for one in executed if one.startswith("SELECT")]) == 3
    assert page[1]["fiche"] == {
        "ficheId": "901", "groupe": "SUD", "agenceNom": None, "prospectNom": "MARTEL", "prospectPrenom": None,
        "salesDate": "2026-02-03",
    }  # fmt: skip
    assert page[1]["summary"] == {
        "totalAudits": 1, "compliantCount": 0, "averageScore": None, "latestAuditDate": "2026-05-04T13:00:00.000Z",
    }  # fmt: skip
    with archive.database.reading() as session:
        [last], _ = list_by_fiche(
            session, parse(AuditFilter, {"limit": "2", "offset": "2"}, "no list")
        )
    assert [audit["id"] for audit in last["audits"]] == [str(second), str(first)]  # type: ignore[attr-defined]
    assert last["summary"] == {
        "totalAudits": 2, "compliantCount": 1, "averageScore": 70.0, "latestAuditDate": "2026-05-04T12:00:00.000Z",
    }  # fmt: skip


def test_fiches_with_equal_newest_audits_are_sorted_by_their_age(archive: Archive) -> None:
    archive.put("900")
    for fiche_id in ("901", "902"):
        archive.put(fiche_id, created_at=NOW + timedelta(hours=9))
    with archive.database.reading() as session:
        orders = {
            order: [
                one["fiche"]["ficheId"]  # type: ignore[index]
                for one in list_by_fiche(session, parse(AuditFilter, {"sort_order": order}, ""))[0]
            ]
            for order in ("desc", "asc")
        }
    assert orders == {"desc": ["902", "901", "900"], "asc": ["900", "901", "902"]}


def test_a_fiche_lists_only_matching_audits(archive: Archive) -> None:
    archive.put("900", **COMPLETED)
    archive.put("900", audit_config_id=2)
    archive.put("901", audit_config_id=2)
    with archive.database.reading() as session:
        [one], total = list_by_fiche(
            session,
            parse(AuditFilter, {"status": "completed"}, "no list"),
            ListingScope(Reach(Scope.ALL)),
        )
        hidden, none = list_by_fiche(
            session,
            parse(AuditFilter, {}, "no list"),
            ListingScope(Reach(Scope.GROUP, frozenset({"SUD"}))),
        )
    assert (total, len(one["audits"]), one["summary"]["totalAudits"]) == (1, 1, 1)  # type: ignore[arg-type, index]
    assert (hidden, none) == ([], 0)
