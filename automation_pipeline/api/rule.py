"""What a rule says about a route: who may call it, and how far they reach. All rules are in the table beside it."""

from dataclasses import dataclass
from enum import StrEnum

from automation_pipeline.core.access import Action, Permission


class Entity(StrEnum):
    """What a path names; out of the caller's reach it is a 404, before the endpoint runs."""

    FICHE = "fiche_id"
    AUDIT = "audit_id"
    SCHEDULE = "schedule_id"
    RUN = "run_id"
    JOB = "job_id"


class Scoped(StrEnum):
    """How scope is kept. BY_PATH: the entity in the path is checked. BY_QUERY: only what is in reach is shown. BY_BODY:
    what the body or the query names must be in reach. BY_ORGANISATION: callers of an organisation see that one only,
    all others need the scope ALL. NOTHING: what is shown belongs to no fiche."""

    BY_PATH = "path"
    BY_QUERY = "query"
    BY_BODY = "body"
    BY_ORGANISATION = "organisation"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Rule:
    """Without a permission any caller with valid credentials will do; a public route asks for none. `own` is what
    callers of an organisation need instead of the permission."""

    permission: Permission | None
    action: Action = Action.READ
    scoped: Scoped = Scoped.NOTHING
    entity: Entity | None = None
    public: bool = False
    own: Permission | None = None
