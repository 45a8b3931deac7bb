"""A stored token: how long it is good, who it is, and what people see of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from automation_pipeline.access.models import ORGANISATION_PERMISSIONS, ApiToken, token_document
from automation_pipeline.core.access import Action, Permission, Reach, Scope
from automation_pipeline_tests.tables import every_case

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
TOKEN = ApiToken(
    id=3,
    name="nightly",
    token_hash="0" * 64,
    prefix="apt_abcdef",
    permissions=("automation.write", "fiches.read"),
    scope=Scope.GROUP,
    groupes=("NORD",),
    crm_user_id=None,
    created_at=NOW,
    expires_at=None,
    last_used_at=None,
    revoked_at=None,
)


@every_case(
    ("expires", "revoked", "state"),
    [
        (None, None, "active"),
        (NOW + MOMENT, None, "active"),
        (NOW, None, "expired"),
        (NOW - MOMENT, None, "expired"),
        (None, NOW, "revoked"),
        (NOW - MOMENT, NOW, "revoked"),
        (None, NOW + timedelta(days=1), "revoked"),
    ],
)
def test_a_token_is_good_until_it_expires_or_is_revoked(
    expires: datetime | None, revoked: datetime | None, state: str
) -> None:
    assert replace(TOKEN, expires_at=expires, revoked_at=revoked).state(NOW) == state


@every_case(
    ("seconds_ago", "worth"),
    [(None, True), (60, True), (3600, True), (59.9, False), (0, False), (-90, False)],
)
def test_a_use_is_noted_once_a_minute(seconds_ago: float | None, worth: bool) -> None:
    last = None if seconds_ago is None else NOW - timedelta(seconds=seconds_ago)
    assert replace(TOKEN, last_used_at=last).should_record_use(NOW) is worth


def test_the_caller_is_a_machine_with_the_tokens_reach() -> None:
    caller = TOKEN.caller()
    assert (caller.id, caller.name, caller.is_machine) == ("token:3", "nightly", True)
    reach = Reach(Scope.GROUP, frozenset({"NORD"}), None, "token:3")
    assert caller.reach(Permission.AUTOMATION, Action.WRITE) == reach
    assert caller.reach(Permission.AUTOMATION, Action.READ) == reach
    assert caller.reach(Permission.FICHES, Action.READ) == reach
    assert caller.reach(Permission.FICHES, Action.WRITE) is None
    assert caller.reach(Permission.AUDITS, Action.READ) is None


def test_the_caller_of_an_organisation_may_nothing_beyond_it() -> None:
    words = (
        "org-jobs.write",
        "org-jobs.agents.read",
        "automation.write",
        "organisations.write",
        "*",
    )
    caller = replace(TOKEN, permissions=words, scope=Scope.ALL, groupes=(), org_id="acme").caller()
    assert (caller.org_id, set(caller.grants)) == ("acme", ORGANISATION_PERMISSIONS)
    assert caller.reach(Permission.ORG_JOBS, Action.WRITE) == Reach(Scope.ALL, caller="token:3")
    assert TOKEN.caller().org_id is None


def test_people_see_all_but_the_hash() -> None:
    shown = token_document(replace(TOKEN, revoked_at=NOW), NOW)
    assert shown == {
        "id": "3", "name": "nightly", "prefix": "apt_abcdef", "state": "revoked",
        "permissions": ["automation.write", "fiches.read"], "scope": "GROUP", "groupes": ["NORD"], "crmUserId": None,
        "orgId": None,
        "createdAt": "2026-05-04T10:00:00.000Z", "expiresAt": None, "lastUsedAt": None,
        "revokedAt": "2026-05-04T10:00:00.000Z",
    }  # fmt: skip
    assert TOKEN.token_hash not in repr(TOKEN)
