"""Answers about prices that several routes give."""

from collections.abc import Sequence

from starlette.responses import Response

from automation_pipeline.api.envelope import answer
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.json_model import JsonModel, as_document
from automation_pipeline.pricing.domain.rule_run import RuleRun
from automation_pipeline.pricing.store.shops import is_shop_paused


def shown_run(run: RuleRun, services: Services, *, status: int = 200) -> Response:
    """A run waits while its shop is paused, which is no error of whoever asks for it."""
    with services.database.reading() as session:
        paused = is_shop_paused(session, run.shop)
    return answer(as_document(run), status=status, shopPaused=paused)


def following(entries: Sequence[JsonModel], limit: int) -> Response:
    """A page of a list that is gone through by the id of the last entry."""
    return answer([as_document(entry) for entry in entries], count=len(entries), limit=limit)


def listed(entries: Sequence[JsonModel], limit: int, offset: int) -> Response:
    return answer([as_document(entry) for entry in entries], count=len(entries), limit=limit, offset=offset)
