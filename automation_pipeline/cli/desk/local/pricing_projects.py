"""Dead letters and guardrails of projects by the stages and stores."""

from collections.abc import Mapping, Sequence

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.desk.local.actor import actor
from automation_pipeline.cli.desk.local.project_names import refuse_strange_project
from automation_pipeline.pricing.domain.dead_letters import DeadLetterReport
from automation_pipeline.pricing.domain.policy import Policy
from automation_pipeline.pricing.stages.acknowledge_dead_letters import acknowledge_dead_letters
from automation_pipeline.pricing.stages.put_policy import put_policy
from automation_pipeline.pricing.stages.remove_policy import remove_policy
from automation_pipeline.pricing.stages.report_dead_letters import report_dead_letters
from automation_pipeline.pricing.stages.retry_dead_letters import retry_dead_letters
from automation_pipeline.pricing.store.policies import policy_of


class LocalDeadLetters:
    def __init__(self, services: Services) -> None:
        self._services = services

    def report(self, project_id: str) -> DeadLetterReport:
        refuse_strange_project(project_id)
        our = self._services
        return report_dead_letters(project_id, database=our.database, clock=our.clock)

    def retry(self, project_id: str, *, force: bool) -> Sequence[int]:
        refuse_strange_project(project_id)
        our = self._services
        return retry_dead_letters(project_id, database=our.database, clock=our.clock, actor=actor(), force=force)

    def acknowledge(self, project_id: str, target_ids: Sequence[int] | None) -> int:
        refuse_strange_project(project_id)
        our = self._services
        return acknowledge_dead_letters(project_id, target_ids, database=our.database, clock=our.clock, actor=actor())


class LocalPolicies:
    def __init__(self, services: Services) -> None:
        self._services = services

    def get(self, project_id: str) -> Policy | None:
        refuse_strange_project(project_id)
        with self._services.database.reading() as session:
            return policy_of(session, project_id)

    def put(self, project_id: str, given: Mapping[str, object]) -> Policy:
        our = self._services
        return put_policy(project_id, given, database=our.database, clock=our.clock, actor=actor())

    def remove(self, project_id: str) -> None:
        refuse_strange_project(project_id)
        our = self._services
        remove_policy(project_id, database=our.database, clock=our.clock, actor=actor())
