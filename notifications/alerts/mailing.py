"""Mails about alerts: one mail for all that a tenant, or the operators, are notified of at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from notifications import outbox
from notifications.alerts import wording
from notifications.models import AlertFiring, FiringEnd, MailNotice, NoticeKind
from tenants import mails
from tenants.choices import Role

# Roles that work with instances.
MAILED_ROLES = (Role.OWNER, Role.ADMIN, Role.DEVELOPER)


@dataclass(frozen=True, slots=True)
class Line:
    """One alert in a mail. Its text is translated when the mail is rendered, into the reader's language."""

    firing: AlertFiring
    is_resolved: bool

    @property
    def happened(self) -> str:
        return wording.describe_firing(self.firing)

    @property
    def ended(self) -> str:
        """Reason for the end of the firing; empty while it is open."""
        return str(FiringEnd(self.firing.ended_by).label) if self.firing.ended_by else ""

    @property
    def resolved_figure(self) -> str:
        return wording.figure(self.firing.kind, self.firing.resolved_value)


def send(notices: Sequence[MailNotice], is_last: bool = False) -> outbox.MailDelivery:
    """Sends one mail about notices of one tenant, or of operators, oldest first."""
    tenant = notices[0].tenant
    lines = [
        Line(notice.firing, notice.kind == NoticeKind.RESOLVED) for notice in notices if notice.firing is not None
    ]  # fmt: skip
    recipients = outbox.operators() if tenant is None else outbox.members_of(tenant, MAILED_ROLES)
    firing = sum(not line.is_resolved for line in lines)
    link = mails.public_url("/operator/" if tenant is None else "/alert-rules/")
    return outbox.send_to_each(
        notices, recipients, "alerts", is_last=is_last, tenant=tenant.name if tenant is not None else "", lines=lines,
        first=lines[0], firing=firing, resolved=len(lines) - firing, link=link,
    )  # fmt: skip
