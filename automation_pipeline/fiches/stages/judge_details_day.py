"""Compare the details of one day's fiches with what the day's sales list promises."""

from datetime import date

from automation_pipeline.fiches.domain.coverage import judge_coverage
from automation_pipeline.fiches.domain.days import Finding
from automation_pipeline.fiches.store.freshness import coverage_of
from automation_pipeline.fiches.store.sales import sales_day
from automation_pipeline.storage.database import Database


def judge_details_day(day: date, *, database: Database) -> tuple[Finding, ...]:
    with database.reading() as session:
        coverage, known = coverage_of(session, day), sales_day(session, day)
    return judge_coverage(coverage, asked=known is not None)
