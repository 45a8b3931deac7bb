"""The SMTP client. It implements `automation.ports.MailSender`, with one connection and one thread per
message."""

import smtplib
import socket
import ssl
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from ipaddress import ip_address

from automation_pipeline.core.background import in_thread
from automation_pipeline.core.errors import PermanentError, TransientError

TLS_FROM_THE_START_PORT = 465
Connection = smtplib.SMTP


@dataclass(frozen=True, kw_only=True)
class MailServer:
    """Address and account. `seconds` limits each wait; a message may take three times as long."""

    host: str
    port: int
    sender: str
    secure: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    seconds: float = 10.0

    @property
    def is_local(self) -> bool:
        """Whether a password may be sent without encryption."""
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
        await self._with_connection(lambda smtp: smtp.send_message(message))

    async def check(self) -> None:
        await self._with_connection(lambda _smtp: None)

    async def _with_connection(self, use: Callable[[Connection], object]) -> None:
        """After the time limit the socket is shut down, which ends the thread of a slow server."""
        opened: list[Connection] = []

        def work() -> None:
            with _domain_errors(), closing(self._connect()) as smtp:
                opened.append(smtp)
                self._log_in(smtp)
                use(smtp)
                # The server has accepted the message.
                with suppress(smtplib.SMTPException, OSError):
                    smtp.quit()

        try:
            await in_thread(work, 3 * self._server.seconds)
        except TimeoutError:
            raise TransientError("The mail server did not answer in time") from None
        finally:
            for smtp in opened:
                if smtp.sock is not None:
                    with suppress(OSError):  # already closed
                        smtp.sock.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> Connection:
        server = self._server
        if server.secure or server.port == TLS_FROM_THE_START_PORT:
            return smtplib.SMTP_SSL(
                server.host, server.port, timeout=server.seconds, context=self._trust
            )
        return smtplib.SMTP(server.host, server.port, timeout=server.seconds)

    def _log_in(self, smtp: Connection) -> None:
        server = self._server
        smtp.ehlo_or_helo_if_needed()
        if not isinstance(smtp, smtplib.SMTP_SSL) and smtp.has_extn("starttls"):
            smtp.starttls(context=self._trust)
            smtp.ehlo()
        if server.user is None or server.password is None:
            return
        if not (isinstance(smtp.sock, ssl.SSLSocket) or server.is_local):
            raise PermanentError(
                "The mail server offers no encryption, so the password was not sent"
            )
        smtp.login(server.user, server.password)


def _message(sender: str, to: str, subject: str, text: str, delivery: str) -> EmailMessage:
    """Addresses and subject are one line each, so nothing in them can become a header."""
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
        raise PermanentError("The e-mail's addresses cannot be written into its headers") from None
    return message


@contextmanager
def _domain_errors() -> Generator[None]:
    """Messages never quote the server, because some servers repeat the credentials."""
    try:
        yield
    except smtplib.SMTPAuthenticationError as error:
        raise _refusal(
            error.smtp_code, "refused the user or password (check SMTP_USER and SMTP_PASS)"
        ) from None
    except smtplib.SMTPRecipientsRefused as error:
        code = max((code for code, _ in error.recipients.values()), default=550)
        raise _refusal(code, f"refused the receiver with {code}") from None
    except smtplib.SMTPResponseException as error:
        raise _refusal(error.smtp_code, f"answered {error.smtp_code}") from None
    except smtplib.SMTPNotSupportedError:
        raise PermanentError("The mail server lacks what the message or the login needs") from None
    except ssl.SSLCertVerificationError:
        raise PermanentError("The mail server's certificate is not trusted") from None
    except (smtplib.SMTPException, OSError, ValueError) as error:
        raise TransientError(
            f"The mail server could not be reached ({type(error).__name__})"
        ) from None


def _refusal(code: int, reason: str) -> TransientError | PermanentError:
    text = f"The mail server {reason}"
    return PermanentError(text) if code >= 500 else TransientError(text)
