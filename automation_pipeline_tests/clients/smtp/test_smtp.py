"""The SMTP client over real sockets: messages, TLS, logins and error replies."""

import asyncio
import ssl
from collections.abc import Iterator

import pytest

from automation_pipeline.clients.smtp import MailServer, SmtpMail
from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.certificates import Certificate, certificate_for
from automation_pipeline_tests.clients.smtp.mail_server import FakeMailServer, running_mail_server

PASSWORD = "s3cret-pass"
TEXT = "Automation run 17 ended.\n\n- Élodie: 2 €\n.\n"


@pytest.fixture
def mail_server() -> Iterator[FakeMailServer]:
    with running_mail_server() as running:
        yield running


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate_for("IP:127.0.0.1", tmp_path_factory.mktemp("mail"))


@pytest.fixture
def tls(certificate: Certificate) -> ssl.SSLContext:
    return certificate.server


@pytest.fixture
def trust(certificate: Certificate) -> ssl.SSLContext:
    return certificate.client


def mail_client(
    mail_server: FakeMailServer, trust: ssl.SSLContext | None = None, **fields: object
) -> SmtpMail:
    given = {
        "host": "127.0.0.1",
        "port": mail_server.port,
        "sender": "robot@example.com",
        "seconds": 5.0,
        **fields,
    }
    return SmtpMail(MailServer(**given), trust=trust)  # type: ignore[arg-type]


def send(
    mail: SmtpMail, to: str = "anna@example.com", subject: str = "Automation Nuit - PARTIAL"
) -> None:
    asyncio.run(mail.send(to, subject, TEXT, delivery="notification-17-email-abc"))


def refusal(
    mail: SmtpMail, to: str = "anna@example.com", subject: str = "Subject"
) -> AutomationError:
    with pytest.raises(AutomationError) as caught:
        send(mail, to, subject)
    assert PASSWORD not in str(caught.value)
    assert PASSWORD not in repr(caught.value.__cause__)
    return caught.value


def test_a_message_arrives_with_its_subject_text_and_delivery_id(
    mail_server: FakeMailServer,
) -> None:
    send(mail_client(mail_server))
    [received] = mail_server.mails
    assert (received.sender, received.receivers) == ("robot@example.com", ("anna@example.com",))
    message = received.message
    assert (message["From"], message["To"]) == ("robot@example.com", "anna@example.com")
    assert message["Subject"] == "Automation Nuit - PARTIAL"
    assert message["Message-ID"] == "<notification-17-email-abc@example.com>"
    assert message["X-Automation-Delivery"] == "notification-17-email-abc"
    assert message["Date"] is not None
    assert message.get_content_type() == "text/plain"
    assert message.get_content().replace("\r\n", "\n") == TEXT


def test_a_display_name_and_a_non_ascii_subject_are_supported(mail_server: FakeMailServer) -> None:
    send(mail_client(mail_server, sender="Qualité <robot@example.com>"), subject="Été à Besançon")
    [received] = mail_server.mails
    assert received.sender == "robot@example.com"
    assert received.message["From"] == "Qualité <robot@example.com>"
    assert received.message["Subject"] == "Été à Besançon"


@every_case(
    "to",
    [
        "anna@example.com\r\nBcc: eve@example.com", "anna@example.com\nX: y", "anna@example.com,eve@example.com",
        "anna@example.com>\r\nRCPT TO:<eve@example.com", "anna", "", "élodie@example.com", "anna@example.com eve@b.c",
    ],
)  # fmt: skip
def test_a_malformed_recipient_address_is_a_permanent_error(
    mail_server: FakeMailServer, to: str
) -> None:
    error = refusal(mail_client(mail_server), to)
    assert isinstance(error, PermanentError)
    assert str(error) == "The e-mail's addresses cannot be written into its headers"
    assert mail_server.mails == []


def test_line_breaks_in_a_subject_cannot_inject_headers(mail_server: FakeMailServer) -> None:
    send(mail_client(mail_server), subject="Nuit\r\nBcc: eve@example.com\n\nHello")
    [received] = mail_server.mails
    assert received.receivers == ("anna@example.com",)
    assert received.message["Bcc"] is None
    assert received.message["Subject"] == "Nuit Bcc: eve@example.com Hello"


def test_starttls_is_used_when_the_server_offers_it(
    tls: ssl.SSLContext, trust: ssl.SSLContext
) -> None:
    with running_mail_server(FakeMailServer(tls=tls, login=("robot", PASSWORD))) as mail_server:
        send(mail_client(mail_server, trust, user="robot", password=PASSWORD))
    assert [received.encrypted for received in mail_server.mails] == [True]
    assert mail_server.logins == [("robot", True)]


