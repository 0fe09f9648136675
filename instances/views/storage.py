"""Page of an instance's storage: use by topic, and the forecast."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET

from instances.choices import StorageWhenFull
from instances.lifecycle.phases import REACHABLE
from instances.limits import STORAGE_TOPICS_PER_PAGE
from instances.metrics.forecast import FillState, Forecast
from instances.metrics.storage import storage_of, topic_page
from instances.models import Instance
from instances.views.attention import InstanceNotice, fault_notices, firing_alerts_of
from instances.views.common import instance_page, render_instance
from tenants.choices import Scope
from tenants.formatting import size, size_use
from tenants.forms import AuditFilterForm

S_PER_HOUR = 3_600
S_PER_DAY = 86_400


@instance_page(Scope.TOPICS_READ)
@require_GET
def storage_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows the gauge, the forecast, and one page of topics by name; filter and page are in the URL."""
    form = AuditFilterForm(request.GET)
    search_text, page_token = (form.cleaned_data["q"], form.cleaned_data["page_token"]) if form.is_valid() else ("", "")
    alerts = firing_alerts_of(request.actor, instance)  # type: ignore[attr-defined]
    needs = [notice for notice in fault_notices(instance, alerts) if notice.is_storage or _is_storage_alert(notice)]
    context: dict[str, Any] = {"words": search_text, "is_first": not page_token, "needs": needs}
    if instance.current_phase in REACHABLE:
        storage = storage_of(instance)
        topics, next_token = topic_page(
            instance, storage, contains=search_text, page_token=page_token or None, page_size=STORAGE_TOPICS_PER_PAGE
        )
        context |= {
            "storage": storage,
            "use": size_use(storage.used_bytes, storage.bought_bytes),
            "topics": topics,
            "next_token": next_token,
            "biggest": max((topic.stored_bytes for topic in storage.topics), default=0),
            "forecast": forecast_text(storage.forecast),
            "when_full": full_storage_text(instance, storage.when_full),
        }
    return render_instance(
        request, "instances/storage.html", instance, context, section="overview", crumbs=[(_("Storage"), None)]
    )


def _is_storage_alert(notice: InstanceNotice) -> bool:
    return any(alert.kind == "storage_used" for alert in notice.alerts)


def forecast_text(forecast: Forecast) -> str:
    if forecast.state is FillState.FULL:
        return _("It is full.")
    if forecast.state is FillState.UNKNOWN:
        return _("When it is full is not known yet: that takes half an hour of figures.")
    if forecast.state is FillState.NOT_FILLING or forecast.full_in_s is None:
        return _("It is not filling.")
    values = {"when": approximate_duration(forecast.full_in_s), "amount": size(forecast.bytes_per_hour)}
    return _("Full in about %(when)s, at %(amount)s more each hour.") % values


def approximate_duration(duration_s: int) -> str:
    """Returns a duration in one unit: minutes below two hours, hours below two days, else days."""
    if duration_s < 2 * S_PER_HOUR:
        n = max(1, round(duration_s / 60))
        return ngettext("%(n)d minute", "%(n)d minutes", n) % {"n": n}
    if duration_s < 2 * S_PER_DAY:
        n = round(duration_s / S_PER_HOUR)
        return ngettext("%(n)d hour", "%(n)d hours", n) % {"n": n}
    n = round(duration_s / S_PER_DAY)
    return ngettext("%(n)d day", "%(n)d days", n) % {"n": n}


def full_storage_text(instance: Instance, when_full: StorageWhenFull) -> str:
    """Returns what happens when the storage is full, by the settings, in words."""
    settings = instance.settings_in_force
    if when_full == StorageWhenFull.SHRINK_RETENTION:
        text = _("When it is nearly full, the oldest records go; none younger than %(n)d min.")
        result = text % {"n": settings["storage_retention_minutes_min"]}
    else:
        result = _("When it is full, produce is refused.")
    if settings["storage_grow_step_gb"] and settings["storage_grow_max_gb"]:
        numbers = {"step": f"{settings['storage_grow_step_gb']:,}", "most": f"{settings['storage_grow_max_gb']:,}"}
        result += " " + _("From 90 %% on it grows by %(step)s GB, up to %(most)s GB.") % numbers
    return result
