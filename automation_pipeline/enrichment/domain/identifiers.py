"""SIREN and SIRET: their formats are refused, their check digits only warned of, unless somebody wants it strict."""

import re
from dataclasses import dataclass

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.enrichment.domain.vocabulary import ErrorCode

COMPLAINT = "Invalid company identifier"
LA_POSTE = "356000000"
_LEFT_OUT = re.compile(r"[\s.\u00a0\u202f-]")
_SIREN, _SIRET = re.compile(r"[0-9]{9}"), re.compile(r"[0-9]{14}")


class IdentifierError(InvalidInputError):
    """`code` is the contract's word for what is wrong."""

    def __init__(self, code: ErrorCode, field: str, problem: str) -> None:
        super().__init__(COMPLAINT, ((field, problem),))
        self.code = code


@dataclass(frozen=True)
class Identifiers:
    """`siren` is derived where only a SIRET was given. `warnings`: check digits that are wrong, as sentences."""

    siren: str
    siret: str | None = None
    warnings: tuple[str, ...] = ()


def parse_identifiers(siren_raw: str | None, siret_raw: str | None, *, strict: bool = False) -> Identifiers:
    """IdentifierError: nothing is given, a format is wrong, or the two are of different companies."""
    siren, siret = _bare(siren_raw), _bare(siret_raw)
    if siren is None and siret is None:
        raise IdentifierError(ErrorCode.MISSING_COMPANY_IDENTIFIER, "siren", "a SIREN or a SIRET is required")
    if siren is not None and (not _SIREN.fullmatch(siren) or not int(siren)):
        raise IdentifierError(ErrorCode.INVALID_SIREN_FORMAT, "siren", "must be nine digits, not all of them zero")
    if siret is not None and (not _SIRET.fullmatch(siret) or not int(siret[:9])):
        raise IdentifierError(ErrorCode.INVALID_SIRET_FORMAT, "siret", "must be fourteen digits, after a real SIREN")
    if siren is not None and siret is not None and not siret.startswith(siren):
        raise IdentifierError(ErrorCode.SIREN_SIRET_MISMATCH, "siret", "must begin with the SIREN")
    found = siren or (siret or "")[:9]
    warnings = tuple(_warnings(found, siret))
    if strict and warnings:
        code = ErrorCode.INVALID_SIREN_FORMAT if not is_siren_sound(found) else ErrorCode.INVALID_SIRET_FORMAT
        raise IdentifierError(code, "siren" if code is ErrorCode.INVALID_SIREN_FORMAT else "siret", warnings[0])
    return Identifiers(found, siret, warnings)


def is_siren_sound(siren: str) -> bool:
    return _luhn(siren)


def is_siret_sound(siret: str) -> bool:
    """Those of La Poste's offices follow a rule of their own."""
    return _luhn(siret) or (siret.startswith(LA_POSTE) and sum(map(int, siret)) % 5 == 0)


def vat_number(siren: str) -> str:
    return f"FR{(12 + 3 * (int(siren) % 97)) % 97:02d}{siren}"


def _warnings(siren: str, siret: str | None) -> list[str]:
    told: list[str] = []
    if not is_siren_sound(siren):
        told.append(f"the check digit of the SIREN {siren} is wrong")
    if siret is not None and not is_siret_sound(siret):
        told.append(f"the check digit of the SIRET {siret} is wrong")
    return told


def _bare(raw: str | None) -> str | None:
    bare = _LEFT_OUT.sub("", raw) if raw is not None else ""
    return bare or None


def _luhn(digits: str) -> bool:
    """From the right every second digit is doubled; nine is taken off what is more than nine."""
    doubled = (int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits)))
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0
