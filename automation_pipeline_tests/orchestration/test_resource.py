"""What a Dagster run does, it does under one id: in its steps, in their threads and in their
loops."""

import asyncio
import threading
from contextvars import copy_context

import dagster as dg

from automation_pipeline.core.logs import CORRELATION_TAG, correlation_id
from automation_pipeline.orchestration.ops import ServicesResource
from automation_pipeline_tests.tables import every_case


def ids_in_a_run(**tags: str) -> tuple[dg.ExecuteInProcessResult, list[str | None]]:
    seen: list[str | None] = []

    @dg.op
    def look(services: ServicesResource) -> None:
        async def loop() -> None:
            seen.append(correlation_id())
            seen.append(await asyncio.to_thread(correlation_id))

        services.get().run(loop())
        thread = threading.Thread(
            target=copy_context().run, args=(lambda: seen.append(correlation_id()),)
        )
        thread.start()
        thread.join()

    @dg.op(ins={"before": dg.In(dg.Nothing)})
    def look_again(services: ServicesResource) -> None:
        seen.append(correlation_id())

    @dg.job(resource_defs={"services": ServicesResource()})
    def looking() -> None:
        look_again(before=look())

    return looking.execute_in_process(tags=tags), seen


def test_the_tag_is_the_id_and_is_forgotten_after_the_run() -> None:
    _, seen = ids_in_a_run(**{CORRELATION_TAG: "wish-7"})
    assert seen == ["wish-7"] * 4
    assert correlation_id() is None


@every_case("tags", [{}, {CORRELATION_TAG: ""}, {CORRELATION_TAG: "a b\r\nX-Admin: 1"}])
def test_without_a_usable_tag_it_is_the_runs_own_id(tags: dict[str, str]) -> None:
    result, seen = ids_in_a_run(**tags)
    assert seen == [result.run_id] * 4


def test_a_sensor_has_no_run_and_no_id() -> None:
    with dg.build_sensor_context(resources={"services": ServicesResource()}) as context:
        assert isinstance(context.resources.services, ServicesResource)
        assert correlation_id() is None
