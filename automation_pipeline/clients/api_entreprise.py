"""API Entreprise over HTTP, the extract of the register of commerce: `enrichment.ports.Registry`. Public bodies only:
each call says for whom, why and in which matter it is made.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from urllib.parse import quote

import httpx

from automation_pipeline.clients.api_entreprise_payloads import company_of, errors_of
from automation_pipeline.clients.registry_http import Answer, Registered, RegistryHttp, raise_if_wrong
from automation_pipeline.clients.registry_payloads import NotUnderstoodError
from automation_pipeline.core.meter import Meter
from automation_pipeline.enrichment.domain.record import SourceError, SourceRecord

RCS = Registered("API Entreprise", "api_entreprise", "API_ENTREPRISE_BASE_URL", "API_ENTREPRISE_TOKEN")
# Nobody has it: the question is refused for that alone once the token and the purpose are accepted.
NOBODY = "000000000"
UNKNOWN, BAD_SIREN = "02003", "00301"
ADVICE: Mapping[str, str] = {
    "00201": "check API_ENTREPRISE_CONTEXT",
    "00202": "check API_ENTREPRISE_OBJECT",
    "00203": "check API_ENTREPRISE_RECIPIENT, which must not be the company that is asked for",
}


@dataclass(frozen=True)
class Purpose:
    """For whom we ask (the SIRET of a public body), why, and in which matter."""

    recipient: str
    context: str
    object: str

    def parameters(self) -> dict[str, str]:
        return {"recipient": self.recipient, "context": self.context, "object": self.object}


@dataclass(frozen=True)
class Bearer:
    token: str = field(repr=False)


class CommerceRegister:
    def __init__(  # noqa: PLR0913  what a connection needs, by name
        self,
        base_url: str,
        bearer: Bearer,
        purpose: Purpose,
        *,
        now: Callable[[], datetime],
        timeout_seconds: float = 5.0,
        meter: Meter | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._bearer, self._purpose = bearer, purpose
        self._http = RegistryHttp(
            RCS, base_url, now=now, timeout_seconds=timeout_seconds, meter=meter, transport=transport
        )

    async def fetch(self, siren: str, siret: str | None) -> SourceRecord | SourceError:
        _ = siret  # the register tells of companies alone
        answer = await self._ask(siren)
        if isinstance(answer, SourceError):
            return answer
        if answer.status != 200:
            return self._refusal(answer)
        try:
            return company_of(answer.body, siren)
        except NotUnderstoodError as error:
            return self._http.not_understood(str(error))

    async def check(self) -> None:
        answer = await self._ask(NOBODY)
        if isinstance(answer, SourceError):
            raise_if_wrong(answer)
            return
        codes, _ = errors_of(answer.body)
        if not codes or set(codes) - {UNKNOWN, BAD_SIREN}:
            raise_if_wrong(self._refusal(answer))

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _ask(self, siren: str) -> Answer | SourceError:
        path = f"/v3/infogreffe/rcs/unites_legales/{quote(siren, safe='')}/extrait_kbis"
        return await self._http.get(path, self._purpose.parameters(), self._bearer.token)

    def _refusal(self, answer: Answer) -> SourceError:
        codes, wait = errors_of(answer.body)
        hints = [ADVICE.get(code, f"code {code}") for code in codes if code != BAD_SIREN] or list(codes)
        refusal = self._http.refusal(answer, hints[0] if hints and answer.status in {400, 422} else "")
        return refusal if refusal.retry_after_seconds else replace(refusal, retry_after_seconds=wait)
