"""Operator forms for forming, changing and retiring clusters."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from brokers import selectors
from brokers.admin_views.check_boxes import ManyCheckBoxes
from brokers.admin_views.panel import attempt, cluster_or_404, page, refuse_fields, render_page
from brokers.choices import ClusterKind
from brokers.limits import (
    BROKERS_PER_CLUSTER_MAX,
    BROKERS_PER_INSTANCE_MIN,
    CLUSTER_CAPACITY_MAX,
    CLUSTER_NAME_CHARS_MAX,
    CLUSTER_PARTITIONS_MAX,
    ZONE_CHARS_MAX,
    ZONES_PER_CLUSTER_MAX,
)
from brokers.models import Cluster
from brokers.operations import clusters
from tenants.errors import DomainError
from tenants.operator import acting_operator

ZONES_CHARS_MAX = ZONES_PER_CLUSTER_MAX * (ZONE_CHARS_MAX + 2)


class ClusterEditForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=CLUSTER_NAME_CHARS_MAX,
        help_text=gettext_lazy("Small letters, digits and -."),
    )  # fmt: skip
    accepts_instances = forms.BooleanField(label=gettext_lazy("Takes further instances"), required=False, initial=True)
    zones = forms.CharField(
        label=gettext_lazy("Zones"), max_length=ZONES_CHARS_MAX, required=False,
        help_text=gettext_lazy("Zones of hosts that its brokers may be on, with spaces between. Empty: all."),
    )  # fmt: skip
    brokers_per_instance_min = forms.IntegerField(
        label=gettext_lazy("Brokers per instance, at least"), min_value=1, max_value=BROKERS_PER_CLUSTER_MAX,
        initial=BROKERS_PER_INSTANCE_MIN,
    )  # fmt: skip
    max_partitions = forms.IntegerField(
        label=gettext_lazy("Partitions, at most"), min_value=1, max_value=CLUSTER_PARTITIONS_MAX, required=False,
        help_text=gettext_lazy("What all its instances together may have. Empty: no limit."),
    )  # fmt: skip
    max_bandwidth_mb_s = forms.IntegerField(
        label=gettext_lazy("Bandwidth sold, MB/s, at most"), min_value=1, max_value=CLUSTER_CAPACITY_MAX,
        required=False, help_text=gettext_lazy("Empty: what its brokers may sell."),
    )  # fmt: skip
    max_storage_gb = forms.IntegerField(
        label=gettext_lazy("Storage sold, GB, at most"), min_value=1, max_value=CLUSTER_CAPACITY_MAX, required=False,
        help_text=gettext_lazy("Empty: what its brokers may sell."),
    )  # fmt: skip

    def clean_zones(self) -> list[str]:
        return str(self.cleaned_data["zones"]).replace(",", " ").split()


class ClusterForm(ClusterEditForm):
    kind = forms.ChoiceField(
        label=gettext_lazy("Kind"), choices=ClusterKind.choices,
        help_text=gettext_lazy("A dedicated cluster is for one instance of that type alone."),
    )  # fmt: skip
    hosts = forms.ModelMultipleChoiceField(
        selectors.hosts().none(), label=gettext_lazy("Hosts"), required=False, widget=ManyCheckBoxes,
        help_text=gettext_lazy("Without any, add brokers on its map later."),
    )  # fmt: skip
    brokers_per_host = forms.IntegerField(
        label=gettext_lazy("Brokers on each of them"), min_value=1, max_value=BROKERS_PER_CLUSTER_MAX, initial=1
    )
    field_order = (
        "name", "kind", "hosts", "brokers_per_host", "accepts_instances", "zones", "brokers_per_instance_min",
        "max_partitions", "max_bandwidth_mb_s", "max_storage_gb",
    )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["hosts"]
        assert isinstance(field, forms.ModelMultipleChoiceField)
        field.queryset = selectors.hosts()


@page
@require_http_methods(["GET", "POST"])
def cluster_add(request: HttpRequest) -> HttpResponse:
    """Shows the form for a new cluster and forms it."""
    form = ClusterForm(request.POST or None)
    if form.is_valid():
        values = dict(form.cleaned_data)
        # Round robin over hosts, so that brokers with adjacent numbers are on different hosts.
        hosts = [*values.pop("hosts")] * values.pop("brokers_per_host")
        try:
            operation = clusters.add_cluster(acting=acting_operator(request), hosts=hosts, **values)
        except DomainError as refusal:
            refuse_fields(form, refusal)
        else:
            messages.success(request, _("Cluster %(name)s is being formed.") % {"name": operation.cluster.name})
            return redirect("admin:brokers_cluster_map", operation.cluster_id)
    context = {
        "form": form,
        "intro": _("A cluster is ready for instances when its brokers answer and have elected a controller."),
        "submit": _("Form cluster"),
        "back": reverse("admin:brokers_cluster_changelist"),
    }
    return render_page(request, "fleet_form", _("Add cluster"), context)


@page
@require_http_methods(["GET", "POST"])
def cluster_edit(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Shows the form with the changeable fields of a cluster and changes it."""
    cluster: Cluster = cluster_or_404(cluster_id)
    back = reverse("admin:brokers_cluster_map", args=[cluster.pk])
    initial = {name: getattr(cluster, name) for name in clusters.CHANGEABLE} | {"zones": " ".join(cluster.zones)}
    form = ClusterEditForm(request.POST or None, initial=initial)
    if form.is_valid():
        try:
            clusters.change_cluster(acting=acting_operator(request), cluster=cluster, changes=form.cleaned_data)
        except DomainError as refusal:
            refuse_fields(form, refusal)
        else:
            messages.success(request, _("Saved."))
            return redirect(back)
    context = {
        "form": form,
        "intro": _("Instances that live on it stay as they are."),
        "submit": _("Save"),
        "back": back,
    }
    return render_page(request, "fleet_form", _("Cluster %(name)s") % {"name": cluster.name}, context)


@page
@require_http_methods(["GET", "POST"])
def cluster_retire(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Shows the confirmation page of a retirement and starts it."""
    cluster: Cluster = cluster_or_404(cluster_id)
    back = reverse("admin:brokers_cluster_map", args=[cluster.pk])
    if request.method == "POST":
        attempt(
            request,
            lambda: clusters.retire_cluster(acting=acting_operator(request), cluster=cluster),
            _("Cluster %(name)s is being retired.") % {"name": cluster.name},
        )
        return redirect(back)
    context = {
        "sentences": [
            _("Only a cluster without instances is retired; deleted ones that can be restored count."),
            _("What its brokers counted is read to the end, then they stop and are removed. There is no way back."),
            _("Their logs stay on the hosts' disks."),
        ],
        "submit": _("Retire cluster"),
        "back": back,
    }
    return render_page(request, "fleet_confirm", _("Retire cluster %(name)s") % {"name": cluster.name}, context)


def urls() -> list[URLPattern]:
    """URLs below /operator/brokers/cluster/."""
    return [
        path("add/", cluster_add, name="brokers_cluster_add"),
        path("<str:cluster_id>/edit/", cluster_edit, name="brokers_cluster_edit"),
        path("<str:cluster_id>/retire/", cluster_retire, name="brokers_cluster_retire"),
    ]
