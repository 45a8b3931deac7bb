"""Permissions, scopes and callers. The package `access` issues and checks tokens."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from types import MappingProxyType


class Permission(StrEnum):
    FICHES = "fiches"
    AUDITS = "audits"
    AUDIT_CONFIGS = "audit-configs"
    AUTOMATION = "automation"
    RECORDINGS = "recordings"
    TRANSCRIPTIONS = "transcriptions"
    PRODUCTS = "products"
    CHAT = "chat"
    REALTIME = "realtime"
    PRICING = "pricing"
    PRICING_RUNS = "pricing.runs"
    PRICING_POLICIES = "pricing.policies"
    ORG_JOBS = "org-jobs"
    ORG_JOBS_AGENTS = "org-jobs.agents"
    ORGANISATIONS = "organisations"
    ENRICHMENT = "enrichment"
    ADMIN_USERS = "admin.users"
    ADMIN_ROLES = "admin.roles"
    ADMIN_PERMISSIONS = "admin.permissions"


class Action(StrEnum):
    READ = "read"
    WRITE = "write"


class Scope(IntEnum):
    """A wider scope is greater."""

    SELF = 1
    GROUP = 2
    ALL = 3


@dataclass(frozen=True)
class Grant:
    """The scopes of a permission for reading and for writing. None grants nothing."""

    read: Scope | None = None
    write: Scope | None = None

    def of(self, action: Action) -> Scope | None:
        return self.read if action is Action.READ else self.write


@dataclass(frozen=True)
class Reach:
    """The fiches that a caller may see or act on. GROUP: those of `groupes`. SELF: those that the CRM
    attributes to `crm_user_id`. `caller` is the id of the caller."""

    scope: Scope
    groupes: frozenset[str] = frozenset()
    crm_user_id: str | None = None
    caller: str = ""

    @property
    def is_whole(self) -> bool:
        return self.scope is Scope.ALL


EVERYTHING = Reach(Scope.ALL)


@dataclass(frozen=True)
class Caller:
    """The owner of valid credentials. `id` distinguishes users from machines: `user:12`, `token:3`. A
    caller with an `org_id` belongs to that organisation and sees no other."""

    id: str
    grants: Mapping[Permission, Grant]
    name: str = ""
    groupes: frozenset[str] = frozenset()
    crm_user_id: str | None = None
    roles: tuple[str, ...] = field(default=())
    org_id: str | None = None

    @property
    def is_machine(self) -> bool:
        return not self.id.startswith("user:")

    def reach(self, permission: Permission, action: Action) -> Reach | None:
        """None if the caller lacks the permission."""
        scope = self.grants.get(permission, Grant()).of(action)
        return None if scope is None else Reach(scope, self.groupes, self.crm_user_id, self.id)


def whole_grants() -> Mapping[Permission, Grant]:
    return MappingProxyType(dict.fromkeys(Permission, Grant(Scope.ALL, Scope.ALL)))


def widest_grants(grants: Iterable[tuple[Permission, Grant]]) -> Mapping[Permission, Grant]:
    """The widest of several grants of a permission counts, separately for reading and writing."""
    together: dict[Permission, Grant] = {}
    for permission, grant in grants:
        known = together.get(permission, Grant())
        together[permission] = Grant(
            _wider(known.read, grant.read), _wider(known.write, grant.write)
        )
    return together


def _wider(one: Scope | None, other: Scope | None) -> Scope | None:
    return max((scope for scope in (one, other) if scope is not None), default=None)
