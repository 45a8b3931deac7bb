"""Checks of the web addresses that users enter: allowed are public ones, or those that an operator
lists. A host name is checked without resolving it; `clients.http` checks the resolved addresses at
each call."""

import re
import unicodedata
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

from automation_pipeline.core.errors import InvalidInputError

Address: TypeAlias = IPv4Address | IPv6Address

DEFAULT_PORTS = {"http": 80, "https": 443}

# Top-level labels that are reserved for private networks, or that routers and clouds use for them.
_PRIVATE_DOMAINS = frozenset(
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
        "168.63.129.16/32",  # the metadata service of Azure
    )
]  # fmt: skip
_PUBLIC_6 = ip_network("2000::/3")
_NOT_PUBLIC_6 = [
    ip_network(text) for text in ("2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20")
]
_NAT64 = ip_network("64:ff9b::/96")
_BLANK_OR_CONTROL = re.compile(r"[\s\x00-\x1f\x7f\\]")
_IPV4_PART = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")


def check_url(
    url: str,
    allowed_origins: Collection[str],
    *,
    name: str = "webhookUrl",
    setting: str = "WEBHOOK_ALLOWED_ORIGINS",
) -> None:
    """Raise InvalidInputError unless the address may be called. The message names the field (`name`)
    and the `setting` with the allowed origins.

    If there are allowed origins, only those may be called, including private ones.
    """
    message = f"Invalid {name} format"
    parts = _split(url, message)
    if parts.scheme not in DEFAULT_PORTS:
        raise InvalidInputError(f"{name} must use http or https protocol")
    if "@" in parts.netloc:
        raise InvalidInputError(f"{name} must not include credentials")
    origin = _origin(parts, message)
    if allowed_origins:
        if not is_listed(url, allowed_origins):
            raise InvalidInputError(f"{name} origin not allowed (set {setting}). Got {origin}")
        return
    fault = _private_fault(_host(parts, message), message)
    if fault is not None:
        raise InvalidInputError(f"{name} {fault}")


def check_https_url(url: str, exceptions: Collection[str], *, name: str, setting: str) -> None:
    """Raise InvalidInputError unless the address is public and uses https, or its origin is one of
    the exceptions."""
    if is_listed(url, exceptions):
        return
    message = f"Invalid {name} format"
    parts = _split(url, message)
    if parts.scheme != "https":
        fault = "must begin with https://"
    elif "@" in parts.netloc:
        raise InvalidInputError(f"{name} must not include credentials")
    else:
        fault = _private_fault(_host(parts, message), message)
    if fault is not None:
        raise InvalidInputError(
            f"{name} {fault} unless {setting} lists its origin. Got {origin_of(url)}"
        )


def is_listed(url: str, origins: Collection[str]) -> bool:
    return origin_of(url) in {origin_of(listed) for listed in origins}


def origin_of(url: str) -> str:
    """The normalised scheme, host and port, without the default port."""
    message = "The address has no origin"
    return _origin(_split(url, message), message)


def is_public(address: Address) -> bool:
    """Whether the address is reachable from the internet. IPv4 addresses in an IPv6 one decide for it."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    embedded = _embedded_addresses(address)
    if embedded:
        return all(is_public(each) for each in embedded)
    return address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)


def _embedded_addresses(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses to which packets for this address are forwarded."""
    if address.ipv4_mapped:
        return (address.ipv4_mapped,)
    if address.sixtofour:
        return (address.sixtofour,)
    if address.teredo:
        return address.teredo
    return (IPv4Address(int(address) & 0xFFFFFFFF),) if address in _NAT64 else ()


def _split(url: str, message: str) -> SplitResult:
    if _BLANK_OR_CONTROL.search(url):  # parsers treat these characters differently
        raise InvalidInputError(message)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidInputError(message) from None
    if not parts.scheme:
        raise InvalidInputError(message)
    return parts


def _origin(parts: SplitResult, message: str) -> str:
    host = _host(parts, message)
    try:
        port = parts.port
    except ValueError:
        raise InvalidInputError(message) from None
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + (
        f":{port}" if port not in {None, DEFAULT_PORTS.get(parts.scheme)} else ""
    )


def _host(parts: SplitResult, message: str) -> str:
    """The host as a resolver reads it: with plain instead of full-width letters and dots, and without
    a final dot."""
    host = (
        unicodedata.normalize("NFKC", parts.hostname or "")
        .lower()
        .replace("。", ".")
        .removesuffix(".")
    )
    labels = host.split(".")
    # Invisible characters, which some resolvers ignore, are not printable.
    if not all(labels) or not host.isprintable() or re.search(r"[%/?#@<>\"'|^`{}\s]", host):
        raise InvalidInputError(message)
    return host


def _private_fault(host: str, message: str) -> str | None:
    address = _parsed_address(host, message)
    if address is None:
        is_private = "." not in host or host.rpartition(".")[2] in _PRIVATE_DOMAINS
        return "hostname not allowed" if is_private else None
    return None if is_public(address) else "IP not allowed"


def _parsed_address(host: str, message: str) -> Address | None:
    """Parses every notation of an address that resolvers accept. None for a name."""
    if ":" in host:
        try:
            return ip_address(host)
        except ValueError:
            raise InvalidInputError(message) from None
    parts = host.split(".")
    if not _IPV4_PART.fullmatch(parts[-1]):
        return None
    try:
        return IPv4Address(_ipv4_number(parts))
    except ValueError:
        raise InvalidInputError(message) from None


def _ipv4_number(parts: list[str]) -> int:
    """`127.1` and `0x7f.0.0.1` are 127.0.0.1: the last part fills the remaining bytes."""
    *leading, last = (_part_value(part) for part in parts)
    limit = 256 ** (4 - len(leading))
    if len(parts) > 4 or any(value > 255 for value in leading) or last >= limit:
        raise ValueError(parts)
    return sum(value << (24 - 8 * index) for index, value in enumerate(leading)) + last


def _part_value(part: str) -> int:
    if not _IPV4_PART.fullmatch(part) or len(part) > 40:
        raise ValueError(part)
    if part[:2] in {"0x", "0X"}:
        return int(part[2:] or "0", 16)
    return int(part, 8) if part.startswith("0") else int(part)
