"""The services as a Dagster resource. It has no fields: settings and secrets stay out of run config."""

import dagster as dg

from automation_pipeline import bootstrap


class ServicesResource(dg.ConfigurableResource):
    def get(self) -> bootstrap.Services:
        return bootstrap.services()
