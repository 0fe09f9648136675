"""Problems of usage records that were not counted, or not at the time that they state, as shown to operators."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from django.db import transaction
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from billing.models import ProblemKind, UsageProblem
from brokers.models import Cluster
from brokers.monitoring.attention import OperatorActionItem
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict
from tenants.formatting import utc

_TEXTS: Final = {
    ProblemKind.MALFORMED: gettext_lazy(
        "Usage records of %(cluster)s that cannot be read: %(records)s. They are left out; counters go on with the next"
        " report."
    ),
    ProblemKind.NEWER_VERSION: gettext_lazy(
        "Usage records of %(cluster)s of a newer version: %(records)s. They are left out until this installation is"
        " upgraded as its brokers are."
    ),
    ProblemKind.EPOCH_REUSED: gettext_lazy(
        "Broker %(broker)s of %(cluster)s reports usage under an epoch that was used before: %(records)s records are"
        " not billed. Restart it, so that it gets another epoch."
    ),
    ProblemKind.CLOCK: gettext_lazy(
        "The clock of broker %(broker)s of %(cluster)s is wrong: it says %(said)s. Its usage is billed when it was"
        " read: %(records)s records."
    ),
}


def problem_action_items(limit: int) -> Iterator[OperatorActionItem]:
    """Yields action items for at most `limit` unhandled problems, latest first."""
    rows = list(UsageProblem.objects.filter(handled_at=None).order_by("-last_at", "-pk")[:limit])
    names = dict(Cluster.objects.filter(pk__in={row.cluster_id for row in rows}).values_list("pk", "name"))
    for row in rows:
        values = {
            "cluster": names.get(row.cluster_id, row.cluster_id), "broker": row.broker_id, "said": detail_text(row),
            "records": f"{row.records:,}",
        }  # fmt: skip
        text = _TEXTS[ProblemKind(row.kind)] % values
        yield OperatorActionItem(
            text=text, link=reverse("admin:billing_usageproblem_changelist"), act=_("Look at them")
        )


def detail_text(problem: UsageProblem) -> str:
    """Returns the detail of a problem: the time that a wrong clock reported, or the beginning of the last record."""
    if problem.kind == ProblemKind.CLOCK and problem.detail.isdecimal():
        return utc(datetime.fromtimestamp(int(problem.detail) // 1_000, UTC))
    return problem.detail


@transaction.atomic
def handle(*, acting: Actor, problem: UsageProblem, now: datetime) -> UsageProblem:
    """Marks a problem as handled by an operator. Later records create another problem.

    Raises:
        Conflict: it was handled already.
    """
    access.require(acting, Scope.OPERATOR)
    locked = UsageProblem.objects.select_for_update().get(pk=problem.pk)
    if locked.handled_at is not None:
        raise Conflict(gettext_noop("There is nothing to look after."), code="nothing_to_do")
    locked.handled_at = now
    locked.save(update_fields=["handled_at"])
    after = {"cluster": locked.cluster_id, "kind": locked.kind, "records": locked.records}
    audit.record(acting, "usage_problem.handled", locked, None, after)
    return locked
