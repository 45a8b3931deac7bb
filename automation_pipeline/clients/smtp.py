"""E-mail over SMTP: `automation.ports.MailSender`. Each message has its own connection, in a
thread."""

import asyncio
import smtplib
import socket
import ssl
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from ipaddress import ip_address
from threading import Thread

from automation_pipeline.core.errors import PermanentError, TransientError

TLS_FROM_THE_START_PORT = 465
Connection = smtplib.SMTP


class MailNotTakenError(TransientError):
    """The mail server did not take the message this time."""


class MailRefusedError(PermanentError):
    """The mail server, or the message, is not what another attempt could change."""


@dataclass(frozen=True, kw_only=True)
class MailServer:
    """Where it is and who we are to it. `seconds` is for each wait, and three times that for a
    whole message."""

    host: str
    port: int
    sender: str
    secure: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    seconds: float = 10.0

    @property
    def is_here(self) -> bool:
        """Nobody listens between us and it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class SmtpMail:
    def __init__(self, server: MailServer, *, trust: ssl.SSLContext | None = None) -> None:
        self._server = server
        self._trust = trust or ssl.create_default_context()

    async def send(self, to: str, subject: str, text: str, *, delivery: str) -> None:
        message = _message(self._server.sender, to, subject, text, delivery)
        await self._converse(lambda smtp: _hand_over(smtp, message))

    async def check(self) -> None:
        await self._converse(_nothing_more)

    async def _converse(self, what: Callable[[Connection], None]) -> None:
        """A server that trickles is left to itself: its thread ends with its socket, and nobody
        waits for it."""
        opened: list[Connection] = []
        ended: Future[None] = Future()
        Thread(target=self._in_thread, args=(what, opened, ended), daemon=True).start()
        try:
            async with asyncio.timeout(3 * self._server.seconds):
                await asyncio.wrap_future(ended)
        except TimeoutError:
            raise MailNotTakenError("The mail server did not answer in time") from None
        finally:
            _hang_up(opened)

    def _in_thread(
        self, what: Callable[[Connection], None], opened: list[Connection], ended: Future[None]
    ) -> None:
        if not ended.set_running_or_notify_cancel():
            return
        try:
            self._talk(what, opened)
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            ended.set_exception(error)
        else:
            ended.set_result(None)

    def _talk(self, what: Callable[[Connection], None], opened: list[Connection]) -> None:
        with _in_plain_words(), closing(self._connect()) as smtp:
            opened.append(smtp)
            self._introduce(smtp)
            what(smtp)
            with suppress(
                smtplib.SMTPException, OSError
            ):  # the message is taken, however the farewell goes
                smtp.quit()

    def _connect(self) -> Connection:
        server = self._server
        if server.secure or server.port == TLS_FROM_THE_START_PORT:
            return smtplib.SMTP_SSL(
                server.host, server.port, timeout=server.seconds, context=self._trust
            )
        return smtplib.SMTP(server.host, server.port, timeout=server.seconds)

    def _introduce(self, smtp: Connection) -> None:
        server = self._server
        smtp.ehlo_or_helo_if_needed()
        if not isinstance(smtp, smtplib.SMTP_SSL) and smtp.has_extn("starttls"):
            smtp.starttls(context=self._trust)
            smtp.ehlo()
        if server.user is None or server.password is None:
            return
        if not (isinstance(smtp.sock, ssl.SSLSocket) or server.is_here):
            raise MailRefusedError(
                "The mail server offers no encryption, so the password was not sent"
            )
        smtp.login(server.user, server.password)


def _message(sender: str, to: str, subject: str, text: str, delivery: str) -> EmailMessage:
    """Addresses and subject are one line each: nothing in them can become a header."""
    message = EmailMessage(policy=SMTP)
    try:
        message["From"] = sender
        message["To"] = Address(addr_spec=to)
        message["Subject"] = " ".join(subject.split())
        message["Date"] = formatdate(localtime=False)
        message["Message-ID"] = (
            f"<{delivery}@{sender.rpartition('@')[2].strip('> ') or 'localhost'}>"
        )
        message["X-Automation-Delivery"] = delivery
        message.set_content(text)
    except (ValueError, IndexError, MessageError):
        raise MailRefusedError(
            "The e-mail's addresses cannot be written into its headers"
        ) from None
    return message


def _hand_over(smtp: Connection, message: EmailMessage) -> None:
    smtp.send_message(message)


def _nothing_more(_smtp: Connection) -> None:
    return


def _hang_up(opened: list[Connection]) -> None:
    for smtp in opened:
        if smtp.sock is not None:
            with suppress(OSError):  # it may be gone by now
                smtp.sock.shutdown(socket.SHUT_RDWR)


@contextmanager
def _in_plain_words() -> Generator[None]:
    """No text of the server's is passed on from the login: some repeat what they were told."""
    try:
        yield
    except smtplib.SMTPAuthenticationError as error:
        raise _refusal(
            error.smtp_code, "refused our user or password (check SMTP_USER and SMTP_PASS)"
        ) from None
    except smtplib.SMTPRecipientsRefused as error:
        code = max((code for code, _ in error.recipients.values()), default=550)
        raise _refusal(code, f"refused the receiver with {code}") from None
    except smtplib.SMTPResponseException as error:
        raise _refusal(error.smtp_code, f"answered {error.smtp_code}") from None
    except smtplib.SMTPNotSupportedError:
        raise MailRefusedError(
            "The mail server lacks what the message or the login needs"
        ) from None
    except ssl.SSLCertVerificationError:
        raise MailRefusedError("The mail server's certificate is not one that we trust") from None
    except (smtplib.SMTPException, OSError, ValueError) as error:
        raise MailNotTakenError(
            f"The mail server could not be reached ({type(error).__name__})"
        ) from None


def _refusal(code: int, words: str) -> TransientError | PermanentError:
    text = f"The mail server {words}"
    return MailRefusedError(text) if code >= 500 else MailNotTakenError(text)
