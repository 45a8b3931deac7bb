"""A server's certificate that nobody vouches for but itself."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    """`ours` is for the server; `trust` is what a client needs to believe it."""

    ours: ssl.SSLContext
    trust: ssl.SSLContext


def certificate_for(name: str, folder: Path) -> Certificate:
    """`name` is as openssl wants it: `DNS:example.com`, `IP:127.0.0.1`."""
    file, key = folder / "certificate.pem", folder / "key.pem"
    kind = [
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "1",
    ]
    about = ["-subj", "/CN=test", "-addext", f"subjectAltName={name}", "-out", file, "-keyout", key]
    subprocess.run(["openssl", "req", *kind, *about], check=True, capture_output=True)
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(file, key)
    return Certificate(ours, ssl.create_default_context(cafile=str(file)))
