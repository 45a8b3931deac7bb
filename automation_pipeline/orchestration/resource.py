"""The services as a Dagster resource."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import dagster as dg

from automation_pipeline.core.logs import CORRELATION_TAG, correlated, usable_id


def correlation_of(run: dg.DagsterRun) -> str:
    """Tags can be typed in: one that could not stand in a header is not taken."""
    tag = run.tags.get(CORRELATION_TAG)
    return tag if tag and usable_id(tag) == tag else run.run_id


if TYPE_CHECKING:
    from automation_pipeline.bootstrap import Services


class ServicesResource(dg.ConfigurableResource):
    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Generator[Self]:
        """Every process of a run, whatever its executor, makes the resource before its steps: all
        that they do is correlated. Sensors have no run."""
        if context.run is None:
            yield self
            return
        with correlated(correlation_of(context.run)):
            yield self

    def get(self) -> "Services":
        from automation_pipeline.bootstrap import services  # noqa: PLC0415  with what needs it, and not before

        return services()
