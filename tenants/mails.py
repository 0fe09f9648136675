"""Mails: plain text in the reader's language, with links to the public URL only."""

from __future__ import annotations

import logging
from smtplib import SMTPException
from typing import Any, NamedTuple

from django.conf import settings
from django.core.mail import EmailMessage
from django.template.loader import render_to_string
from django.utils import translation

logger = logging.getLogger(__name__)


def public_url(path: str) -> str:
    """Returns an absolute public URL. It never uses the Host header of a request, which its sender controls."""
    return f"{settings.PUBLIC_URL}{path}"


class Attachment(NamedTuple):
    """Attachment of a mail."""

    name: str
    content: bytes
    media_type: str


def send(name: str, to: str, language: str, *, attachment: Attachment | None = None, **values: Any) -> bool:
    """Sends the mail of the templates `mail/<name>_subject.txt` and `mail/<name>.txt`; returns True if it
    was accepted.
    """
    with translation.override(language):
        subject = " ".join(render_to_string(f"mail/{name}_subject.txt", values).split())
        body = render_to_string(f"mail/{name}.txt", values).strip() + "\n"
    try:
        message = EmailMessage(f"[Penstock] {subject}", body, to=[to])
        if attachment is not None:
            message.attach(*attachment)
        message.send()
    except (SMTPException, OSError):
        logger.exception("a mail could not be sent", extra={"mail": name})
        return False
    return True
