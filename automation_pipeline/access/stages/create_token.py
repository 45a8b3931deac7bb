"""Make a token for a machine. Its secret exists in the answer alone."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from automation_pipeline.access.domain.api_token import ApiToken, token_id_of
from automation_pipeline.access.domain.handing_out import excess
from automation_pipeline.access.domain.token import SECRET_BYTES, token_of
from automation_pipeline.access.domain.token_wish import COMPLAINT, parse_wish
from automation_pipeline.access.store import tokens
from automation_pipeline.core.access import Caller
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.storage.database import Database, Session

# Organisations are kept above this room.
KnowsOrganisation = Callable[[Session, str], bool]


@dataclass(frozen=True)
class IssuedToken:
    """`secret` is the whole token, to be shown once."""

    token: ApiToken
    secret: str = field(repr=False)


def _knows_none(_session: Session, _org_id: str) -> bool:
    return False


def create_token(
    given: Mapping[str, object],
    *,
    database: Database,
    clock: Clock,
    giver: Caller | None = None,
    knows_organisation: KnowsOrganisation = _knows_none,
) -> IssuedToken:
    """InvalidInputError names every field at fault, also those that are beyond the `giver`; an operator at the
    command line has none. It ends with the giver's own token at the latest."""
    wish, secret = parse_wish(given), token_of(secrets.token_bytes(SECRET_BYTES))
    faults = () if giver is None else excess(wish, giver)
    if faults:
        raise InvalidInputError(COMPLAINT, faults)
    with database.transaction() as session:
        if wish.org_id is not None and not knows_organisation(session, wish.org_id):
            raise InvalidInputError(COMPLAINT, (("orgId", f"there is no organisation {wish.org_id!r}"),))
        parent = None if giver is None else token_id_of(giver)
        end = None if parent is None else tokens.expiry_of(session, parent)
        return IssuedToken(tokens.add_token(session, wish, secret, clock.now(), not_after=end), secret)
