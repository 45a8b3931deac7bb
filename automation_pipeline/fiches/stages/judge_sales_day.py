"""Compare one day's sales list with what it should be."""

from datetime import date

from automation_pipeline.fiches.domain.days import Finding, judge_day, same_weekdays_before
from automation_pipeline.fiches.store.sales import sales_day, volumes_of
from automation_pipeline.storage.database import Database


def judge_sales_day(day: date, *, database: Database) -> tuple[Finding, ...]:
    with database.reading() as session:
        known, earlier = sales_day(session, day), volumes_of(session, same_weekdays_before(day))
    return judge_day(known, earlier)
