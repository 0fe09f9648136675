"""Checks before the end of a month: each has one sentence and a link to the action. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from billing.invoices.month_runs import RunState
from billing.reporting.month_state import MonthState, NameSample
from tenants.formatting import money


class Outcome(StrEnum):
    """Outcome of a check. `UNKNOWN`: it was not determined yet, or it is information that blocks nothing."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Check of a month; `act` is the text of the link, if there is one."""

    title: str
    outcome: Outcome
    text: str
    link: str = ""
    act: str = ""


def checks(state: MonthState) -> list[Check]:
    """Returns all checks of a past month, in the order in which they should be handled."""
    return [
        _usage_read(state),
        _minutes(state),
        _lake(state),
        _seller(state),
        _profiles(state),
        _tax_details(state),
        _prices(state),
        _issued(state),
        _paid(state),
        _late_usage(state),
        *_notified(state),
    ]


def may_issue(state: MonthState) -> bool:
    """True if a run may issue invoices: the month is over, and a tenant has no invoice for it."""
    return state.is_over and state.to_invoice > 0


def _names(sample: NameSample) -> str:
    more = sample.count - len(sample.names)
    names = ", ".join(sample.names)
    return _("%(names)s and %(n)s more") % {"names": names, "n": f"{more:,}"} if more > 0 else names


def _usage_read(state: MonthState) -> Check:
    title, link = _("Usage is read past the end"), reverse("admin:billing_usageoffset_changelist")
    if state.clusters_behind.count:
        text = _("Not all is read of: %(names)s. The partition that stands still is of a broker that is away.")
        return Check(
            title=title, outcome=Outcome.FAILED, text=text % {"names": _names(state.clusters_behind)}, link=link,
            act=_("See the offsets"),
        )  # fmt: skip
    text = _("Clusters with instances, of which every broker is read: %(n)s.") % {"n": f"{state.clusters:,}"}
    return Check(title=title, outcome=Outcome.PASSED, text=text)


def _minutes(state: MonthState) -> Check:
    """Returns the check of the partitions of minutes. Minutes outside of them are charged, but deleted row by row."""
    title, minutes = _("Minutes have their partitions"), state.minutes
    if minutes.is_short(state.now):
        text = _("This week has none. The worker makes them every hour: look for partition.tried_later in its log.")
        return Check(title=title, outcome=Outcome.FAILED, text=text)
    if minutes.rows_ahead:
        text = _("A broker's clock is wrong: rows of minutes that are weeks ahead: %(n)s.")
        return Check(
            title=title, outcome=Outcome.UNKNOWN, text=text % {"n": f"{minutes.rows_ahead:,}"},
            link=reverse("admin:billing_usageminute_changelist"), act=_("See the minutes"),
        )  # fmt: skip
    text = _("The week that runs has one. More are made ahead, every hour.")
    return Check(title=title, outcome=Outcome.PASSED, text=text)


def _lake(state: MonthState) -> Check:
    title, lake = _("The lake has the same hours as the tables"), state.lake
    if lake.different or lake.broken:
        days = ", ".join(f"{day:%Y-%m-%d}" for day in sorted((*lake.different, *lake.broken)))
        text = _("These days differ, or their files are not what was written: %(days)s. Which hours: %(command)s") % {
            "days": days, "command": "manage.py lake reconcile --day …",
        }  # fmt: skip
        return Check(title=title, outcome=Outcome.FAILED, text=text)
    if lake.unknown:
        text = ngettext(
            "%(n)s day was not worked out again yet. One is every hour.",
            "%(n)s days were not worked out again yet. One is every hour.",
            lake.unknown,
        )
        return Check(title=title, outcome=Outcome.UNKNOWN, text=text % {"n": lake.unknown})
    if not lake.equal:
        return Check(title=title, outcome=Outcome.UNKNOWN, text=_("The lake has no whole day of this month."))
    text = _("Days that were worked out again from the lake without a difference: %(n)s.") % {"n": lake.equal}
    return Check(title=title, outcome=Outcome.PASSED, text=text)


def _seller(state: MonthState) -> Check:
    title, link = _("Who issues the invoices"), reverse("admin:billing_seller_changelist")
    if state.has_seller:
        return Check(title=title, outcome=Outcome.PASSED, text=_("Somebody said who sells."))
    text = _("Nobody said who sells: invoices would show Penstock without an address.")
    return Check(title=title, outcome=Outcome.FAILED, text=text, link=link, act=_("Say who sells"))


def _profiles(state: MonthState) -> Check:
    title, link = _("How tenants are invoiced"), reverse("admin:billing_billingprofile_changelist")
    if not state.without_profile.count:
        text = _("Every tenant that waits for an invoice has a billing profile.")
        return Check(title=title, outcome=Outcome.PASSED, text=text)
    text = _("Without a billing profile, and so without tax and minimum: %(names)s.")
    return Check(
        title=title, outcome=Outcome.UNKNOWN, text=text % {"names": _names(state.without_profile)}, link=link,
        act=_("Add profiles"),
    )  # fmt: skip


