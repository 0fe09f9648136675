"""Operator pages of broker settings: all of them with their meaning, and a form for those that change without a
restart.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods

from brokers.admin_views.panel import BROKER_DIGITS, attempt, cluster_or_404, page, refuse_fields, render_page
from brokers.contract.instance_limits import CONFIG_VALUE_BYTES_MAX
from brokers.dataplane.settings import BROKER, CLUSTER, DEFAULT, START, BrokerSettingView
from brokers.models import Broker, Cluster
from brokers.operations import broker_settings
from tenants.errors import DomainError
from tenants.operator import acting_operator

LEVELS = {
    BROKER: gettext_lazy("this broker"),
    CLUSTER: gettext_lazy("all brokers"),
    START: gettext_lazy("its start"),
    DEFAULT: gettext_lazy("default"),
}


class SettingForm(forms.Form):
    value = forms.CharField(
        label=gettext_lazy("Value"), max_length=CONFIG_VALUE_BYTES_MAX, required=False, strip=True,
        help_text=gettext_lazy("Empty: the value at this level is removed, and the next one applies."),
    )  # fmt: skip


@page
@require_GET
def settings(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Shows the settings of a broker, or of all brokers of a cluster."""
    cluster = cluster_or_404(cluster_id)
    broker = _broker_or_404(cluster, request.GET.get("broker", ""))
    views = attempt(request, lambda: broker_settings.settings_of(cluster, broker), "") or []
    context: dict[str, Any] = {
        "cluster": cluster,
        "broker": broker,
        "brokers": cluster.brokers.filter(removed_at=None).order_by("number"),
        "lines": [(view, LEVELS[view.level]) for view in views],
    }
    return render_page(request, "settings", _("Settings of brokers"), context)


@page
@require_http_methods(["GET", "POST"])
def setting_edit(request: HttpRequest, cluster_id: str, name: str) -> HttpResponse:
    """Shows the form of one setting and changes it."""
    cluster = cluster_or_404(cluster_id)
    broker = _broker_or_404(cluster, request.GET.get("broker", ""))
    back = reverse("admin:brokers_settings", args=[cluster.pk]) + (f"?broker={broker.number}" if broker else "")
    views = attempt(request, lambda: broker_settings.settings_of(cluster, broker), "")
    if views is None:
        return redirect(back)
    view = _changeable_or_404(views, name)
    form = SettingForm(request.POST or None, initial={"value": view.values.get(BROKER if broker else CLUSTER, "")})
    if form.is_valid():
        try:
            broker_settings.change_settings(
                acting=acting_operator(request), cluster=cluster, broker=broker,
                changes={name: form.cleaned_data["value"] or None},
            )  # fmt: skip
        except DomainError as refusal:
            refuse_fields(form, refusal)
        else:
            messages.success(request, _("Saved."))
            return redirect(back)
    scope_text = (
        _("Of broker %(number)s.") % {"number": broker.number} if broker else _("Of all brokers of the cluster.")
    )
    value_text = _("In force: %(value)s.") % {"value": "—" if view.value is None else view.value}
    context = {
        "form": form,
        "intro": f"{scope_text} {value_text} {view.documentation}",
        "submit": _("Save"),
        "back": back,
    }
    return render_page(request, "fleet_form", name, context)


def _broker_or_404(cluster: Cluster, number: str) -> Broker | None:
    """Returns the broker with this number; None if `number` is empty. Raises `Http404` for an unknown broker."""
    if not number:
        return None
    is_number = number.isascii() and number.isdigit() and len(number) <= BROKER_DIGITS
    broker = cluster.brokers.filter(number=int(number), removed_at=None).first() if is_number else None
    if broker is None:
        raise Http404
    return broker


def _changeable_or_404(views: Any, name: str) -> BrokerSettingView:
    for view in views:
        if view.name == name and view.is_changeable:
            assert isinstance(view, BrokerSettingView)
            return view
    raise Http404


def urls() -> list[URLPattern]:
    """URLs below /operator/brokers/cluster/."""
    return [
        path("<str:cluster_id>/settings/", settings, name="brokers_settings"),
        path("<str:cluster_id>/settings/<str:name>/", setting_edit, name="brokers_setting_edit"),
    ]
