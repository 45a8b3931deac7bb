"""The CRM's HTTP endpoints: the sales list by day, a fiche by id, health. All paths under /api
require the bearer token."""

import hmac
import json
from collections.abc import Awaitable, Callable
from datetime import date, timedelta

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.simulator.crm.sections import (
    Section,
    details_json,
    french_minute,
    recording_json,
)
from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.world.world import Fiche, Kind, World

SALE_STATUS = "53"
MAX_DAYS = 366


class _InvalidQueryError(Exception):
    pass


Handler = Callable[[Request], Response]


def endpoints(world: World, token: str) -> list[Endpoint]:
    async def health(_request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    def sales_list(request: Request) -> Response:
        first, last = _period(request)
        if request.query_params.get("status_id", SALE_STATUS) != SALE_STATUS:
            return _json({"fiches": [], "total": 0})
        with_recordings = _flag(request, "include_recordings", default=False)
        with_transcription = _flag(request, "include_transcriptions", default=False)
        days = (first + timedelta(days=number) for number in range((last - first).days + 1))
        sales = [
            _summary(fiche, _calls(fiche, request, with_transcription) if with_recordings else [])
            for day in days
            for fiche in world.day(day)
        ]
        return _json({"fiches": sales, "total": len(sales)})

    def details(request: Request) -> Response:
        fiche_id = request.path_params["fiche_id"]
        with_recordings = _flag(request, "include_recordings", default=True)
        with_transcription = _flag(request, "include_transcriptions", default=False)
        with_mail_devis = _flag(request, "include_mail_devis", default=False)
        fiche = world.fiche(fiche_id)
        if fiche is None or fiche.kind is Kind.MISSING:
            return JSONResponse({"detail": f"Fiche {fiche_id} not found"}, 404)
        calls = _calls(fiche, request, with_transcription) if with_recordings else []
        return _json(details_json(fiche, calls, with_mail_devis=with_mail_devis))

    guarded = _bearer(token)
    return [
        Endpoint(
            name="crm.sales_list",
            path="/api/fiches/sales-with-calls",
            handler=guarded(sales_list),
            item=_requested_period,
        ),
        Endpoint(
            name="crm.details",
            path="/api/fiches/by-id/{fiche_id}",
            handler=guarded(details),
            item=lambda request: request.path_params["fiche_id"],
        ),
        Endpoint(name="crm.health", path="/health", handler=health, item=lambda _: "health"),
    ]


def _bearer(token: str) -> Callable[[Handler], Callable[[Request], Awaitable[Response]]]:
    expected = f"bearer {token}".encode()

    def guarded(handle: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            if not hmac.compare_digest(f"{scheme.lower()} {given}".encode("latin-1"), expected):
                return JSONResponse(
                    {"detail": "Not authenticated"}, 401, {"www-authenticate": "Bearer"}
                )
            try:
                return handle(request)
            except _InvalidQueryError as error:
                return JSONResponse({"detail": str(error)}, 422)

        return answer

    return guarded


def _requested_period(request: Request) -> str:
    first, last = (request.query_params.get(name, "") for name in ("start_date", "end_date"))
    return first if first == last else f"{first}/{last}"


def _period(request: Request) -> tuple[date, date]:
    first, last = _day(request, "start_date"), _day(request, "end_date")
    if last < first:
        raise _InvalidQueryError("end_date is before start_date")
    if (last - first).days >= MAX_DAYS:
        raise _InvalidQueryError(f"at most {MAX_DAYS} days can be requested at once")
    return first, last


def _day(request: Request, name: str) -> date:
    text = request.query_params.get(name, "")
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or day.isoformat() != text:
        raise _InvalidQueryError(f"{name} must be a day as YYYY-MM-DD")
    return day


def _flag(request: Request, name: str, *, default: bool) -> bool:
    text = request.query_params.get(name)
    if text is None:
        return default
    if text not in {"true", "false"}:
        raise _InvalidQueryError(f"{name} must be true or false")
    return text == "true"


def _calls(fiche: Fiche, request: Request, with_transcription: bool) -> list[Section]:
    origin = f"http://{request.url.netloc}"  # the host and port that the caller used
    return [
        recording_json(call, origin, with_transcription=with_transcription)
        for call in fiche.recordings
    ]


def _summary(fiche: Fiche, recordings: list[Section]) -> Section:
    prospect = fiche.prospect
    return {
        "id": fiche.id,
        "cle": fiche.listed_cle,
        "nom": prospect.nom,
        "prenom": prospect.prenom,
        "telephone": prospect.telephone,
        "telephone_2": prospect.telephone_2,
        "email": prospect.email,
        "statut": "Vente",
        "date_insertion": french_minute(fiche.inserted_at),
        "date_modification": french_minute(fiche.modified_at) if fiche.modified_at else None,
        "recordings": recordings,
    }


def _json(payload: Section) -> Response:
    body = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, media_type="application/json")
