"""Dagster's executor over Celery, overseen: it survives a broker that is away, and beats for its run while it waits."""

import warnings
from collections.abc import Generator

import dagster as dg
from celery.exceptions import DuplicateTaskNameWarning
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster_celery.core_execution_loop import core_celery_execution_loop
from dagster_celery.executor import CeleryExecutor
from dagster_celery.make_app import make_app

from automation_pipeline.bootstrap import Services, services
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.beside import repeating
from automation_pipeline.orchestration.celery_settings import broker_of, celery_settings
from automation_pipeline.orchestration.overseer import Overseer


class OverseenCeleryExecutor(CeleryExecutor):
    def __init__(self, settings: Settings, our: Services) -> None:
        broker = broker_of(settings)
        super().__init__(RetryMode.ENABLED, broker=broker, backend=broker, config_source=celery_settings(settings))
        self._our = our

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Generator[dg.DagsterEvent]:
        # Dagster's loop makes its task anew for every step.
        warnings.filterwarnings("ignore", category=DuplicateTaskNameWarning)
        app = make_app(self.app_args())
        overseer = Overseer(plan_context.run_id, plan_context.instance, self._our, app)
        with repeating(
            overseer.look, self._our.settings.automation_heartbeat_seconds, "The steps are not looked after"
        ):
            yield from core_celery_execution_loop(plan_context, execution_plan, step_execution_fn=overseer.send)
        overseer.leave()


def celery_executor(settings: Settings) -> dg.ExecutorDefinition:
    """Without config of its own: addresses and passwords stay out of Dagster's pages."""
    broker_of(settings)

    @dg.executor(name="celery", requirements=dg.multiple_process_executor_requirements())
    def overseen(_context: dg.InitExecutorContext) -> OverseenCeleryExecutor:
        return OverseenCeleryExecutor(settings, services())

    return overseen
