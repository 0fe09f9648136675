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
from brokers.choices import ClusterBackend, ClusterKind, SaslMechanism, SecurityProtocol
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
from brokers.operations import clusters, kafka_clusters
from tenants.errors import DomainError
from tenants.ids import ID_CHARS_MAX
from tenants.operator import acting_operator

TENANTS_CHARS_MAX = clusters.CLUSTER_TENANTS_MAX * (ID_CHARS_MAX + 2)
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

    tenant_ids = forms.CharField(
        label=gettext_lazy("Tenants"), max_length=TENANTS_CHARS_MAX, required=False,
        help_text=gettext_lazy(
            "Ids of tenants, with spaces between: it takes their instances before other clusters, and no others. "
            "Empty: all."
        ),
    )  # fmt: skip

    def clean_zones(self) -> list[str]:
        return str(self.cleaned_data["zones"]).replace(",", " ").split()

    def clean_tenant_ids(self) -> list[str]:
        return str(self.cleaned_data["tenant_ids"]).replace(",", " ").split()


class SecretTextarea(forms.Textarea):
    """Text area that never shows its value again."""

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        return dict(super().get_context(name, None, attrs))


class BackendForm(forms.Form):
    """Fields of an existing Kafka in front of which gateways are put. Secrets are never sent back to a browser."""

    bootstrap_servers = forms.CharField(
        label=gettext_lazy("Bootstrap servers"), max_length=kafka_clusters.SERVERS_CHARS_MAX, required=False,
        help_text=gettext_lazy("Of the existing Kafka: host:port, with commas between."),
    )  # fmt: skip
    security_protocol = forms.ChoiceField(
        label=gettext_lazy("Security protocol"), choices=SecurityProtocol.choices, required=False
    )
    sasl_mechanism = forms.ChoiceField(
        label=gettext_lazy("SASL mechanism"), choices=[("", "—"), *SaslMechanism.choices], required=False
    )
    username = forms.CharField(
        label=gettext_lazy("User name"), max_length=kafka_clusters.LOGIN_CHARS_MAX, required=False
    )
    password = forms.CharField(
        label=gettext_lazy("Password"), max_length=kafka_clusters.LOGIN_CHARS_MAX, required=False, strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=gettext_lazy("It is kept encrypted and never shown again."),
    )  # fmt: skip
    ca_pem = forms.CharField(
        label=gettext_lazy("Certificate authority"), max_length=kafka_clusters.PEM_CHARS_MAX, required=False,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=gettext_lazy("PEM. Empty: the authorities that the gateways' machines trust."),
    )  # fmt: skip
    client_certificate = forms.CharField(
        label=gettext_lazy("Client certificate"), max_length=kafka_clusters.PEM_CHARS_MAX, required=False,
        widget=SecretTextarea(attrs={"rows": 4}),
        help_text=gettext_lazy("PEM with the key, without a password. It is kept encrypted and never shown again."),
    )  # fmt: skip

    def backend(self, backend_type: str) -> dict[str, Any]:
        """Removes its values from the cleaned ones, and returns them as the `backend` of a request."""
        names = [name for name in kafka_clusters.FIELDS if name != "type"]
        values = {name: self.cleaned_data.pop(name) for name in names}
        if backend_type == ClusterBackend.PENSTOCK:
            return {"type": backend_type}
        return {"type": backend_type, **values}


class ClusterForm(BackendForm, ClusterEditForm):
    backend_type = forms.ChoiceField(
        label=gettext_lazy("Backend"), choices=ClusterBackend.choices, initial=ClusterBackend.PENSTOCK,
        required=False,
        help_text=gettext_lazy("The fields from bootstrap servers on are those of an existing Kafka."),
    )  # fmt: skip
    kind = forms.ChoiceField(
        label=gettext_lazy("Kind"), choices=ClusterKind.choices,
        help_text=gettext_lazy("A dedicated cluster is for one instance of that type alone."),
    )  # fmt: skip
    hosts = forms.ModelMultipleChoiceField(
        selectors.hosts().none(), label=gettext_lazy("Hosts"), required=False, widget=ManyCheckBoxes,
        help_text=gettext_lazy(
            "Without any, add brokers on its map later. The gateways of an existing Kafka are on them in turn, one for "
            "each of its brokers."
        ),
    )  # fmt: skip
    brokers_per_host = forms.IntegerField(
        label=gettext_lazy("Brokers on each of them"), min_value=1, max_value=BROKERS_PER_CLUSTER_MAX, initial=1
    )
    field_order = (
        "name", "kind", "hosts", "brokers_per_host", "accepts_instances", "zones", "brokers_per_instance_min",
        "max_partitions", "max_bandwidth_mb_s", "max_storage_gb", "tenant_ids", "backend_type", "bootstrap_servers",
        "security_protocol", "sasl_mechanism", "username", "password", "ca_pem", "client_certificate",
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
        acting = acting_operator(request)
        backend = form.backend(form.cleaned_data.pop("backend_type") or ClusterBackend.PENSTOCK)
        values = dict(form.cleaned_data)
        hosts, per_host = [*values.pop("hosts")], values.pop("brokers_per_host")
        try:
            upstream = kafka_clusters.probe_backend(acting, backend)
            if upstream is None:
                hosts *= per_host  # round robin, so that brokers with adjacent numbers are on different hosts
            operation = clusters.add_cluster(acting=acting, hosts=hosts, upstream=upstream, **values)
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
    initial = {name: getattr(cluster, name) for name in clusters.CHANGEABLE} | {
        "zones": " ".join(cluster.zones),
        "tenant_ids": " ".join(cluster.tenant_ids),
    }
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
def cluster_backend(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Shows the form with the upstream of a Kafka cluster, without its secrets, and replaces it."""
    cluster: Cluster = cluster_or_404(cluster_id)
    back = reverse("admin:brokers_cluster_map", args=[cluster.pk])
    form = BackendForm(request.POST or None, initial=cluster.kafka.public() if cluster.is_kafka else {})
    if form.is_valid():
        acting = acting_operator(request)
        try:
            probed = kafka_clusters.probe_backend(acting, form.backend(ClusterBackend.KAFKA))
            kafka_clusters.change_backend(acting=acting, cluster=cluster, probed=probed)
        except DomainError as refusal:
            refuse_fields(form, refusal)
        else:
            messages.success(request, _("Saved. Restart its gateways one after the other: they use it from then on."))
            return redirect(back)
    context = {
        "form": form,
        "intro": _("Enter the secrets again: those that are left out are not kept. The upstream is probed first."),
        "submit": _("Save"),
        "back": back,
    }
    return render_page(request, "fleet_form", _("Upstream of %(name)s") % {"name": cluster.name}, context)


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
        path("<str:cluster_id>/backend/", cluster_backend, name="brokers_cluster_backend"),
        path("<str:cluster_id>/retire/", cluster_retire, name="brokers_cluster_retire"),
    ]
