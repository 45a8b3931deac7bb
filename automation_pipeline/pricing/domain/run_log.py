"""A line of a run's log: something of it that moved from one state to another."""

from automation_pipeline.core.json_model import Id, Instant, JsonModel


class LoggedMove(JsonModel):
    """`machine` says whether the run moved or one of its targets, of which `entity_id` is the id."""

    id: Id
    machine: str
    entity_id: str
    from_state: str
    to_state: str
    actor: str
    reason: str | None
    at: Instant