def test_implicit_tls_encrypts_the_whole_connection(
    tls: ssl.SSLContext, trust: ssl.SSLContext
) -> None:
    with running_mail_server(FakeMailServer(tls=tls, tls_first=True)) as mail_server:
        send(mail_client(mail_server, trust, secure=True))
    assert [received.encrypted for received in mail_server.mails] == [True]


def test_an_untrusted_certificate_is_a_permanent_error(tls: ssl.SSLContext) -> None:
    for first in (False, True):
        with running_mail_server(FakeMailServer(tls=tls, tls_first=first)) as mail_server:
            error = refusal(mail_client(mail_server, secure=first))
        assert str(error) == "The mail server's certificate is not trusted"
        assert isinstance(error, PermanentError)
        assert mail_server.mails == []


def test_the_password_is_sent_unencrypted_only_to_a_local_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running_mail_server(FakeMailServer(login=("robot", PASSWORD))) as mail_server:
        send(mail_client(mail_server, user="robot", password=PASSWORD))
        monkeypatch.setattr(MailServer, "is_local", False)
        error = refusal(mail_client(mail_server, user="robot", password=PASSWORD))
    assert str(error) == "The mail server offers no encryption, so the password was not sent"
    assert mail_server.logins == [("robot", False)]


def test_a_wrong_password_is_a_permanent_error_that_does_not_show_it() -> None:
    with running_mail_server(FakeMailServer(login=("robot", "other"))) as mail_server:
        error = refusal(mail_client(mail_server, user="robot", password=PASSWORD))
    assert isinstance(error, PermanentError)
    assert "check SMTP_USER and SMTP_PASS" in str(error)
    assert PASSWORD not in repr(MailServer(host="h", port=25, sender="s", password=PASSWORD))


def test_a_server_without_login_support_is_a_permanent_error(mail_server: FakeMailServer) -> None:
    assert isinstance(
        refusal(mail_client(mail_server, user="robot", password=PASSWORD)), PermanentError
    )


@pytest.mark.parametrize(
    ("verb", "answer", "kind"),
    [
        ("MAIL", "451 later", TransientError),
        ("MAIL", "500 no", PermanentError),
        ("RCPT", "450 greylisted", TransientError),
        ("RCPT", "550 unknown", PermanentError),
        ("DATA", "421 busy", TransientError),
        ("TAKEN", "452 full", TransientError),
        ("TAKEN", "554 spam", PermanentError),
    ],
)
def test_a_refusal_is_transient_or_permanent_depending_on_its_code(
    mail_server: FakeMailServer, verb: str, answer: str, kind: type[AutomationError]
) -> None:
    mail_server.answers[verb] = answer
    error = refusal(mail_client(mail_server))
    assert isinstance(error, kind)
    assert answer[:3] in str(error)


def test_an_error_after_acceptance_does_not_fail_the_message(
    mail_server: FakeMailServer,
) -> None:
    mail_server.answers["QUIT"] = "500 what"
    send(mail_client(mail_server))
    assert len(mail_server.mails) == 1


def test_a_trickling_server_times_out(mail_server: FakeMailServer) -> None:
    mail_server.trickling.set()
    error = refusal(mail_client(mail_server, seconds=0.1))
    assert isinstance(error, TransientError)


def test_the_connection_to_a_trickling_server_is_closed(mail_server: FakeMailServer) -> None:
    mail_server.trickles_at = "MAIL"
    mail_server.trickling.set()
    assert isinstance(refusal(mail_client(mail_server, seconds=0.1)), TransientError)
    assert mail_server.left.wait(30)
    assert mail_server.mails == []


def test_a_server_that_is_down_is_a_transient_error() -> None:
    assert isinstance(refusal(mail_client(FakeMailServer(port=9))), TransientError)


def test_the_check_logs_in_and_sends_nothing() -> None:
    with running_mail_server(FakeMailServer(login=("robot", PASSWORD))) as mail_server:
        asyncio.run(mail_client(mail_server, user="robot", password=PASSWORD).check())
        with pytest.raises(PermanentError):
            asyncio.run(mail_client(mail_server, user="robot", password="wrong").check())
    assert mail_server.mails == []


@every_case(
    ("host", "is_local"),
    [("localhost", True), ("127.0.0.1", True), ("::1", True), ("mx.a.b", False)],
)
def test_only_loopback_hosts_are_local(host: str, is_local: bool) -> None:
    assert MailServer(host=host, port=25, sender="s").is_local is is_local
