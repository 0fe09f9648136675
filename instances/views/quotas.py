"""Page of an instance's client quotas by level: set, remove, and look up the rule that applies to a client."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST

from instances.forms import AddressForm, AddressQuotaForm, EntityForm, ExplainForm, QuotaForm
from instances.lifecycle.phases import REACHABLE
from instances.limits import BYTES_PER_MB
from instances.models import Instance
from instances.users.selectors import user_names
from instances.views.common import instance_page, render_instance
from instances.views.throttle_texts import ANONYMOUS, entity_text, level_text
from quotas import selectors, services
from quotas.addresses import CONNECTION_CREATION_RATE
from quotas.explain import EffectiveLimit
from quotas.interfaces import ClientQuota, EntityPart
from tenants import access
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.formatting import quota_limit, span
from tenants.views.asking import Question, ask_first
from tenants.views.base import add_errors, wording

# Fields of the form by the quota that they set, in MB/s.
BYTE_RATES = {"producer_byte_rate": "produce_mb_s", "consumer_byte_rate": "consume_mb_s"}
# Fields of quotas that are not in bytes.
OTHER_QUOTAS = {"request_percentage": "request_percent", "controller_mutation_rate": "partitions_per_s"}
QUOTA_LABELS = {
    "producer_byte_rate": gettext_lazy("Produce"),
    "consumer_byte_rate": gettext_lazy("Consume"),
    "request_percentage": gettext_lazy("Request time"),
    "controller_mutation_rate": gettext_lazy("Partition changes"),
}
ADDRESS_FIELDS = {"/entity/ip": "ip", f"/limits/{CONNECTION_CREATION_RATE}": "connections_per_s"}
FIELDS = {f"/limits/{key}": field for key, field in (BYTE_RATES | OTHER_QUOTAS).items()} | {"/entity": "user_kind"}


@instance_page(Scope.QUOTAS_READ)
@require_http_methods(["GET", "POST"])
def quotas_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows quotas by level; a POST sets the limits of one entity, `?explain` looks up the rule that applies."""
    acting = request.actor  # type: ignore[attr-defined]
    form = QuotaForm(request.POST or None)
    if form.is_valid():
        access.require(acting, Scope.QUOTAS_WRITE)
        user, client_id = form.part("user"), form.part("client_id")
        limits: dict[str, float | None] = {
            key: None if form.cleaned_data[field] is None else float(round(form.cleaned_data[field] * BYTES_PER_MB))
            for key, field in BYTE_RATES.items()
        }
        others = {key: form.cleaned_data[field] for key, field in OTHER_QUOTAS.items()}
        try:
            existing = selectors.quota_of(instance, user, client_id)
            # Other limits that are empty in the form keep their values.
            unchanged = (
                {key: value for key, value in existing.limits.items() if key not in BYTE_RATES} if existing else {}
            )
            entered = {key: float(value) for key, value in others.items() if value is not None}
            services.set_quota(
                acting=acting, instance=instance, user=user, client_id=client_id, limits=unchanged | entered | limits
            )
        except DomainError as error:
            add_errors(form, error, FIELDS)
        else:
            messages.success(request, _("The quota of %(who)s is in force.") % {"who": _entity_text(user, client_id)})
            _warn_if_below_one_batch(
                request,
                ClientQuota(user=user, client_id=client_id, limits=unchanged | entered | _without_unset(limits)),
            )
            return redirect("page-quotas", instance.pk)
    return _render(request, instance, form, AddressQuotaForm())


def _without_unset(limits: dict[str, float | None]) -> dict[str, float]:
    return {key: value for key, value in limits.items() if value is not None}


def _warn_if_below_one_batch(request: HttpRequest, quota: ClientQuota) -> None:
    """Shows a warning if one batch may exceed a limit."""
    wait_s = selectors.batch_delay_s(quota)
    if wait_s:
        text = _("One batch of 1 MiB passes whole under it, and what follows waits up to %(span)s.")
        messages.warning(request, text % {"span": span(wait_s)})


def _render(request: HttpRequest, instance: Instance, form: QuotaForm, address_form: AddressQuotaForm) -> HttpResponse:
    acting = request.actor  # type: ignore[attr-defined]
    explain_form = ExplainForm(request.GET if "explain" in request.GET else None)
    is_reachable = instance.current_phase in REACHABLE
    quotas = selectors.quota_list(instance) if is_reachable else []
    context = {
        "form": form,
        "address_form": address_form,
        "ask": explain_form,
        "answers": _explanations(instance, explain_form) if is_reachable and explain_form.is_valid() else [],
        "quotas": [_row(quota) for quota in quotas],
        "addresses": selectors.address_quota_list(instance) if is_reachable else [],
        "user_names": user_names(instance) if access.permits(acting, Scope.USERS_READ) else (),
        "levels": [(level, level_text(level)) for level in range(1, 9)],
    }
    return render_instance(
        request,
        "instances/quotas.html",
        instance,
        context,
        section="quotas",
        crumbs=[(_("Quotas"), None)],
        status=422 if form.is_bound or address_form.is_bound else 200,
    )


