"""A process of its own that transcribes the fiches given, with the services of its environment."""

import sys
import uuid

from automation_pipeline.bootstrap import services
from automation_pipeline.transcription.domain.run import Priority
from automation_pipeline.transcription.stages.begin_transcription import Wish
from automation_pipeline.transcription.stages.transcribe_fiches import transcribe_fiches

if __name__ == "__main__":
    our = services()
    wishes = [Wish(str(uuid.uuid4()), fiche_id, Priority.NORMAL) for fiche_id in sys.argv[1:]]
    work = transcribe_fiches(
        wishes,
        database=our.database,
        source=lambda: our.crm,
        provider=lambda: our.speech,
        clock=our.clock,
        owner=str(uuid.uuid4()),
    )
    our.run(work)
