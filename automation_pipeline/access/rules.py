"""Rules of delegation: callers issue, see and revoke only tokens that may do no more than themselves."""

from automation_pipeline.access.models import ApiToken, TokenInput, grants_of
from automation_pipeline.core.access import Action, Caller, Permission, Reach, Scope

FieldError = tuple[str, str]
TokenOrRequest = TokenInput | ApiToken


def excess_grants(request: TokenOrRequest, issuer: Caller) -> tuple[FieldError, ...]:
    """Errors by field for what exceeds the issuer's permissions, reach or organisation."""
    own = [
        (f"{permission}.{action}", issuer.reach(permission, action))
        for permission, action in _requested_grants(request)
    ]
    missing = [word for word, reach in own if reach is None]
    further = [word for word, reach in own if reach is not None and not _is_within(request, reach)]
    if issuer.org_id is not None and request.org_id != issuer.org_id:
        return (("orgId", f"must be '{issuer.org_id}', the organisation that you belong to"),)
    faults = (
        ("permissions", "you may not do yourself", missing),
        ("scope", "you do not reach that far with", further),
    )
    return tuple((field, f"{why}: {', '.join(words)}") for field, why, words in faults if words)


def _requested_grants(request: TokenOrRequest) -> list[tuple[Permission, Action]]:
    grants = grants_of(request.permissions, request.scope)
    return [
        (permission, action)
        for permission in grants
        for action in Action
        if grants[permission].of(action)
    ]


def _is_within(request: TokenOrRequest, reach: Reach) -> bool:
    if reach.is_whole:
        return True
    if request.scope is not reach.scope:
        return False
    if request.scope is Scope.GROUP:
        return set(request.groupes) <= reach.groupes
    return request.crm_user_id == reach.crm_user_id
