"""Words for what a token may do: `automation.write`, `fiches`, `audits.run`, `*`. To write includes to read."""

from collections.abc import Iterable, Mapping

from automation_pipeline.core.access import Action, Grant, Permission, Scope, united

# What those who belong to an organisation may be allowed; all else knows nothing of organisations.
OF_ORGANISATIONS = frozenset({Permission.ORG_JOBS, Permission.ORG_JOBS_AGENTS, Permission.ENRICHMENT})

_ANY = "*"
_BASES = (_ANY, *Permission)
_ACTIONS: Mapping[str, Action] = {
    **dict.fromkeys(("read", "auth"), Action.READ),
    **dict.fromkeys(("write", "run", "rerun", "fetch", "use", "test"), Action.WRITE),
}


def word_fault(word: str) -> str | None:
    """Why it is no word for a permission."""
    if _meaning(word) is not None:
        return None
    return (
        f"is not a permission: say {', '.join(Permission)}, alone or with .read or .write, or * for everything"
        if word.strip()
        else "must not be empty"
    )


def plain_words(words: Iterable[str]) -> tuple[str, ...]:
    """The same permissions, each once, as `automation.write`; `*` and `*.read` stand for what they include."""
    strongest: dict[str, Action] = {}
    for base, action in filter(None, map(_meaning, words)):
        if action is Action.WRITE or base not in strongest:
            strongest[base] = action
    of_any = strongest.get(_ANY)
    return tuple(
        _word(base, strongest[base])
        for base in _BASES
        if base in strongest and (base == _ANY or of_any not in {Action.WRITE, strongest[base]})
    )


def grants_of(words: Iterable[str], scope: Scope) -> Mapping[Permission, Grant]:
    """A word that means nothing grants nothing."""
    return united(
        (permission, Grant(scope, scope if action is Action.WRITE else None))
        for base, action in filter(None, map(_meaning, words))
        for permission in (Permission if base == _ANY else (Permission(base),))
    )


def beyond_organisations(words: Iterable[str]) -> tuple[str, ...]:
    """Those of plain words that say more than whoever belongs to an organisation may be allowed."""
    return tuple(word for word in words if not grants_of([word], Scope.ALL).keys() <= OF_ORGANISATIONS)


def _meaning(word: str) -> tuple[str, Action] | None:
    text = word.strip().lower()
    if text == "all" or text.startswith("all."):
        text = _ANY + text.removeprefix("all")
    if text in _BASES:
        return text, Action.WRITE if text == _ANY else Action.READ
    base, _, suffix = text.rpartition(".")
    action = _ACTIONS.get(suffix)
    return (base, action) if base in _BASES and action is not None else None


def _word(base: str, action: Action) -> str:
    return _ANY if (base, action) == (_ANY, Action.WRITE) else f"{base}.{action}"
