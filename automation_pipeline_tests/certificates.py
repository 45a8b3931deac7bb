"""A self-signed certificate for a test server."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    """The contexts of a server and of a client that trusts it."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def certificate_for(name: str, folder: Path) -> Certificate:
    """Create a certificate for `name` in openssl's syntax: `DNS:example.com`, `IP:127.0.0.1`."""
    file, key = folder / "certificate.pem", folder / "key.pem"
    key_options = [
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "1",
    ]
    files = ["-subj", "/CN=test", "-addext", f"subjectAltName={name}", "-out", file, "-keyout", key]
    subprocess.run(["openssl", "req", *key_options, *files], check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file, key)
    return Certificate(server, ssl.create_default_context(cafile=str(file)))
