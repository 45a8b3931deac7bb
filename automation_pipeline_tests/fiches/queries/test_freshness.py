"""What need not be asked of the CRM again, however much is asked about."""

from datetime import timedelta

from automation_pipeline.fiches.models.fiches import DetailsFetched, DetailsKnown, FicheNotFound
from automation_pipeline.fiches.queries.details import known_since, save_outcomes
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.crm import fiche, recording


def test_what_is_known_is_found_among_seventy_thousand(
    database: Database, clock: StandingClock
) -> None:
    known = [DetailsFetched("7", fiche("7", recording("a"))), FicheNotFound("69999")]
    with database.transaction() as session:
        save_outcomes(session, known, clock.now())
    asked = [str(number) for number in range(70_000)]
    with database.reading() as session:
        answers = known_since(session, asked, clock.now() - timedelta(minutes=1), clock.now())
    assert sorted(answers, key=lambda answer: int(answer.fiche_id)) == [
        DetailsKnown("7", 1),
        FicheNotFound("69999"),
    ]
