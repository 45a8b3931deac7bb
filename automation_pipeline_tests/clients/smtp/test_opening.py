"""Which settings enable e-mail."""

from automation_pipeline.clients.factories import open_mail
from automation_pipeline.clients.smtp import MailServer, SmtpMail
from automation_pipeline.core.settings import Settings
from automation_pipeline_tests.cases import every_case


@every_case(
    ("settings", "is_enabled"),
    [
        ({}, False),
        ({"smtp_host": "mail.test"}, False),
        ({"smtp_from": "us@host.test"}, False),
        ({"smtp_host": "mail.test", "smtp_from": "us@host.test"}, True),
        ({"smtp_host": "mail.test", "smtp_user": "us@host.test", "smtp_pass": "hush"}, True),
    ],
)
def test_mail_needs_a_server_and_a_sender(settings: dict[str, str], is_enabled: bool) -> None:
    assert isinstance(open_mail(Settings.model_validate(settings)), SmtpMail) is is_enabled


def test_each_mail_setting_is_passed_to_the_client() -> None:
    settings = {
        "smtp_host": "mail.test",
        "smtp_port": 25,
        "smtp_secure": True,
        "smtp_user": "robot",
        "smtp_pass": "hush",
        "smtp_from": "us@host.test",
        "smtp_timeout_ms": 2500,
    }
    mail = open_mail(Settings.model_validate(settings))
    assert isinstance(mail, SmtpMail)
    assert mail._server == MailServer(
        host="mail.test",
        port=25,
        secure=True,
        user="robot",
        password="hush",
        sender="us@host.test",
        seconds=2.5,
    )
