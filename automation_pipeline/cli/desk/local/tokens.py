"""Tokens by the stages and stores."""

from collections.abc import Mapping, Sequence

from automation_pipeline.access.domain.api_token import ApiToken
from automation_pipeline.access.stages.create_token import IssuedToken, create_token
from automation_pipeline.access.stages.revoke_token import revoke_token
from automation_pipeline.access.store.tokens import list_tokens
from automation_pipeline.bootstrap import Services
from automation_pipeline.org_jobs.store.organisations import has_organisation


class LocalTokens:
    def __init__(self, services: Services) -> None:
        self._services = services

    def create(self, given: Mapping[str, object]) -> IssuedToken:
        return create_token(
            given,
            database=self._services.database,
            clock=self._services.clock,
            knows_organisation=has_organisation,
        )

    def listed(self, *, everything: bool) -> Sequence[ApiToken]:
        good_at = None if everything else self._services.clock.now()
        with self._services.database.reading() as session:
            return list_tokens(session, good_at=good_at)

    def revoke(self, token_id: int) -> ApiToken:
        return revoke_token(token_id, database=self._services.database, clock=self._services.clock)
