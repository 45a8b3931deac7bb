"""Validation of user-supplied URLs: allowed ones, rejected ones, and the error messages."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from socket import inet_aton, inet_ntoa

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.addresses import check_url, is_public, origin_of
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline_tests.cases import every_case

FORMAT = "Invalid webhookUrl format"
PROTOCOL = "webhookUrl must use http or https protocol"
CREDENTIALS = "webhookUrl must not include credentials"
HOSTNAME = "webhookUrl hostname not allowed"
IP = "webhookUrl IP not allowed"


def rejection(url: str, *allowed: str) -> str | None:
    try:
        check_url(url, allowed)
    except InvalidInputError as error:
        return str(error)
    return None


@every_case(
    "url",
    [
        "https://hooks.example.com/automation?key=1",
        "http://example.com:8080",
        "https://EXAMPLE.com./",
        "https://münchen.example/",
        "https://8.8.8.8/",
        "http://134744072/",  # 8.8.8.8 as one number
        "https://[2606:4700::1111]/",
        "https://[::ffff:8.8.8.8]/",
        "https://local.example.com",
        "https://localhost.example.com",
        "https://my_hooks.example.com",
    ],
)
def test_public_urls_are_allowed(url: str) -> None:
    assert rejection(url) is None


@every_case(
    ("url", "expected"),
    [
        ("", FORMAT),
        ("hooks.example.com", FORMAT),
        ("//hooks.example.com", FORMAT),
        ("http://", FORMAT),
        ("http:///path", FORMAT),
        ("http://exa mple.com", FORMAT),
        ("http://example.com/\nHost: x", FORMAT),
        ("http://example.com\\@127.0.0.1/", FORMAT),
        ("http://example.com\t/", FORMAT),
        ("http://example..com", FORMAT),
        ("http://.", FORMAT),
        ("http://example.com:99999", FORMAT),
        ("http://example.com:port", FORMAT),
        ("http://[::1", FORMAT),
        ("http://[fe80::1%25eth0]/", FORMAT),
        ("http://%31%32%37.0.0.1/", FORMAT),
        # Some resolvers ignore these invisible characters.
        ("http://127.0.0.1\u200b/", FORMAT),
        ("http://127.0.0.1\u00ad/", FORMAT),
        ("http://exam\u2060ple.com/", FORMAT),
        ("http://1.2.3.4.5/", FORMAT),
        ("http://1.2.3.4.0/", FORMAT),
        ("http://1.256.1.1/", FORMAT),
        ("http://8.8.65536/", FORMAT),
        ("http://256.1.1.1/", FORMAT),
        ("http://08.8.8.8/", FORMAT),
        ("ftp://example.com", PROTOCOL),
        ("file:///etc/passwd", PROTOCOL),
        ("gopher://example.com", PROTOCOL),
        ("mailto:anna@example.com", PROTOCOL),
        ("https://anna@example.com", CREDENTIALS),
        ("https://anna:secret@example.com", CREDENTIALS),
        ("https://:@example.com", CREDENTIALS),
        ("http://example.com@127.0.0.1/", CREDENTIALS),
        ("http://localhost", HOSTNAME),
        ("http://LOCALHOST:8080", HOSTNAME),
        ("http://localhost.", HOSTNAME),
        ("http://foo.localhost", HOSTNAME),
        ("http://foo.localhost.", HOSTNAME),
        ("http://printer.local", HOSTNAME),
        ("http://metadata.google.internal/computeMetadata/v1/", HOSTNAME),
        ("http://metadata/", HOSTNAME),
        ("http://instance-data/", HOSTNAME),
        ("http://redis:6379", HOSTNAME),
        ("http://ｌｏｃａｌｈｏｓｔ/", HOSTNAME),
        ("http://foo。localhost/", HOSTNAME),
    ],
)
def test_invalid_or_internal_urls_are_rejected_with_a_reason(url: str, expected: str) -> None:
    assert rejection(url) == expected


@every_case(
    "host",
    [
        "0.0.0.1", "10.0.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1", "172.31.255.255",
        "192.168.1.1", "100.64.0.1", "100.100.100.200", "198.18.0.1", "198.19.255.255", "192.0.0.192", "192.0.2.1",
        "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "192.88.99.1",
        "168.63.129.16", "127.0.0.1.", "127.1", "127.0.1", "0", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1",
        "017700000001", "0X7F.0x0.0.1", "0x", "１２７.０.０.１", "127。0。0。1",
        "[::]", "[::1]", "[0:0:0:0:0:0:0:1]", "[fd00::1]", "[fc00::1]", "[fe80::1]", "[febf::1]", "[fec0::1]",
        "[ff02::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[2002:7f00:1::]", "[2002:a00:1::1]",
        "[64:ff9b::127.0.0.1]", "[64:ff9b::a00:1]", "[64:ff9b:1::1]", "[2001:0:7f00:1::]", "[2001:db8::1]", "[100::1]",
        "[fd00:ec2::254]", "[3fff::1]", "[5f00::1]", "[::ffff:0:127.0.0.1]",
    ],
)  # fmt: skip
def test_non_public_addresses_are_rejected_in_any_notation(host: str) -> None:
    assert rejection(f"http://{host}/hook") == IP
    assert rejection(f"https://{host}:8443") == IP


@every_case(
    "text", ["64:ff9b::8.8.8.8", "2002:808:808::1", "::ffff:1.1.1.1", "2a00:1450::1", "1.1.1.1"]
)
def test_an_address_that_embeds_a_public_one_is_public(text: str) -> None:
    assert is_public(ip_address(text))


def test_a_teredo_address_is_public_if_server_and_client_are() -> None:
    server, private = IPv4Address("8.8.8.8"), IPv4Address("10.0.0.1")
    for client in (server, private):
        packed = 0x20010000 << 96 | int(server) << 64 | int(client) ^ 0xFFFFFFFF
        assert is_public(IPv6Address(packed)) is (client == server)


def test_with_an_allowlist_only_the_listed_origins_are_allowed() -> None:
    listed = ("http://127.0.0.1:9000", "https://hooks.example.com")
    assert rejection("http://127.0.0.1:9000/hook", *listed) is None
    assert rejection("https://HOOKS.example.com:443/x", *listed) is None
    assert rejection("http://localhost:9000", "http://localhost:9000/") is None
    refused = "webhookUrl origin not allowed (set WEBHOOK_ALLOWED_ORIGINS). Got "
    assert (
        rejection("https://other.example.com/hook?key=s3cret", *listed)
        == refused + "https://other.example.com"
    )
    assert rejection("http://127.0.0.1:9001/", *listed) == refused + "http://127.0.0.1:9001"
    assert rejection("http://hooks.example.com/", *listed) == refused + "http://hooks.example.com"
    assert rejection("http://2130706433:9000/", *listed) == refused + "http://2130706433:9000"
    assert rejection("ftp://hooks.example.com", *listed) == PROTOCOL
    assert rejection("https://a:b@hooks.example.com", *listed) == CREDENTIALS


@every_case(
    ("url", "origin"),
    [
        ("HTTPS://Example.com:443/a?b#c", "https://example.com"),
        ("http://example.com:80", "http://example.com"),
        ("http://example.com:443", "http://example.com:443"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
    ],
)
def test_an_origin_is_normalised(url: str, origin: str) -> None:
    assert origin_of(url) == origin


def test_the_error_uses_the_given_field_name() -> None:
    with pytest.raises(InvalidInputError, match="recordingUrl IP not allowed"):
        check_url("http://10.0.0.1/", (), name="recordingUrl")


@given(st.integers(0, 2**32 - 1), st.integers(0, 3), st.sampled_from(["{}", "{:#x}", "0{:o}"]))
def test_every_ipv4_notation_is_resolved_as_by_the_operating_system(
    number: int, dots: int, way: str
) -> None:
    leading = [number >> (24 - 8 * index) & 0xFF for index in range(dots)]
    last = number & (256 ** (4 - dots) - 1)
    host = ".".join(way.format(part) for part in (*leading, last))
    resolved = IPv4Address(inet_ntoa(inet_aton(host)))
    assert resolved == IPv4Address(number)
    assert (rejection(f"http://{host}/") is None) is is_public(resolved)


def embeds_another(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv4Address):
        return False
    return address in ip_network("64:ff9b::/96") or bool(
        address.ipv4_mapped or address.sixtofour or address.teredo
    )


@given(st.ip_addresses())
def test_addresses_that_the_standard_library_calls_private_are_not_public(
    address: IPv4Address | IPv6Address,
) -> None:
    if is_public(address) and not embeds_another(address):
        near = (address.is_private, address.is_loopback, address.is_link_local)
        assert not any((*near, address.is_multicast, address.is_reserved, address.is_unspecified))


@given(st.text())
def test_any_text_is_checked_without_an_unexpected_error(text: str) -> None:
    rejection(text)
    rejection(f"http://{text}")
