"""The token that the last login at a source gave, for all processes: `enrichment.ports.SharedTokens`."""

from datetime import datetime

from sqlalchemy import select, update

from automation_pipeline.core.clock import Clock
from automation_pipeline.enrichment.domain.vocabulary import SourceApi
from automation_pipeline.enrichment.tables import SourceStandingRow
from automation_pipeline.storage.bulk import insert_into
from automation_pipeline.storage.database import Database


class DatabaseTokens:
    def __init__(self, database: Database, clock: Clock, source: SourceApi) -> None:
        self._database, self._clock, self._source = database, clock, source

    def current(self) -> str | None:
        row = SourceStandingRow
        with self._database.reading() as session:
            return session.scalar(
                select(row.token).where(row.source_api == self._source, row.token_until > self._clock.now())
            )

    def keep(self, token: str, until: datetime) -> None:
        kept = {"token": token, "token_until": until, "updated_at": self._clock.now()}
        with self._database.transaction() as session:
            insert = insert_into(session, SourceStandingRow)
            insert = insert.values(source_api=self._source, failures=0, quota_used=0, **kept)
            session.execute(insert.on_conflict_do_update(index_elements=["source_api"], set_=kept))

    def forget(self, token: str) -> None:
        with self._database.transaction() as session:
            session.execute(
                update(SourceStandingRow)
                .where(SourceStandingRow.source_api == self._source, SourceStandingRow.token == token)
                .values(token=None, token_until=None, updated_at=self._clock.now())
                .execution_options(synchronize_session=False)
            )