def _tax_details(state: MonthState) -> Check:
    title, link = _("Tax details"), reverse("admin:billing_billingprofile_changelist")
    if not state.without_tax_details.count:
        text = _("Whoever is charged tax, or owes it, has a name, an address and what tax id is needed.")
        return Check(title=title, outcome=Outcome.PASSED, text=text)
    text = _("Name, address or tax id is missing of: %(names)s.") % {"names": _names(state.without_tax_details)}
    return Check(title=title, outcome=Outcome.FAILED, text=text, link=link, act=_("Complete them"))


def _prices(state: MonthState) -> Check:
    title, link = _("Every plan has a price"), reverse("admin:billing_plan_changelist")
    if not state.unpriced.count:
        return Check(title=title, outcome=Outcome.PASSED, text=_("No bill would fail for a missing price."))
    text = ngettext(
        "The bill of %(n)s tenant would fail. No price early enough: %(names)s.",
        "The bills of %(n)s tenants would fail. No price early enough: %(names)s.",
        state.unpriced_tenants,
    )
    filled = text % {"n": f"{state.unpriced_tenants:,}", "names": _names(state.unpriced)}
    return Check(title=title, outcome=Outcome.FAILED, text=filled, link=link, act=_("Add a price"))


def _issued(state: MonthState) -> Check:
    title = _("Invoices are issued")
    count, last = f"{state.issued:,}", state.closing
    if last is not None and last.waiting_in_all:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in last.waiting[:3])
        text = _("Issued: %(issued)s. When it was tried last, waited: %(n)s. %(reasons)s") % {
            "issued": count, "n": f"{last.waiting_in_all:,}", "reasons": reasons,
        }  # fmt: skip
        return Check(title=title, outcome=Outcome.FAILED, text=text)
    if state.to_invoice and (last is None or last.nothing_to_charge < state.to_invoice):
        text = _("Issued: %(issued)s. Tenants without one: %(n)s.") % {
            "issued": count, "n": f"{state.to_invoice:,}",
        }  # fmt: skip
        return Check(title=title, outcome=Outcome.UNKNOWN if last is None else Outcome.FAILED, text=text)
    text = _("Issued: %(issued)s. Tenants that had nothing to charge: %(n)s.") % {
        "issued": count, "n": f"{state.to_invoice:,}",
    }  # fmt: skip
    return Check(title=title, outcome=Outcome.PASSED, text=text)


def _paid(state: MonthState) -> Check:
    title = _("Invoices are paid")
    values = {"open": f"{state.open:,}", "overdue": f"{state.overdue:,}"}
    if state.overdue:
        text = _("Open: %(open)s, of which are overdue: %(overdue)s.") % values
        return Check(
            title=title, outcome=Outcome.FAILED, text=text, link=reverse("admin:billing_overdue"),
            act=_("See what is overdue"),
        )  # fmt: skip
    if state.open:
        return Check(title=title, outcome=Outcome.UNKNOWN, text=_("Open and not due yet: %(open)s.") % values)
    return Check(title=title, outcome=Outcome.PASSED, text=_("Nothing is open."))


def _late_usage(state: MonthState) -> Check:
    """Returns the check of late usage. It is information only, because the next invoice charges late usage."""
    title = _("Late usage")
    sums = "; ".join(
        f"{money(adjustment.amount, adjustment.currency)} ({adjustment.lines})" for adjustment in state.adjustments
    )
    corrected = " " + _("Lines that correct earlier months: %(sums)s.") % {"sums": sums} if sums else ""
    late = state.late
    if late is None or late.state != RunState.DONE:
        text = _("Nobody looked whether usage came after the invoices of the month.")
        return Check(title=title, outcome=Outcome.UNKNOWN, text=text + corrected)
    if late.named_in_all:
        amounts = "; ".join(f"{name}: {amount}" for name, amount in late.named[:3])
        text = _("Next invoices that correct earlier ones: %(n)s. %(amounts)s.") % {
            "n": f"{late.named_in_all:,}", "amounts": amounts,
        }  # fmt: skip
        return Check(title=title, outcome=Outcome.UNKNOWN, text=text + corrected)
    return Check(title=title, outcome=Outcome.PASSED, text=_("No usage came after the invoices.") + corrected)


def _notified(state: MonthState) -> Iterator[Check]:
    title = _("Webhooks arrived")
    if state.webhooks_failed:
        text = _("Given up: %(n)s. Tenants send them again on their page of webhooks.")
        yield Check(title=title, outcome=Outcome.FAILED, text=text % {"n": f"{state.webhooks_failed:,}"})
    else:
        yield Check(title=title, outcome=Outcome.PASSED, text=_("No webhook about an invoice was given up."))
    title = _("Mails were taken")
    link = reverse("admin:billing_billingprofile_changelist")
    if state.mails_rejected.count:
        text = _("The mail server did not take the mails of: %(names)s. Send them by hand; they are not tried again.")
        yield Check(title=title, outcome=Outcome.FAILED, text=text % {"names": _names(state.mails_rejected)})
    elif state.unreachable_tenants.count:
        text = _("Nobody has verified an address, and no profile has one: %(names)s.")
        yield Check(
            title=title, outcome=Outcome.FAILED, text=text % {"names": _names(state.unreachable_tenants)}, link=link,
            act=_("Add an address"),
        )  # fmt: skip
    else:
        yield Check(title=title, outcome=Outcome.PASSED, text=_("No mail about an invoice was refused."))