@instance_page(Scope.QUOTAS_READ)
@require_http_methods(["GET", "POST"])
def addresses_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows the page of quotas; a POST sets the connection rate of an address."""
    form = AddressQuotaForm(request.POST or None)
    if form.is_valid():
        access.require(request.actor, Scope.QUOTAS_WRITE)  # type: ignore[attr-defined]
        try:
            services.set_address_quota(
                acting=request.actor,  # type: ignore[attr-defined]
                instance=instance,
                address=form.address,
                connections_per_s=form.cleaned_data["connections_per_s"],
            )
        except DomainError as error:
            add_errors(form, error, ADDRESS_FIELDS)
        else:
            messages.success(request, _("The limit of %(who)s is in force.") % {"who": _address_text(form.address)})
            return redirect("page-quotas", instance.pk)
    return _render(request, instance, QuotaForm(), form)


@instance_page(Scope.QUOTAS_WRITE)
@require_POST
def delete_address_quota(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Removes the limit of an address; then the default limit applies to it."""
    form = AddressForm(request.POST)
    if not form.is_valid():
        messages.error(request, _("There is no such quota."))
        return redirect("page-quotas", instance.pk)
    consequence = _("It may open as many connections a second as the limit of each address allows.")
    question_page = _confirm_removal(request, instance, _address_text(form.address), consequence)
    if question_page is not None:
        return question_page
    try:
        services.delete_address_quota(acting=request.actor, instance=instance, address=form.address)  # type: ignore[attr-defined]
        messages.success(request, _("The limit of %(who)s is removed.") % {"who": _address_text(form.address)})
    except DomainError as error:
        messages.error(request, wording(error))
    return redirect("page-quotas", instance.pk)


def _address_text(address: str | None) -> str:
    return _("each address") if address is None else _("address %(name)s") % {"name": address}


@instance_page(Scope.QUOTAS_WRITE)
@require_POST
def delete_quota(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Removes the quota of one entity; its clients get that of the next level that applies."""
    form = EntityForm(request.POST)
    if not form.is_valid():
        messages.error(request, _("There is no such quota."))
        return redirect("page-quotas", instance.pk)
    user, client_id = form.part("user"), form.part("client_id")
    consequence = _("Its clients fall to the next of the eight levels that applies, or have no limit of their own.")
    question_page = _confirm_removal(request, instance, _entity_text(user, client_id), consequence)
    if question_page is not None:
        return question_page
    try:
        services.delete_quota(acting=request.actor, instance=instance, user=user, client_id=client_id)  # type: ignore[attr-defined]
        messages.success(request, _("The quota of %(who)s is removed.") % {"who": _entity_text(user, client_id)})
    except DomainError as error:
        messages.error(request, wording(error))
    return redirect("page-quotas", instance.pk)


def _confirm_removal(request: HttpRequest, instance: Instance, entity: str, consequence: str) -> HttpResponse | None:
    """Returns the question before a limit is removed; None if it is answered."""
    back = reverse("page-quotas", args=[instance.pk])
    question = Question(
        title=_("Remove the quota of %(who)s?") % {"who": entity},
        consequence=consequence,
        action_label=_("Remove"),
        back=back,
    )
    crumbs = [(instance.name, reverse("page-instance", args=[instance.pk])), (_("Quotas"), back)]
    return ask_first(request, question, section="quotas", crumbs=crumbs, context={"instance": instance})


def _entity_text(user: EntityPart | None, client_id: EntityPart | None) -> str:
    parts = {"user": user, "client_id": client_id}
    return entity_text({kind: part.name for kind, part in parts.items() if part is not None})


def _kind(part: EntityPart | None) -> str:
    return "none" if part is None else ("default" if part.name is None else "name")


def _row(quota: ClientQuota) -> dict[str, object]:
    parts = {"user": quota.user, "client_id": quota.client_id}
    values: dict[str, object] = {
        "level": selectors.level_of(quota),
        "who": _entity_text(quota.user, quota.client_id),
        "produce": quota.limits.get("producer_byte_rate"),
        "consume": quota.limits.get("consumer_byte_rate"),
        "others": [
            (QUOTA_LABELS[key], quota_limit(quota.limits[key], key)) for key in OTHER_QUOTAS if key in quota.limits
        ],
    }
    for kind, part in parts.items():
        values[f"{kind}_kind"] = _kind(part)
        values[kind] = part.name if part and part.name is not None else ""
    return values


def _explanations(instance: Instance, explain_form: ExplainForm) -> list[dict[str, object]]:
    user, client_id = explain_form.cleaned_data["user"] or ANONYMOUS, explain_form.cleaned_data["client_id"]
    effective_quotas = selectors.effective_quota(instance, user=user, client_id=client_id)
    return [_explanation(effective) for effective in effective_quotas]


def _explanation(effective: EffectiveLimit) -> dict[str, object]:
    rows = []
    for level in effective.levels:
        text = {
            "applies": _("%(limit)s applies") % {"limit": quota_limit(level.limit, effective.quota)},
            "weaker": quota_limit(level.limit, effective.quota),
            "not_set": _("not set"),
            "not_asked": _("needs a client id"),
        }[level.verdict]
        rows.append(
            {"level": level.level, "name": level_text(level.level), "value": text, "wins": level.verdict == "applies"}
        )
    return {"title": QUOTA_LABELS[effective.quota], "limit": effective.limit, "lines": rows}
