"""A small mail server on a socket: it keeps what it takes and refuses what a test says."""

import base64
import socketserver
import ssl
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from threading import Event, Thread
from typing import cast


@dataclass(frozen=True)
class ReceivedMail:
    sender: str
    receivers: tuple[str, ...]
    message: EmailMessage
    encrypted: bool


@dataclass
class FakeMailServer:
    """`answers` replaces the reply to a command; `login` is what AUTH PLAIN must say; `tls` allows
    STARTTLS. While `trickling`, the reply to `trickles_at` never ends. `left`: a connection has
    ended."""

    port: int = 0
    mails: list[ReceivedMail] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    login: tuple[str, str] | None = None
    tls: ssl.SSLContext | None = None
    tls_first: bool = False
    trickling: Event = field(default_factory=Event)
    trickles_at: str = "connection"
    left: Event = field(default_factory=Event)
    logins: list[tuple[str, bool]] = field(default_factory=list)


class _Talk(socketserver.StreamRequestHandler):
    box: FakeMailServer

    def setup(self) -> None:
        self.encrypted = False
        if self.box.tls_first:
            self._encrypt()
        super().setup()

    def handle(self) -> None:
        with suppress(OSError):
            self._converse()
        self.box.left.set()

    def _converse(self) -> None:
        self._trickle("connection")
        self._say("220 box")
        self.sender, self.receivers = "", list[str]()
        while line := self.rfile.readline():
            words = line.decode().strip()
            verb = words.split(":")[0].split(" ")[0].upper()
            self._trickle(verb)
            if verb in self.box.answers:
                self._say(self.box.answers[verb])
                if verb == "QUIT":
                    return
            elif not self._obey(verb, words):
                return

    def _trickle(self, at: str) -> None:
        while at == self.box.trickles_at and self.box.trickling.is_set():
            self.wfile.write(b"2")
            Event().wait(0.02)

    def _obey(self, verb: str, words: str) -> bool:
        if verb == "EHLO":
            offers = ["250-box"] + (["250-STARTTLS"] if self.box.tls and not self.encrypted else [])
            self._say(
                "\r\n".join(
                    [*offers, *(["250-AUTH PLAIN"] if self.box.login else []), "250 8BITMIME"]
                )
            )
        elif verb == "STARTTLS":
            self._say("220 go")
            self._encrypt()
            self.rfile, self.wfile = self.request.makefile("rb"), self.request.makefile("wb", 0)
        elif verb == "AUTH":
            _, user, password = base64.b64decode(words.rsplit(maxsplit=1)[-1]).decode().split("\0")
            self.box.logins.append((user, self.encrypted))
            self._say(
                "235 in"
                if (user, password) == self.box.login
                else f"535 no such password {password}"
            )
        elif verb == "MAIL":
            self.sender = words.split("<")[1].split(">", maxsplit=1)[0]
            self._say("250 ok")
        elif verb == "RCPT":
            self.receivers.append(words.split("<")[1].split(">", maxsplit=1)[0])
            self._say("250 ok")
        elif verb == "DATA":
            self._take()
        else:
            self._say("221 bye" if verb == "QUIT" else "250 ok")
            return verb != "QUIT"
        return True

    def _take(self) -> None:
        self._say("354 go on")
        lines: list[bytes] = []
        while (line := self.rfile.readline()) not in {b".\r\n", b""}:
            lines.append(line.removeprefix(b"."))
        message = cast("EmailMessage", message_from_bytes(b"".join(lines), policy=default))
        self.box.mails.append(
            ReceivedMail(self.sender, tuple(self.receivers), message, self.encrypted)
        )
        self._say(self.box.answers.get("TAKEN", "250 taken"))

    def _encrypt(self) -> None:
        assert self.box.tls is not None
        self.request = self.box.tls.wrap_socket(self.request, server_side=True)
        self.encrypted = True

    def _say(self, text: str) -> None:
        self.wfile.write(text.encode() + b"\r\n")


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, *_args: object) -> None:
        return


@contextmanager
def running_mail_server(box: FakeMailServer | None = None) -> Generator[FakeMailServer]:
    running = box or FakeMailServer()
    server = _Server(("127.0.0.1", 0), type("Talk", (_Talk,), {"box": running}))
    running.port = server.server_address[1]
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield running
    finally:
        running.trickling.clear()
        server.shutdown()
        server.server_close()
