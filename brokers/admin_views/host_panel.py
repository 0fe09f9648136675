"""Operator pages of hosts: details, forms to add and change, and removal."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods

from brokers import selectors
from brokers.admin_views.panel import attempt, nonempty_lines, page, refuse_fields, render_page
from brokers.contract.ports import HIGHEST_PORT, LOWEST_PORT
from brokers.limits import (
    ADDRESS_CHARS_MAX,
    BROKER_CAPACITY_MAX,
    HOST_NAME_CHARS_MAX,
    JOIN_TOKEN_MINUTES,
    PORTS_PER_HOST,
    ZONE_CHARS_MAX,
)
from brokers.models import Host
from brokers.operations import hosts, joining
from brokers.operations.check_texts import shown_checks
from tenants.errors import DomainError
from tenants.operator import acting_operator

FIRST_PORT_OFFERED = 19_000


class HostForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=HOST_NAME_CHARS_MAX,
        help_text=gettext_lazy("Its agent is started by this name. Small letters, digits and -."),
    )  # fmt: skip
    zone = forms.CharField(
        label=gettext_lazy("Zone"), max_length=ZONE_CHARS_MAX, required=False,
        help_text=gettext_lazy("Rack of its brokers that have none of their own: replicas are spread over racks."),
    )  # fmt: skip
    advertised_host = forms.CharField(
        label=gettext_lazy("Advertised address"), max_length=ADDRESS_CHARS_MAX,
        help_text=gettext_lazy("Name or address under which clients reach its brokers."),
    )  # fmt: skip
    bind_host = forms.CharField(
        label=gettext_lazy("Listens on"), max_length=ADDRESS_CHARS_MAX, required=False,
        help_text=gettext_lazy("Empty: the advertised address. 0.0.0.0 is every address of the machine."),
    )  # fmt: skip
    internal_host = forms.CharField(
        label=gettext_lazy("Internal address"), max_length=ADDRESS_CHARS_MAX, required=False,
        help_text=gettext_lazy("Empty: the advertised address."),
    )  # fmt: skip
    port_first = forms.IntegerField(
        label=gettext_lazy("First tenant port"), min_value=LOWEST_PORT, max_value=HIGHEST_PORT,
        initial=FIRST_PORT_OFFERED,
    )  # fmt: skip
    port_last = forms.IntegerField(
        label=gettext_lazy("Last tenant port"), min_value=LOWEST_PORT, max_value=HIGHEST_PORT,
        initial=FIRST_PORT_OFFERED + PORTS_PER_HOST - 1,
    )  # fmt: skip
    capacity_mb_s = forms.IntegerField(
        label=gettext_lazy("Its brokers may sell, MB/s"), min_value=1, max_value=BROKER_CAPACITY_MAX, required=False,
        help_text=gettext_lazy("All of them together. Empty: no limit."),
    )  # fmt: skip
    capacity_gb = forms.IntegerField(
        label=gettext_lazy("Its brokers may sell, GB"), min_value=1, max_value=BROKER_CAPACITY_MAX, required=False
    )
    data_dirs = forms.CharField(
        label=gettext_lazy("Data directories"), widget=forms.Textarea(attrs={"rows": 2}), required=False,
        help_text=gettext_lazy("Absolute paths, one a line, for the logs of brokers. Empty: in the state directory."),
    )  # fmt: skip

    def clean_data_dirs(self) -> list[str]:
        return nonempty_lines(self.cleaned_data["data_dirs"])


class HostEditForm(HostForm):
    name = None  # type: ignore[assignment]


def host_or_404(host_id: str) -> Any:
    """Returns a host of the fleet by id. Raises `Http404`."""
    return get_object_or_404(selectors.hosts(), pk=host_id)


@page
@require_GET
def host(request: HttpRequest, host_id: str) -> HttpResponse:
    """Shows a host with its agent, its brokers and their disks."""
    row = host_or_404(host_id)
    brokers = list(selectors.brokers().filter(host=row))
    context = {
        "host": row,
        "is_alive": selectors.agent_is_alive(row),
        "command": hosts.agent_command(row),
        "checks": shown_checks(row),
        "brokers": brokers,
        "disks": selectors.disks_of(brokers),
        "memory_used_bytes": _memory_used_bytes(row),
    }
    template = "host_part" if request.headers.get("HX-Request") else "host"
    return render_page(request, template, _("Host %(name)s") % {"name": row.name}, context)


def _memory_used_bytes(row: Host) -> int | None:
    """Returns the memory that programs use; None if the agent has not reported it."""
    return row.machine["memory_bytes"] - row.machine["memory_available_bytes"] if row.machine else None


@page
@require_http_methods(["GET", "POST"])
def host_add(request: HttpRequest) -> HttpResponse:
    """Shows the form for a new host and adds it."""
    form = HostForm(request.POST or None)
    if form.is_valid():
        try:
            new_host = hosts.add_host(acting=acting_operator(request), **form.cleaned_data)
        except DomainError as refusal:
            refuse_fields(form, refusal)
        else:
            messages.success(request, _("Host %(name)s is added. Start its agent there.") % {"name": new_host.name})
            return _show_token(request, new_host)
    context = {
        "form": form,
        "intro": _(
            "A machine that runs brokers. Install Penstock there first; the next page has the line that joins it."
        ),
        "submit": _("Add host"),
        "back": reverse("admin:brokers_host_changelist"),
    }
    return render_page(request, "fleet_form", _("Add host"), context)


def _show_token(request: HttpRequest, row: Host) -> HttpResponse:
    """Makes a join token and shows its command line, once: browsers do not store pages of the panel."""
    token = attempt(request, lambda: joining.new_join_token(acting=acting_operator(request), host=row), "")
    if token is None:
        return redirect("admin:brokers_host_change", row.pk)
    context = {"host": row, "token": token, "minutes": JOIN_TOKEN_MINUTES, "with_database": hosts.agent_command(row)}
    return render_page(request, "host_token", _("Host %(name)s") % {"name": row.name}, context)


@page
@require_http_methods(["GET", "POST"])
def host_token(request: HttpRequest, host_id: str) -> HttpResponse:
    """Shows the confirmation page of a new join token, and makes it."""
    row: Host = host_or_404(host_id)
    if request.method == "POST":
        return _show_token(request, row)
    sentences = [_("The line that joins the machine is shown once. Its token is for one use within an hour.")]
    if row.agent_joined_at is not None:
        sentences.append(
            _("The certificate of its agent is revoked, and so are those of its brokers: until the agent has joined "
              "again, other brokers refuse them (within 30 s), and a broker that ends is not started.")
        )  # fmt: skip
    context = {
        "sentences": sentences,
        "submit": _("Make a join token"),
        "back": reverse("admin:brokers_host_change", args=[row.pk]),
    }
    return render_page(request, "fleet_confirm", _("Join token of host %(name)s") % {"name": row.name}, context)


@page
@require_http_methods(["GET", "POST"])
def host_edit(request: HttpRequest, host_id: str) -> HttpResponse:
    """Shows the form of a host and changes it."""
    row = host_or_404(host_id)
    initial = {name: getattr(row, name) for name in hosts.CHANGEABLE} | {"data_dirs": "\n".join(row.data_dirs)}
    form = HostEditForm(request.POST or None, initial=initial)
    if form.is_valid():
        changes = dict(form.cleaned_data)
        for name in ("bind_host", "internal_host"):
            changes[name] = changes[name] or changes["advertised_host"]
        try:
            hosts.change_host(acting=acting_operator(request), host=row, changes=changes)
        except DomainError as refusal:
            refuse_fields(form, refusal)
        else:
            messages.success(request, _("Saved."))
            return redirect("admin:brokers_host_change", row.pk)
    context = {
        "form": form,
        "intro": _(
            "Where brokers listen is changed while it has none. A broker takes up another zone when it restarts."
        ),
        "submit": _("Save"),
        "back": reverse("admin:brokers_host_change", args=[row.pk]),
    }
    return render_page(request, "fleet_form", _("Host %(name)s") % {"name": row.name}, context)


@page
@require_http_methods(["GET", "POST"])
def host_remove(request: HttpRequest, host_id: str) -> HttpResponse:
    """Shows the confirmation page of a removal and removes the host."""
    row: Host = host_or_404(host_id)
    back = reverse("admin:brokers_host_change", args=[row.pk])
    if request.method == "POST":
        removed_host = attempt(
            request,
            lambda: hosts.remove_host(acting=acting_operator(request), host=row),
            _("Host %(name)s is removed. Stop its agent.") % {"name": row.name},
        )
        return redirect(back if removed_host is None else reverse("admin:brokers_host_changelist"))
    context = {
        "sentences": [
            _("A host without brokers is taken off the fleet. Logs that removed brokers left on it are not deleted."),
            _("To use the machine again, add it again."),
        ],
        "submit": _("Remove host"),
        "back": back,
    }
    return render_page(request, "fleet_confirm", _("Remove host %(name)s") % {"name": row.name}, context)


def urls() -> list[URLPattern]:
    """URLs below /operator/brokers/host/."""
    return [
        path("add/", host_add, name="brokers_host_add"),
        path("<str:host_id>/change/", host, name="brokers_host_change"),
        path("<str:host_id>/edit/", host_edit, name="brokers_host_edit"),
        path("<str:host_id>/join-token/", host_token, name="brokers_host_token"),
        path("<str:host_id>/remove/", host_remove, name="brokers_host_remove"),
    ]
