"""What became of the audits by each configuration."""

from datetime import timedelta
from decimal import Decimal

import pytest

from automation_pipeline.audits.models.configs import ConfigStats
from automation_pipeline.audits.queries.configs import stats_of
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.configurations import NOW, add, add_audit

LATER = NOW + timedelta(hours=1)


def completed(
    score: str, duration: int | None, compliant: bool, **fields: object
) -> dict[str, object]:
    return {
        "status": "completed",
        "score_percentage": Decimal(score),
        "duration_ms": duration,
        "is_compliant": compliant,
        **fields,
    }


@pytest.mark.parametrize(
    ("audits", "stats"),
    [
        ([], ConfigStats()),
        ([{}], ConfigStats(all_audits=1, total_audits=1, last_used_at=NOW)),
        (
            [{"status": "failed"}, {"status": "running"}],
            ConfigStats(all_audits=2, total_audits=2, failed_audits=1, last_used_at=NOW),
        ),
        (
            [
                completed("82.40", 1000, True, created_at=LATER),
                completed("60.20", 2001, False),
                completed("71.00", None, False, is_latest=False),
                {"status": "failed", "duration_ms": 9, "is_compliant": True},
                {"status": "running"},
                completed(
                    "0",
                    1,
                    True,
                    deleted_at=NOW,
                    is_latest=False,
                    created_at=LATER + timedelta(days=1),
                ),
            ],
            ConfigStats(
                all_audits=6,
                total_audits=5,
                completed_audits=3,
                failed_audits=1,
                average_score=71.2,
                average_duration_ms=1500,
                last_used_at=LATER,
                compliance_rate=33.33,
            ),
        ),
    ],
)
def test_these_audits_come_to_these_figures(
    database: Database, audits: list[dict[str, object]], stats: ConfigStats
) -> None:
    other, config_id = add(database, "Other"), add(database)
    with database.transaction() as session:
        add_audit(session, other, "elsewhere", **completed("1", 1, True))
        for number, fields in enumerate(audits):
            add_audit(session, config_id, str(number), **fields)
    with database.reading() as session:
        found = stats_of(session, [config_id, 977])
        both = stats_of(session, [config_id, other])
    assert found == {config_id: stats}
    assert both == {config_id: stats, other: both[other]}
    assert both[other].total_audits == 1
