"""What a machine's token looks like and what recognises it: its hash, all that is ever stored. What it may do is in
`api_token`."""

import base64
import hashlib
import hmac
import re

SECRET_BYTES = 32
_MARK = "apt_"
_TOKEN = re.compile(_MARK + r"[A-Za-z0-9_-]{43}")


def token_of(secret: bytes) -> str:
    return _MARK + base64.urlsafe_b64encode(secret).rstrip(b"=").decode()


def is_token(text: str) -> bool:
    return _TOKEN.fullmatch(text) is not None


def token_hash(token: str) -> str:
    """Without salt, and of a fast function: there are too many tokens for anybody to try them."""
    return hashlib.sha256(token.encode()).hexdigest()


def is_same_hash(one: str, other: str) -> bool:
    """In constant time."""
    return hmac.compare_digest(one, other)


def shown_part(token: str) -> str:
    """Its beginning: enough to tell tokens apart, and no use to a thief."""
    return token[: len(_MARK) + 6]
