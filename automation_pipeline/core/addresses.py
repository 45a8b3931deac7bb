"""Which web addresses that users enter may be called: public ones, or those that an operator lists.
A name is judged by its form only; `clients.http` checks the addresses that it resolves to at each
call."""

import re
import unicodedata
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

from automation_pipeline.core.errors import InvalidInputError

Address: TypeAlias = IPv4Address | IPv6Address

DEFAULT_PORTS = {"http": 80, "https": 443}

# Top labels that are only ever names inside a network: reserved for it, or used so by routers and
# clouds.
_INNER = frozenset(
    {
        "localhost",
        "local",
        "localdomain",
        "internal",
        "intranet",
        "private",
        "corp",
        "home",
        "lan",
        "arpa",
    }
)
_NOT_PUBLIC_4 = [
    ip_network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "168.63.129.16/32",  # looks public, and is the metadata service of Azure
    )
]  # fmt: skip
_PUBLIC_6 = ip_network("2000::/3")
_NOT_PUBLIC_6 = [
    ip_network(text) for text in ("2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20")
]
_NAT64 = ip_network("64:ff9b::/96")
_BLANK_OR_CONTROL = re.compile(r"[\s\x00-\x1f\x7f\\]")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")


def check_url(
    url: str,
    allowed_origins: Collection[str],
    *,
    name: str = "webhookUrl",
    setting: str = "WEBHOOK_ALLOWED_ORIGINS",
) -> None:
    """InvalidInputError unless the address may be called. The sentence contains its `name` and the
    `setting` with the allowed origins.

    With a list of origins only those are allowed, private ones included.
    """
    complaint = f"Invalid {name} format"
    parts = _split(url, complaint)
    if parts.scheme not in DEFAULT_PORTS:
        raise InvalidInputError(f"{name} must use http or https protocol")
    if "@" in parts.netloc:
        raise InvalidInputError(f"{name} must not include credentials")
    origin = _origin(parts, complaint)
    if allowed_origins:
        if not is_listed(url, allowed_origins):
            raise InvalidInputError(f"{name} origin not allowed (set {setting}). Got {origin}")
        return
    fault = _inner_fault(_host(parts, complaint), complaint)
    if fault is not None:
        raise InvalidInputError(f"{name} {fault}")


def check_https_url(url: str, exceptions: Collection[str], *, name: str, setting: str) -> None:
    """Like `check_url`, but the listed origins are exceptions: every other address must be public
    and use https."""
    if is_listed(url, exceptions):
        return
    complaint = f"Invalid {name} format"
    parts = _split(url, complaint)
    if parts.scheme != "https":
        fault = "must begin with https://"
    elif "@" in parts.netloc:
        raise InvalidInputError(f"{name} must not include credentials")
    else:
        fault = _inner_fault(_host(parts, complaint), complaint)
    if fault is not None:
        raise InvalidInputError(
            f"{name} {fault} unless {setting} lists its origin. Got {origin_of(url)}"
        )


def is_listed(url: str, origins: Collection[str]) -> bool:
    return origin_of(url) in {origin_of(listed) for listed in origins}


def origin_of(url: str) -> str:
    """Scheme, host and port in one form, without the default port."""
    complaint = "The address has no origin"
    return _origin(_split(url, complaint), complaint)


def is_public(address: Address) -> bool:
    """Reachable from the internet. An IPv6 address that stands for an IPv4 one is judged by that."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    inner = _inner_addresses(address)
    if inner:
        return all(is_public(each) for each in inner)
    return address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)


def _inner_addresses(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that packets to it are forwarded to."""
    if address.ipv4_mapped:
        return (address.ipv4_mapped,)
    if address.sixtofour:
        return (address.sixtofour,)
    if address.teredo:
        return address.teredo
    return (IPv4Address(int(address) & 0xFFFFFFFF),) if address in _NAT64 else ()


def _split(url: str, complaint: str) -> SplitResult:
    if _BLANK_OR_CONTROL.search(url):  # parsers disagree on what these do to a host
        raise InvalidInputError(complaint)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidInputError(complaint) from None
    if not parts.scheme:
        raise InvalidInputError(complaint)
    return parts


def _origin(parts: SplitResult, complaint: str) -> str:
    host = _host(parts, complaint)
    try:
        port = parts.port
    except ValueError:
        raise InvalidInputError(complaint) from None
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + (
        f":{port}" if port not in {None, DEFAULT_PORTS.get(parts.scheme)} else ""
    )


def _host(parts: SplitResult, complaint: str) -> str:
    """As a resolver reads it: full-width letters and dots count as plain ones, and a final dot is
    dropped."""
    host = (
        unicodedata.normalize("NFKC", parts.hostname or "")
        .lower()
        .replace("。", ".")
        .removesuffix(".")
    )
    labels = host.split(".")
    if not all(labels) or re.search(r"[%/?#@<>\"'|^`{}\s]", host):
        raise InvalidInputError(complaint)
    return host


def _inner_fault(host: str, complaint: str) -> str | None:
    address = _literal(host, complaint)
    if address is None:
        is_inner = "." not in host or host.rpartition(".")[2] in _INNER
        return "hostname not allowed" if is_inner else None
    return None if is_public(address) else "IP not allowed"


def _literal(host: str, complaint: str) -> Address | None:
    """The address in any notation that a resolver accepts; None for a name."""
    if ":" in host:
        try:
            return ip_address(host)
        except ValueError:
            raise InvalidInputError(complaint) from None
    parts = host.split(".")
    if not _NUMBER.fullmatch(parts[-1]):
        return None
    try:
        return IPv4Address(_number(parts))
    except ValueError:
        raise InvalidInputError(complaint) from None


def _number(parts: list[str]) -> int:
    """`127.1` and `0x7f.0.0.1` are 127.0.0.1: the last part fills the remaining bytes."""
    *leading, last = (_value(part) for part in parts)
    limit = 256 ** (4 - len(leading))
    if len(parts) > 4 or any(value > 255 for value in leading) or last >= limit:
        raise ValueError(parts)
    return sum(value << (24 - 8 * place) for place, value in enumerate(leading)) + last


def _value(part: str) -> int:
    if not _NUMBER.fullmatch(part) or len(part) > 40:
        raise ValueError(part)
    if part[:2] in {"0x", "0X"}:
        return int(part[2:] or "0", 16)
    return int(part, 8) if part.startswith("0") else int(part)
