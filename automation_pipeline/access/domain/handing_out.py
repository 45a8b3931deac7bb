"""Nobody hands out, sees or revokes more than they have: what of a token is beyond whoever asks for it."""

from automation_pipeline.access.domain.api_token import ApiToken
from automation_pipeline.access.domain.permissions import grants_of
from automation_pipeline.access.domain.token_wish import TokenWish
from automation_pipeline.core.access import Action, Caller, Permission, Reach, Scope

Fault = tuple[str, str]
Token = TokenWish | ApiToken


def excess(wish: Token, giver: Caller) -> tuple[Fault, ...]:
    """By field; none when all of it is the giver's own."""
    own = [(f"{permission}.{action}", giver.reach(permission, action)) for permission, action in _wanted(wish)]
    missing = [word for word, reach in own if reach is None]
    further = [word for word, reach in own if reach is not None and not _is_within(wish, reach)]
    if giver.org_id is not None and wish.org_id != giver.org_id:
        return (("orgId", f"must be '{giver.org_id}', the organisation that you belong to"),)
    faults = (
        ("permissions", "you may not do yourself", missing),
        ("scope", "you do not reach that far with", further),
    )
    return tuple((field, f"{why}: {', '.join(words)}") for field, why, words in faults if words)


def _wanted(wish: Token) -> list[tuple[Permission, Action]]:
    grants = grants_of(wish.permissions, wish.scope)
    return [(permission, action) for permission in grants for action in Action if grants[permission].of(action)]


def _is_within(wish: Token, reach: Reach) -> bool:
    if reach.is_whole:
        return True
    if wish.scope is not reach.scope:
        return False
    if wish.scope is Scope.GROUP:
        return set(wish.groupes) <= reach.groupes
    return wish.crm_user_id == reach.crm_user_id
