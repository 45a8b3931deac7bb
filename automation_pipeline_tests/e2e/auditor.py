"""A process of its own that audits the fiches given by the configuration given first, several at a time."""

import sys
from collections.abc import Sequence

from automation_pipeline.audits.domain.audit import Standing, Wish
from automation_pipeline.audits.stages.audit_fiche import audit_fiche
from automation_pipeline.bootstrap import Services, services
from automation_pipeline.core.pool import work_through
from automation_pipeline.orchestration.listening import listener


async def audit_all(our: Services, config_id: int, fiche_ids: Sequence[str]) -> None:
    async def audit(fiche_id: str) -> Standing:
        return await audit_fiche(
            Wish(tracking_id=f"e2e-{fiche_id}", fiche_id=fiche_id, audit_config_id=config_id),
            database=our.database,
            source=our.crm,
            listen=listener(our, "auditor"),
            judge=our.judge,
            clock=our.clock,
        )

    await work_through(fiche_ids, audit, lambda _: None, width=our.settings.audit_run_concurrency)


if __name__ == "__main__":
    our = services()
    our.run(audit_all(our, int(sys.argv[1]), sys.argv[2:]))
