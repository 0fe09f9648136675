"""Services for operators: clusters whose brokers are gateways in front of an existing Kafka (decision 172)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from brokers.choices import ClusterBackend
from brokers.contract.upstream import (
    PLAIN,
    PLAINTEXT,
    SASL_MECHANISMS,
    SECURITY_PROTOCOLS,
    UpstreamSettings,
    parse_servers,
)
from brokers.dataplane import upstream_probe
from brokers.dataplane.upstream_probe import ProbedUpstream
from brokers.infra import upstream_login
from brokers.limits import BROKERS_PER_CLUSTER_MAX
from brokers.models import Broker, Cluster, Host, KafkaBackend
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, FieldError, Invalid, Message

# Fields of a `backend` in a request.
FIELDS: Final = (
    "type", "bootstrap_servers", "security_protocol", "sasl_mechanism", "username", "password", "ca_pem",
    "client_certificate",
)  # fmt: skip
SERVERS_MAX: Final = 20
SERVERS_CHARS_MAX: Final = 1_000
LOGIN_CHARS_MAX: Final = 255
PEM_CHARS_MAX: Final = 65_536
BACKEND_TYPES: Final = tuple(ClusterBackend.values)


def probe_backend(acting: Actor, backend: Mapping[str, Any] | None) -> ProbedUpstream | None:
    """Checks the `backend` of a request, and probes its upstream; None for Penstock's own brokers. Nothing is written.

    Raises `Invalid` with the reason if the upstream cannot be used.
    """
    access.require(acting, Scope.OPERATOR)
    if backend is None or backend.get("type") == ClusterBackend.PENSTOCK:
        for name in FIELDS[1:]:
            if backend is not None and backend.get(name):
                raise Invalid.at(
                    f"/backend/{name}", gettext_noop("Only a backend of type kafka has this."), code="not_applicable"
                )
        return None
    probed = upstream_probe.probe(_settings_of(backend))
    if not probed.brokers:
        raise Invalid.at(upstream_probe.SERVERS_FIELD, gettext_noop("The upstream names no broker."), code="no_brokers")
    if len(probed.brokers) > BROKERS_PER_CLUSTER_MAX:
        raise Conflict(
            Message(gettext_noop("A cluster has at most %(n)s brokers."), n=BROKERS_PER_CLUSTER_MAX),
            code="cluster_full",
        )
    return probed


def _settings_of(backend: Mapping[str, Any]) -> UpstreamSettings:
    """Returns the settings in a request. Raises `Invalid` for wrong values, and for values that nothing would use."""
    errors: list[FieldError] = []

    def refuse(name: str, detail: str, code: str) -> None:
        errors.append(FieldError(pointer=f"/backend/{name}", detail=detail, code=code))

    values = {name: str(backend.get(name) or "") for name in FIELDS[1:]}
    protocol = values["security_protocol"] or PLAINTEXT
    if protocol not in SECURITY_PROTOCOLS:
        refuse(
            "security_protocol",
            Message(gettext_noop("One of %(choices)s."), choices=", ".join(SECURITY_PROTOCOLS)),
            "invalid_choice",
        )
    try:
        servers = parse_servers(values["bootstrap_servers"])
        if len(servers) > SERVERS_MAX:
            refuse("bootstrap_servers", gettext_noop("Too many servers; a few of the brokers are enough."), "too_many")
    except ValueError:
        refuse("bootstrap_servers", gettext_noop("Addresses as host:port, with commas between."), "invalid_address")
    has_sasl, has_tls = protocol.startswith("SASL"), protocol.endswith("SSL")
    for name in ("username", "password"):
        if has_sasl and not values[name]:
            refuse(name, gettext_noop("SASL needs it."), "required")
    for name in ("sasl_mechanism", "username", "password"):
        if not has_sasl and values[name]:
            refuse(name, gettext_noop("Only security protocols with SASL use it."), "not_applicable")
    for name in ("ca_pem", "client_certificate"):
        if not has_tls and values[name]:
            refuse(name, gettext_noop("Only security protocols with SSL use it."), "not_applicable")
        elif not values[name].isascii():
            refuse(name, gettext_noop("PEM is ASCII."), "invalid_pem")
    mechanism = values["sasl_mechanism"] or PLAIN
    if mechanism not in SASL_MECHANISMS:
        refuse(
            "sasl_mechanism",
            Message(gettext_noop("One of %(choices)s."), choices=", ".join(SASL_MECHANISMS)),
            "invalid_choice",
        )
    if errors:
        raise Invalid(errors[0].detail, errors=errors)
    return UpstreamSettings(
        bootstrap_servers=",".join(server.strip() for server in values["bootstrap_servers"].split(",")),
        security_protocol=protocol,
        sasl_mechanism=mechanism,
        username=values["username"],
        password=values["password"],
        ca_pem=values["ca_pem"],
        client_certificate=values["client_certificate"],
    )


def store(cluster: Cluster, probed: ProbedUpstream) -> KafkaBackend:
    """Stores the upstream of a cluster, with its secrets encrypted."""
    row = KafkaBackend.objects.filter(cluster=cluster).first() or KafkaBackend(cluster=cluster)
    upstream_login.assign_upstream(row, probed.settings)
    _assign_nodes(row, probed)
    row.save()
    return row


def _assign_nodes(row: KafkaBackend, probed: ProbedUpstream) -> None:
    row.upstream_cluster_id = probed.cluster_id
    row.nodes = [broker.to_body() for broker in probed.brokers]
    row.probed_at = timezone.now()


def hosts_of_gateways(probed: ProbedUpstream, hosts: Sequence[Host]) -> list[Host]:
    """Returns the host of the gateway of each upstream broker, in their order: the hosts in turn. Raises `Invalid` for
    more hosts than brokers.
    """
    if len(hosts) > len(probed.brokers):
        detail = Message(
            gettext_noop("The upstream has %(n)s brokers, and each has one gateway: name no more hosts."),
            n=len(probed.brokers),
        )
        raise Invalid.at("/host_ids", detail, code="too_many")
    return [hosts[index % len(hosts)] for index in range(len(probed.brokers))] if hosts else []


def probe_again(cluster: Cluster) -> None:
    """Reads the brokers of a cluster's upstream again. Raises `Conflict` if the upstream does not answer."""
    row = KafkaBackend.objects.get(cluster=cluster)
    try:
        probed = upstream_probe.probe(upstream_login.upstream_of(row))
    except Invalid as error:
        raise Conflict(error.detail, code="upstream_refuses") from error
    _assign_nodes(row, probed)
    row.save(update_fields=["upstream_cluster_id", "nodes", "probed_at"])


