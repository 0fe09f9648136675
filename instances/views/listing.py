"""Page with the list of instances and their live figures, and the menu of operations."""

from __future__ import annotations

from collections import Counter

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from instances import interfaces, selectors
from instances.lifecycle.phases import WITH_PENDING_WORK, Phase
from instances.limits import BYTES_PER_GB, BYTES_PER_MB
from instances.views.attention import alerts_by_instance, fault_notices, notices_of
from instances.views.common import refresh_soon
from instances.views.figures import InstanceFigures, figures, figures_without_values
from tenants import access
from tenants.api.pages import page_of_rows
from tenants.choices import Scope
from tenants.formatting import UNKNOWN
from tenants.forms import AuditFilterForm
from tenants.views.base import console_page, render_page

OPERATIONS_SHOWN = 8
ATTENTION_NAMED_MAX = 3
ATTENTION_SHOWN_MAX = 10
# Each row queries the brokers of its instance: pages are short, and longer ones are refreshed less often.
ROWS_PER_PAGE = 25
PERIOD_S_MIN = 2
PERIOD_S_PER_ROW = 0.5
ORDER = ("-created_at", "id")
GROUPS = {
    "running": frozenset({Phase.RUNNING}),
    "changing": WITH_PENDING_WORK | {Phase.DELETING},
    "stopped": frozenset({Phase.SUSPENDED, Phase.FAILED}),
}


@console_page(Scope.INSTANCES_READ)
@require_GET
def instances_page(request: HttpRequest) -> HttpResponse:
    """Shows a tenant's instances and those that need attention; filter and group are in the URL."""
    acting = request.actor  # type: ignore[attr-defined]
    tenant = access.tenant_of(acting)
    form = AuditFilterForm(request.GET)
    search_text, page_token = (form.cleaned_data["q"], form.cleaned_data["page_token"]) if form.is_valid() else ("", "")
    group = request.GET.get("group", "")
    rows = matching_rows = selectors.instance_list(tenant, contains=search_text)
    if group in GROUPS:
        rows = rows.filter(phase__in=[phase.value for phase in GROUPS[group]])
    page_rows, next_token = page_of_rows(
        rows,
        order=ORDER,
        page_size=ROWS_PER_PAGE,
        page_token=page_token or None,
        binding=f"instances {search_text} {group}",
    )
    is_part = bool(request.headers.get("HX-Request"))
    alerts = alerts_by_instance(interfaces.firing_alerts.implementation(acting, ""))
    rows_with_figures = [
        (row, figures(row) if is_part else figures_without_values(row), fault_notices(row, alerts.get(row.pk, ())))
        for row in page_rows
    ]
    needing_attention = selectors.needing_attention(tenant, include_ids=list(alerts))
    needing_attention_count = needing_attention.count()
    phases = Counter(selectors.instance_list(tenant).values_list("phase", flat=True))
    matching_phases = Counter(matching_rows.values_list("phase", flat=True)) if search_text else phases
    bought = selectors.purchased_totals(tenant)
    is_complete_list = not (search_text or group or next_token or page_token)
    sums = _sums([current for _row, current, _faults in rows_with_figures if current]) if is_complete_list else None
    context = {
        "rows": rows_with_figures,
        "sums": sums,
        "total": phases.total(),
        "groups": _groups(matching_phases, group),
        "group": group,
        "words": search_text,
        "next_token": next_token,
        "is_first": not page_token,
        "bought": bought,
        "counts": {"instances": bought["instances"]},
        "needs": [
            notice
            for row in needing_attention[:ATTENTION_SHOWN_MAX]
            for notice in notices_of(row, alerts.get(row.pk, ()))
        ],
        "needs_more": max(0, needing_attention_count - ATTENTION_SHOWN_MAX),
        "unwell": needing_attention[:ATTENTION_NAMED_MAX],
        "unwell_count": needing_attention_count,
        "notices": interfaces.account_notices.implementation(acting),
        "watched_count": phases.total() - phases[Phase.DELETING.value],
        "now": timezone.now(),
        "is_part": is_part,
        "period_s": max(PERIOD_S_MIN, len(page_rows) * PERIOD_S_PER_ROW),
    }
    template = "instances/rows.html" if is_part else "instances/list.html"
    response = render_page(request, template, context, section="instances", crumbs=[(_("Instances"), None)])
    if needing_attention_count:
        refresh_soon(response)
    return response


def _sums(figures_list: list[InstanceFigures]) -> dict[str, str]:
    """Returns the sums over all instances in MB/s and GB; a dash if one of them is unknown."""

    def total(values: list[int | None], unit: int) -> str:
        return UNKNOWN if None in values else f"{sum(value or 0 for value in values) / unit:,.1f}"

    return {
        "produce": total([row.produce_bytes_per_s for row in figures_list], BYTES_PER_MB),
        "consume": total([row.consume_bytes_per_s for row in figures_list], BYTES_PER_MB),
        "storage": total([row.stored_bytes for row in figures_list], BYTES_PER_GB),
    }


def _groups(phases: Counter[str], chosen_group: str) -> list[tuple[str, str, int, bool]]:
    """Returns the filters by phase as `(filter word in the URL, label, number of instances, is chosen)`."""
    labels = {"": _("All"), "running": _("Running"), "changing": _("Changing"), "stopped": _("Stopped")}
    count_by_name = {name: sum(phases[phase.value] for phase in members) for name, members in GROUPS.items()}
    return [
        (name, label, count_by_name.get(name, phases.total()), name == chosen_group) for name, label in labels.items()
    ]


@console_page(Scope.INSTANCES_READ)
@require_GET
def operations_part(request: HttpRequest) -> HttpResponse:
    """Renders the latest operations for the menu in the header."""
    tenant = access.tenant_of(request.actor)  # type: ignore[attr-defined]
    context = {"operations": selectors.operation_list(tenant)[:OPERATIONS_SHOWN]}
    return render_page(request, "instances/operations_part.html", context)
