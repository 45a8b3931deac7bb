"""From settings to the adapter; it is only loaded where a mail server is configured."""

from automation_pipeline.automation.ports import MailSender
from automation_pipeline.core.settings import Settings


def open_mail(settings: Settings) -> MailSender | None:
    """None where no mail server is configured, or nobody to write as."""
    sender = settings.smtp_from or settings.smtp_user
    if settings.smtp_host is None or sender is None:
        return None
    from automation_pipeline.mail.smtp import MailServer, SmtpMail  # noqa: PLC0415  only where it is configured

    server = MailServer(
        host=settings.smtp_host,
        port=settings.smtp_port,
        secure=settings.smtp_secure,
        sender=sender,
        user=settings.smtp_user,
        password=settings.smtp_pass.get_secret_value() if settings.smtp_pass else None,
        seconds=settings.smtp_timeout_ms / 1000,
    )
    return SmtpMail(server)
