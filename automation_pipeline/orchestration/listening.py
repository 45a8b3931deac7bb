"""How audits get the transcripts that a fiche lacks: before all other work, since an audit waits for them."""

import uuid
from collections.abc import Awaitable, Callable

from automation_pipeline.bootstrap import Services
from automation_pipeline.transcription.domain.run import Priority
from automation_pipeline.transcription.stages.begin_transcription import Wish
from automation_pipeline.transcription.stages.transcribe_fiches import transcribe_fiches


def listener(services: Services, owner: str) -> Callable[[str], Awaitable[object]]:
    """The speech provider is looked for only when there is something to hear."""

    async def listen(fiche_id: str) -> object:
        wish = Wish(str(uuid.uuid4()), fiche_id, Priority.HIGH)
        return await transcribe_fiches(
            [wish],
            database=services.database,
            source=lambda: services.crm,
            provider=lambda: services.speech,
            clock=services.clock,
            owner=owner,
        )

    return listen
