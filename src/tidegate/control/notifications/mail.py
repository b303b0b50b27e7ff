"""Send mail through the SMTP server of the settings."""

from __future__ import annotations

import re
import smtplib
import ssl
from collections.abc import Sequence
from email.message import EmailMessage
from pathlib import Path
from typing import Final

from msgspec import Struct

from tidegate.config import NotifySetting
from tidegate.domain.notifications import messages, refusals, renderings
from tidegate.kernel.model import at_most

RECIPIENTS_MAX: Final = 20
PERMANENT: Final = 500  # SMTP replies from here on reject the message
REFUSED: Final = 422  # the HTTP status that such a reply counts as
_RECIPIENT = re.compile(r"[^@\s<>,;:\"\x00-\x1f]{1,64}@[A-Za-z0-9.-]{1,253}")


class TargetAnswer(Struct, frozen=True):
    """A target's response. ``status`` 0: no response."""

    is_delivered: bool
    status: int = 0
    detail: str = ""
    warning: str = ""  # delivered, but not to all recipients


def check_recipients(recipients: Sequence[str]) -> None:
    """Raises: InvalidSubscription, LimitExceeded."""
    if not recipients:
        raise refusals.InvalidSubscription("Mail needs an address to go to.", field="to")
    at_most("recipients of a subscription", len(recipients), RECIPIENTS_MAX)
    for recipient in recipients:
        if not _RECIPIENT.fullmatch(recipient):
            raise refusals.InvalidSubscription(
                f"{recipient[:80]!r} is not a mail address.", field="to"
            )


def send_mail(
    setting: NotifySetting, recipients: Sequence[str], message: messages.Message, seconds: float
) -> TargetAnswer:
    """Send one message to all recipients. Errors of the server do not raise."""
    try:
        mail = _to_email(setting, recipients, message)
        with _connect(setting, seconds) as server:
            if setting.smtp_user:
                server.login(setting.smtp_user, _password(setting))
            refused = server.send_message(mail)
    except smtplib.SMTPRecipientsRefused as error:
        code = min((code for code, _ in error.recipients.values()), default=0)
        return TargetAnswer(False, REFUSED if code >= PERMANENT else 0, f"mail refused: {code}")
    except smtplib.SMTPResponseException as error:
        status = REFUSED if error.smtp_code >= PERMANENT else 0
        return TargetAnswer(False, status, f"mail refused: {error.smtp_code}")
    except (smtplib.SMTPException, OSError, ValueError) as error:
        return TargetAnswer(False, 0, f"no answer: {type(error).__name__}")
    sent = len(recipients) - len(refused)
    if not refused:
        return TargetAnswer(True, detail=f"sent to {sent} recipients")
    codes = ", ".join(str(code) for code in sorted({code for code, _ in refused.values()}))
    partly = f"the mail server refused {len(refused)} of {len(recipients)} recipients: {codes}"
    return TargetAnswer(True, detail=f"sent to {sent} recipients; {partly}", warning=partly)


def _to_email(
    setting: NotifySetting, recipients: Sequence[str], message: messages.Message
) -> EmailMessage:
    rendered = renderings.render_mail(message)
    mail = EmailMessage()
    mail["Subject"] = rendered.subject
    mail["From"] = setting.smtp_from
    mail["To"] = ", ".join(recipients)
    mail["Date"] = message.payload.at
    for name, value in rendered.headers.items():
        mail[name] = value
    mail.set_content(rendered.text)
    return mail


def _connect(setting: NotifySetting, seconds: float) -> smtplib.SMTP:
    host, port = setting.smtp_host, setting.smtp_port
    if setting.smtp_tls == "tls":
        return smtplib.SMTP_SSL(host, port, timeout=seconds, context=ssl.create_default_context())
    server = smtplib.SMTP(host, port, timeout=seconds)
    if setting.smtp_tls == "starttls":
        server.starttls(context=ssl.create_default_context())
    return server


def _password(setting: NotifySetting) -> str:
    return Path(setting.smtp_password_file).read_text().strip()
