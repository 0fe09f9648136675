"""Pages of transactions: those in flight with age, producer and partitions, and one transactional id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from instances import services
from instances.groups import transaction_selectors
from instances.groups.transaction_selectors import IN_FLIGHT
from instances.lifecycle.phases import REACHABLE
from instances.models import Instance
from instances.templatetags.groups import transaction_url
from instances.views.common import instance_page, render_instance
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.forms import AuditFilterForm
from tenants.limits import PAGE_SIZE_DEFAULT
from tenants.views.asking import Question, ask_first
from tenants.views.base import wording

REFRESH_PERIOD_S = 3
PARTITIONS_SHOWN = 3


@instance_page(Scope.GROUPS_READ)
@require_GET
def transactions_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows open transactions by transactional id, or all known ids; the filter is in the URL."""
    form = AuditFilterForm(request.GET)
    search_text, page_token = (form.cleaned_data["q"], form.cleaned_data["page_token"]) if form.is_valid() else ("", "")
    shows_all = request.GET.get("state") == "all"
    context: dict[str, Any] = {"words": search_text, "shows_all": shows_all, "period_s": REFRESH_PERIOD_S, "rows": ()}
    if instance.current_phase in REACHABLE:
        page = transaction_selectors.transaction_page(
            instance, contains=search_text, states=() if shows_all else sorted(IN_FLIGHT),
            page_token=page_token or None, page_size=PAGE_SIZE_DEFAULT,
        )  # fmt: skip
        context |= {
            "rows": page.rows,
            "next_token": page.next_token,
            "is_first": not page_token,
            "silent": page.silent,
            "filters": _filters(page.counts, shows_all=shows_all),
            "total": sum(page.counts.values()),
            "places_shown": PARTITIONS_SHOWN,
        }
    context["is_part"] = is_part = bool(request.headers.get("HX-Request"))
    template = "instances/transaction_rows.html" if is_part else "instances/transactions.html"
    crumbs = [(_("Groups"), reverse("page-groups", args=[instance.pk])), (_("Transactions"), None)]
    return render_instance(request, template, instance, context, section="groups", crumbs=crumbs)


def _filters(counts: Mapping[str, int], *, shows_all: bool) -> list[tuple[str, str, int, bool]]:
    """Returns the filters by state as `(word in the URL, label, number of ids, is chosen)`."""
    open_ = sum(counts.get(state, 0) for state in IN_FLIGHT)
    return [("", _("In flight"), open_, not shows_all), ("all", _("All ids"), sum(counts.values()), shows_all)]


@instance_page(Scope.GROUPS_WRITE)
@require_POST
def abort_transaction(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Aborts an open transaction, after a question."""
    transactional_id = request.GET.get("id", "")
    transaction_page_url = transaction_url("page-transaction", instance.pk, transactional_id)
    question = Question(
        title=_("Abort transaction %(id)s?") % {"id": transactional_id},
        consequence=_(
            "What it wrote so far is skipped by consumers that read only committed messages. Its producer gets"
            " PRODUCER_FENCED and must begin anew."
        ),
        action_label=_("Abort transaction"),
        back=transaction_page_url,
    )
    crumbs = [
        (_("Transactions"), reverse("page-transactions", args=[instance.pk])),
        (transactional_id, transaction_page_url),
    ]
    question_page = ask_first(request, question, section="groups", crumbs=crumbs, context={"instance": instance})
    if question_page is not None:
        return question_page
    try:
        services.abort_transaction(
            acting=request.actor,  # type: ignore[attr-defined]
            instance=instance,
            transactional_id=transactional_id,
        )
        messages.success(request, _("Transaction %(id)s is aborted.") % {"id": transactional_id})
    except DomainError as error:
        if error.http_status == 404:
            raise
        messages.error(request, wording(error))
    return redirect(transaction_page_url)


@instance_page(Scope.GROUPS_READ)
@require_GET
def transaction_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows one transactional id with its producer in each partition."""
    transactional_id = request.GET.get("id", "")
    detail = transaction_selectors.transaction_detail(instance, transactional_id)
    crumbs = [(_("Transactions"), reverse("page-transactions", args=[instance.pk])), (transactional_id, None)]
    is_part = bool(request.headers.get("HX-Request"))
    template = "instances/transaction_part.html" if is_part else "instances/transaction.html"
    context = {"row": detail.row, "producers": detail.producers, "period_s": REFRESH_PERIOD_S}
    return render_instance(request, template, instance, context, section="groups", crumbs=crumbs)
