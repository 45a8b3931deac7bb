"""What the name of a value says about it: a secret, somebody's personal data, or a mere count. See `masking`."""

import re
from functools import lru_cache

_WORD = re.compile(r"[A-Z]+(?![a-zà-ÿ])|[A-Z]?[a-zà-ÿ]+|[A-Z]+|\d+")

_SECRET = frozenset(
    {
        "authorization", "bearer", "cookie", "cookies", "credential", "credentials", "csrf", "jwt", "mdp", "pass",
        "passphrase", "passwd", "password", "passwords", "pwd", "secret", "secrets", "signature", "token", "tokens",
    }
)  # fmt: skip
_SECRET_KEYS = (
    "accesskey", "apikey", "authkey", "encryptionkey", "motdepasse", "privatekey", "sessionid", "signingkey",
)  # fmt: skip
_PERSONAL = frozenset(
    {
        "adresse", "adresses", "birthdate", "carte", "cartes", "courriel", "courriels", "email", "emails", "firstname",
        "fullname", "gsm", "iban", "lastname", "naissance", "nir", "phone", "phones", "prenom", "prenoms", "prénom",
        "prénoms", "rib", "secu", "surname", "tel", "telephone", "telephones", "téléphone", "téléphones", "username",
    }
)  # fmt: skip
# By themselves these are somebody's; with another word they are something's, as the name of an agency.
_PERSONAL_ALONE = frozenset({"mail", "mails", "mobile", "nom", "portable", "auth"})
_NAME = frozenset({"nom", "noms", "name", "names"})
_SOMEBODY = frozenset(
    {
        "assure", "client", "conjoint", "contact", "customer", "famille", "family", "first", "full", "jeune", "last",
        "maiden", "middle", "person", "personne", "prospect", "user", "utilisateur",
    }
)  # fmt: skip
_COUNTER = frozenset(
    {
        "accepted", "audio", "average", "avg", "budget", "cached", "completion", "count", "counts", "cut", "estimated",
        "failed", "input", "left", "length", "limit", "limits", "max", "maximum", "mean", "min", "minimum",
        "output", "prediction", "prompt", "reasoning", "rejected", "remaining", "sent", "size", "sum", "tokens",
        "total", "totals", "usage", "used",
    }
)  # fmt: skip
# What is said of a token, and is not the token.
_ABOUT_A_TOKEN = frozenset({"expires", "ttl", "type"})


def is_sensitive(key: str) -> bool:
    """Its value is a secret or personal, unless it is a mere number under the name of a counter."""
    words = words_of(key)
    named = set(words)
    joined = "".join(words)
    if named & _SECRET:
        return is_secret(key)
    return bool(
        is_secret(key) or named & _PERSONAL or joined in _PERSONAL_ALONE or (named & _NAME and named & _SOMEBODY)
    )


def is_secret(key: str) -> bool:
    """Its value gives access to something, as `is_sensitive`; what is personal is left out."""
    words = words_of(key)
    if not _SECRET.isdisjoint(words):
        return _ABOUT_A_TOKEN.isdisjoint(words)
    joined = "".join(words)
    return any(kind in joined for kind in _SECRET_KEYS)


def is_counter(key: str) -> bool:
    return not _COUNTER.isdisjoint(words_of(key))


@lru_cache(maxsize=4096)
def words_of(key: str) -> tuple[str, ...]:
    """`prospectNom`, `prospect_nom` and `Prospect-Nom` are two words each."""
    return tuple(word.lower() for word in _WORD.findall(key[:200]))
