"""Answers about prices that several routes give."""

from starlette.responses import Response

from automation_pipeline.api.envelope import answer
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.domain.rule_run import RuleRun
from automation_pipeline.pricing.store.shops import is_shop_paused


def shown_run(run: RuleRun, services: Services, *, status: int = 200) -> Response:
    """A run waits while its shop is paused, which is no error of whoever asks for it."""
    with services.database.reading() as session:
        paused = is_shop_paused(session, run.shop)
    return answer(as_document(run), status=status, shopPaused=paused)
