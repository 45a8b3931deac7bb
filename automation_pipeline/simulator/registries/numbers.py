"""SIREN and SIRET as numbers: their check digits, La Poste's exception, and the VAT number."""

LA_POSTE = "356000000"
SIREN_DIGITS, SIRET_DIGITS = 9, 14


def is_digits(text: str, length: int) -> bool:
    return len(text) == length and text.isascii() and text.isdecimal()


def passes_luhn(number: str) -> bool:
    return _luhn_sum(number) % 10 == 0


def checked(number: str) -> str:
    """The number and its check digit."""
    return number + str(-_luhn_sum(number + "0") % 10)


def is_siren(text: str) -> bool:
    return is_digits(text, SIREN_DIGITS) and passes_luhn(text)


def is_siret(text: str) -> bool:
    if not is_digits(text, SIRET_DIGITS):
        return False
    return passes_luhn(text) or (text.startswith(LA_POSTE) and sum(map(int, text)) % 5 == 0)


def nic(siren: str, place: int) -> str:
    """Of a SIREN's establishment with this place, five digits."""
    return checked(f"{siren}{place:04d}")[SIREN_DIGITS:]


def vat_number(siren: str) -> str:
    return f"FR{(12 + 3 * (int(siren) % 97)) % 97:02d}{siren}"


def _luhn_sum(number: str) -> int:
    doubled = (int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(number)))
    return sum(value - 9 if value > 9 else value for value in doubled)
