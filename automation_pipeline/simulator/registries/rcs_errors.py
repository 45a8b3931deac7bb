"""What API Entreprise says when it says no: a list of errors, each with a code of its own."""

from starlette.responses import JSONResponse, Response

PROVIDER = "Infogreffe"
ERRORS = {
    401: ("00101", "Non autorisé", "Le jeton est absent ou n'est pas reconnu."),
    403: ("00100", "Accès interdit", "Le jeton n'ouvre pas cette ressource."),
    404: ("02003", "Entité non trouvée", "Le registre du commerce ne connaît pas ce numéro."),
    409: ("00015", "Conflit", "Un même appel est déjà en cours."),
    429: ("00429", "Trop de requêtes", "Le jeton a épuisé ses appels de cette minute."),
    451: (
        "00451",
        "Indisponible pour raison légale",
        "L'entité s'oppose à la diffusion de ses données.",
    ),
    500: ("00500", "Erreur interne", "API Entreprise a rencontré une erreur."),
    502: ("02999", "Erreur du fournisseur", "Le fournisseur a répondu par une erreur inconnue."),
    503: ("02001", "Fournisseur indisponible", "Le fournisseur est en maintenance."),
    504: ("02002", "Délai dépassé", "Le fournisseur n'a pas répondu à temps."),
}
PARAMETERS = {"siren": "00301", "context": "00201", "object": "00202", "recipient": "00203"}
_OF_PROVIDER = frozenset({404, 502, 503, 504})


def error(
    status: int, parameter: str | None = None, retry_in: int | None = None
) -> dict[str, object]:
    if parameter or status == 422:
        return _unprocessable(parameter or "siren")
    code, title, detail = ERRORS.get(
        status, (f"{status:05d}", "Erreur", f"Simulated answer {status}.")
    )
    meta: dict[str, object] = {"provider": PROVIDER} if status in _OF_PROVIDER else {}
    if retry_in is not None:
        meta["retry_in"] = retry_in
    return {"code": code, "title": title, "detail": detail, "source": {}, "meta": meta}


def errors(status: int, *parameters: str, retry_in: int | None = None) -> Response:
    headers = {} if retry_in is None else {"retry-after": str(retry_in)}
    message = [error(status, one) for one in parameters] or [error(status, retry_in=retry_in)]
    return JSONResponse({"errors": message}, status, headers)


def _unprocessable(parameter: str) -> dict[str, object]:
    return {
        "code": PARAMETERS[parameter],
        "title": "Entité non traitable",
        "detail": f"Le paramètre {parameter} est absent ou n'est pas correct.",
        "source": {"parameter": parameter},
        "meta": {},
    }