def next_number(cluster: Cluster) -> int:
    """Returns the lowest id of an upstream broker without a gateway. Raises `Conflict` if each has one."""
    used = set(Broker.objects.filter(cluster=cluster).values_list("number", flat=True))
    numbers = sorted(node["id"] for node in KafkaBackend.objects.get(cluster=cluster).nodes if node["id"] not in used)
    if not numbers:
        raise Conflict(gettext_noop("Each broker of the upstream has its gateway."), code="cluster_full")
    return int(numbers[0])


@transaction.atomic
def change_backend(*, acting: Actor, cluster: Cluster, probed: ProbedUpstream | None) -> None:
    """Replaces addresses and login of the upstream of a cluster. Gateways use them from their next start on.

    Raises `Conflict` for a cluster of Penstock's brokers, and for another upstream, which would not have the records.
    """
    access.require(acting, Scope.OPERATOR)
    row = KafkaBackend.objects.select_for_update().filter(cluster=cluster).first()
    if row is None or probed is None:
        raise Conflict(gettext_noop("The backend of a cluster stays what it is."), code="backend_fixed")
    if row.upstream_cluster_id and probed.cluster_id != row.upstream_cluster_id:
        raise Conflict(
            gettext_noop("This is another Kafka: the records of the instances are not there."), code="other_upstream"
        )
    before = audited(row)
    store(cluster, probed)
    audit.record(acting, "cluster.backend_changed", cluster, before, audited(KafkaBackend.objects.get(cluster=cluster)))


def audited(row: KafkaBackend) -> dict[str, Any]:
    """Returns the fields for the audit log, without secrets."""
    return {
        name: value
        for name, value in row.public().items()
        if name in ("bootstrap_servers", "security_protocol", "sasl_mechanism", "username", "has_client_certificate")
    }


def require_penstock(cluster: Cluster) -> None:
    """Raises `Conflict` for a Kafka cluster, whose gateways cannot stand in for each other."""
    if cluster.is_kafka:
        raise Conflict(
            gettext_noop(
                "Each gateway of a Kafka cluster serves the upstream broker of its own number: "
                "there is nothing to move."
            ),
            code="kafka_cluster",
        )
