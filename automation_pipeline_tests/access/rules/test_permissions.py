"""Words for permissions: what they mean, what they come to together, what is no such word."""

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.access.models import grants_of, normalise_permissions, permission_error
from automation_pipeline.core.access import Action, Grant, Permission, Scope
from automation_pipeline_tests.tables import every_case

BASES = [*Permission, "*", "all"]
SUFFIXES = ["", ".read", ".auth", ".write", ".run", ".rerun", ".fetch", ".use", ".test"]
words = st.builds(str.__add__, st.sampled_from(BASES), st.sampled_from(SUFFIXES))


@every_case(
    ("given_words", "plain"),
    [
        (["automation.write"], ("automation.write",)),
        (["fiches"], ("fiches.read",)),
        (["audits.run"], ("audits.write",)),
        (["audits.rerun", "audits.read"], ("audits.write",)),
        (["realtime.auth"], ("realtime.read",)),
        (
            ["transcriptions.fetch", "chat.use", "realtime.test"],
            ("transcriptions.write", "chat.write", "realtime.write"),
        ),
        (["admin.users"], ("admin.users.read",)),
        (["admin.permissions.write"], ("admin.permissions.write",)),
        ([" Audit-Configs.WRITE "], ("audit-configs.write",)),
        (["audits", "fiches"], ("fiches.read", "audits.read")),
        (["pricing"], ("pricing.read",)),
        (["pricing.write"], ("pricing.write",)),
        (["pricing.run"], ("pricing.write",)),
        (["pricing.runs"], ("pricing.runs.read",)),
        (["pricing.policies.write", "pricing.run"], ("pricing.write", "pricing.policies.write")),
        (["pricing.runs.write", "pricing.read"], ("pricing.read", "pricing.runs.write")),
        (["*"], ("*",)),
        (["all"], ("*",)),
        (["all.read"], ("*.read",)),
        (["*.write", "fiches"], ("*",)),
        (["*.read", "fiches.read", "audits.run"], ("*.read", "audits.write")),
    ],
)
def test_words_come_to_these(given_words: list[str], plain: tuple[str, ...]) -> None:
    assert normalise_permissions(given_words) == plain


@every_case(
    "word",
    [
        "",
        " ",
        "nope",
        "fiches.delete",
        "fiches.",
        ".read",
        "read",
        "fiches.read.read",
        "admin",
        "admin.read",
        "**",
        "pricing.runs.run.read",
    ],
)
def test_other_words_are_refused_and_grant_nothing(word: str) -> None:
    assert permission_error(word)
    assert normalise_permissions([word]) == ()
    assert grants_of([word], Scope.ALL) == {}


def test_the_complaint_names_what_can_be_said() -> None:
    complaint = permission_error("nope")
    assert complaint is not None
    assert all(permission in complaint for permission in Permission)


@given(st.lists(words, min_size=1), st.sampled_from(Scope))
def test_plain_words_mean_the_same_and_are_plain_already(
    given_words: list[str], scope: Scope
) -> None:
    plain = normalise_permissions(given_words)
    assert normalise_permissions(plain) == plain
    assert grants_of(plain, scope) == grants_of(given_words, scope)
    assert not any(map(permission_error, given_words))


@given(st.lists(words, min_size=1), st.sampled_from(Scope))
def test_who_may_write_may_read_and_no_grant_goes_beyond_the_scope(
    given_words: list[str], scope: Scope
) -> None:
    for grant in grants_of(given_words, scope).values():
        assert grant in {Grant(scope, None), Grant(scope, scope)}


@given(st.lists(words, min_size=1))
def test_words_about_one_permission_grant_nothing_of_another(given_words: list[str]) -> None:
    named = {word.removesuffix(suffix) for word in given_words for suffix in SUFFIXES}
    granted = set(grants_of(given_words, Scope.ALL))
    assert granted == (set(Permission) if named & {"*", "all"} else named & set(Permission))


def test_everything_is_every_permission_in_both_ways() -> None:
    grants = grants_of(["*"], Scope.GROUP)
    assert set(grants) == set(Permission)
    assert all(grant.of(action) is Scope.GROUP for grant in grants.values() for action in Action)
