"""An in-process SMTP server that stores received mail and sends configured replies."""

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
    """`answers` overrides replies by command. `login` is the accepted AUTH PLAIN login. `tls` enables
    STARTTLS. While `trickling` is set, the reply to `trickles_at` never ends. `left` is set when a
    connection ends."""

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


class _SmtpHandler(socketserver.StreamRequestHandler):
    mail_server: FakeMailServer

    def setup(self) -> None:
        self.encrypted = False
        if self.mail_server.tls_first:
            self._encrypt()
        super().setup()

    def handle(self) -> None:
        with suppress(OSError):
            self._handle_commands()
        self.mail_server.left.set()

    def _handle_commands(self) -> None:
        self._trickle("connection")
        self._reply("220 box")
        self.sender, self.receivers = "", list[str]()
        while line := self.rfile.readline():
            line_text = line.decode().strip()
            verb = line_text.split(":")[0].split(" ")[0].upper()
            self._trickle(verb)
            if verb in self.mail_server.answers:
                self._reply(self.mail_server.answers[verb])
                if verb == "QUIT":
                    return
            elif not self._execute(verb, line_text):
                return

    def _trickle(self, at: str) -> None:
        while at == self.mail_server.trickles_at and self.mail_server.trickling.is_set():
            self.wfile.write(b"2")
            Event().wait(0.02)

    def _execute(self, verb: str, line_text: str) -> bool:
        if verb == "EHLO":
            capabilities = ["250-box"] + (
                ["250-STARTTLS"] if self.mail_server.tls and not self.encrypted else []
            )
            self._reply(
                "\r\n".join(
                    [
                        *capabilities,
                        *(["250-AUTH PLAIN"] if self.mail_server.login else []),
                        "250 8BITMIME",
                    ]
                )
            )
        elif verb == "STARTTLS":
            self._reply("220 go")
            self._encrypt()
            self.rfile, self.wfile = self.request.makefile("rb"), self.request.makefile("wb", 0)
        elif verb == "AUTH":
            _, user, password = (
                base64.b64decode(line_text.rsplit(maxsplit=1)[-1]).decode().split("\0")
            )
            self.mail_server.logins.append((user, self.encrypted))
            self._reply(
                "235 in"
                if (user, password) == self.mail_server.login
                else f"535 no such password {password}"
            )
        elif verb == "MAIL":
            self.sender = line_text.split("<")[1].split(">", maxsplit=1)[0]
            self._reply("250 ok")
        elif verb == "RCPT":
            self.receivers.append(line_text.split("<")[1].split(">", maxsplit=1)[0])
            self._reply("250 ok")
        elif verb == "DATA":
            self._receive_message()
        else:
            self._reply("221 bye" if verb == "QUIT" else "250 ok")
            return verb != "QUIT"
        return True

    def _receive_message(self) -> None:
        self._reply("354 go on")
        lines: list[bytes] = []
        while (line := self.rfile.readline()) not in {b".\r\n", b""}:
            lines.append(line.removeprefix(b"."))
        message = cast("EmailMessage", message_from_bytes(b"".join(lines), policy=default))
        self.mail_server.mails.append(
            ReceivedMail(self.sender, tuple(self.receivers), message, self.encrypted)
        )
        self._reply(self.mail_server.answers.get("TAKEN", "250 taken"))

    def _encrypt(self) -> None:
        assert self.mail_server.tls is not None
        self.request = self.mail_server.tls.wrap_socket(self.request, server_side=True)
        self.encrypted = True

    def _reply(self, text: str) -> None:
        self.wfile.write(text.encode() + b"\r\n")


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, *_args: object) -> None:
        return


@contextmanager
def running_mail_server(mail_server: FakeMailServer | None = None) -> Generator[FakeMailServer]:
    running = mail_server or FakeMailServer()
    server = _Server(
        ("127.0.0.1", 0), type("SmtpHandler", (_SmtpHandler,), {"mail_server": running})
    )
    running.port = server.server_address[1]
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield running
    finally:
        running.trickling.clear()
        server.shutdown()
        server.server_close()
