"""The application of Celery's workers, from our settings alone: `automation worker`, or
`celery -A automation_pipeline.orchestration.celery_app worker`."""

import celery
from dagster_celery.make_app import make_app
from dagster_celery.tasks import create_task

from automation_pipeline.bootstrap import services
from automation_pipeline.core.settings import load_settings
from automation_pipeline.orchestration.celery_executor import OverseenCeleryExecutor
from automation_pipeline.orchestration.celery_step import CeleryStep
from automation_pipeline.orchestration.executor import PRELOADED


def _app() -> celery.Celery:
    executor = OverseenCeleryExecutor(load_settings(), services())
    made = make_app({**executor.app_args(), "include": PRELOADED})
    create_task(made, base=CeleryStep)
    return made


app = _app()
