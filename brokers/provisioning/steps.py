"""Steps of the reconciler: each compares the states and acts only on a difference, so that all are idempotent."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from brokers.contract.certificates import CertificatesDocument
from brokers.contract.documents import InstanceDocument, InstanceSettings
from brokers.contract.routes import RouteDocument, first_plaintext_ports
from brokers.models import Broker, Cluster, Placement, PortLease
from brokers.placement import addresses, capacity, forecasts, placement, port_leases
from brokers.placement.forecasts import MissingCapacity
from brokers.provisioning import topic_documents
from brokers.provisioning.publisher import Acks, Publisher
from instances.choices import ConditionType, OperationType, Reason, Step
from instances.lifecycle import operations
from instances.lifecycle.conditions import observed_only
from instances.lifecycle.phases import Phase
from instances.models import Instance, Operation, RouteCertificates
from instances.services.common import set_phase
from instances.services.suspending import suspend_instance
from instances.services.tenant_suspension import reason_of
from tenants import audit
from tenants.actors import Actor
from tenants.errors import Message
from tenants.models import Tenant

ACTION_OF_FAILURE = "instance.failed"


class CannotProvision(Exception):
    """Raised if retrying will not help: the instance fails with this reason."""

    def __init__(self, reason: Reason, detail: str, **data: object) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.data = data


class WaitsForCapacity(Exception):
    """Raised if no cluster has capacity. The instance is retried when capacity may have become available."""

    def __init__(self, missing_capacity: MissingCapacity) -> None:
        super().__init__(missing_capacity.detail)
        self.missing_capacity = missing_capacity


class RetryLater(Exception):
    """Raised if the work must be retried soon."""


@dataclass(slots=True)
class ReconcileContext:
    """One pass over one instance: the row as read, and the operations to report to."""

    acting: Actor
    instance: Instance
    operations: list[Operation]

    def start_step(self, step: Step, **data: object) -> None:
        for operation in self.operations:
            operations.start_step(operation, step, data)

    def finish_step(self, step: Step, fact: str, **data: object) -> None:
        for operation in self.operations:
            operations.finish_step(operation, step, fact, data)


def begin_pass(instance: Instance, acting: Actor) -> ReconcileContext:
    """Begins a pass: a requested instance becomes a provisioning one."""
    if instance.current_phase is Phase.REQUESTED:
        with transaction.atomic():
            instance = Instance.objects.select_for_update(of=("self",)).select_related("tenant").get(pk=instance.pk)
            if instance.current_phase is Phase.REQUESTED:
                instance.save_changes(set_phase(instance, Phase.PROVISIONING))
    return ReconcileContext(acting, instance, operations.open_operations(instance))


def place(context: ReconcileContext) -> Cluster:
    """Reserves capacity on a cluster (CKA-47) and leases a port on each of its brokers, unless both exist.

    Raises `WaitsForCapacity` if no cluster has capacity, or a host no port; the instance starts when there is some.
    """
    placement_row = Placement.objects.select_related("cluster").filter(instance=context.instance).first()
    has_ports = PortLease.objects.filter(instance=context.instance).exists()
    if placement_row is not None and has_ports:
        return placement_row.cluster
    if context.instance.reason != Reason.NO_ROOM:
        context.start_step(Step.PLACED)
    try:
        with transaction.atomic():
            instance, cluster, brokers = _place_and_lease(context.instance.pk)
    except WaitsForCapacity as why:
        _record_waiting(context, why)
        raise
    context.instance = instance
    context.finish_step(
        Step.PLACED, f"{cluster.name}, {len(brokers)} brokers", cluster=cluster.name, brokers=len(brokers)
    )
    return cluster


def _place_and_lease(instance_id: str) -> tuple[Instance, Cluster, list[Broker]]:
    instance = Instance.objects.select_for_update(of=("self",)).select_related("tenant").get(pk=instance_id)
    clusters = capacity.lock_candidate_clusters(instance)
    headrooms = capacity.headrooms(clusters, tenant_id=instance.tenant_id)
    choice = placement.choose_cluster(headrooms, **capacity.size_of(instance))
    if choice is None:
        raise WaitsForCapacity(forecasts.missing_capacity(instance, headrooms))
    cluster = next(cluster for cluster in clusters if cluster.pk == choice.cluster_id)
    reasons = forecasts.cluster_reasons(clusters, headrooms, instance)
    size = {"bandwidth_mb_s": instance.bandwidth_mb_s, "storage_gb": instance.storage_gb}
    Placement.objects.update_or_create(instance=instance, defaults={"cluster": cluster, "reasons": reasons, **size})
    if cluster.reserved_for_id is not None:
        Cluster.objects.filter(pk=cluster.pk).update(reserved_for=None)
    brokers = list(Broker.objects.filter(pk__in=choice.broker_ids).select_related("host").order_by("number"))
    try:
        port_leases.lease(instance, brokers)
    except port_leases.PoolEmpty as error:
        raise WaitsForCapacity(forecasts.missing_ports(str(error))) from error
    fields = addresses.write_endpoints(instance)
    if instance.reason == Reason.NO_ROOM:
        # The time of waiting for capacity does not count against the time that brokers have to confirm it.
        instance.reason, instance.phase_since = Reason.NONE.value, timezone.now()
        fields += ["reason", "phase_since"]
    instance.save_changes(fields)
    return instance, cluster, brokers


def _record_waiting(context: ReconcileContext, waiting: WaitsForCapacity) -> None:
    """Records that the instance waits, with the reason; nothing is reserved or charged."""
    with transaction.atomic():
        row = Instance.objects.select_for_update(of=("self",)).select_related("tenant").get(pk=context.instance.pk)
        if row.current_phase is Phase.PROVISIONING and row.reason != Reason.NO_ROOM:
            row.save_changes(set_phase(row, Phase.PROVISIONING, Reason.NO_ROOM))
            audit.record(
                context.acting,
                "instance.waits_for_room",
                row,
                None,
                {"missing": waiting.missing_capacity.missing},
                tenant=row.tenant,
            )


def _no_port_error(error: port_leases.PoolEmpty) -> CannotProvision:
    return CannotProvision(
        Reason.NO_ROOM,
        Message(gettext_noop("No port is left: %(why)s. Nothing was charged."), why=str(error)),
        missing=["ports"],
    )


def lease_new_routes(context: ReconcileContext) -> None:
    """Leases ports for routes that were added since the instance was placed; updates addresses to those that its routes
    advertise.

    Raises `CannotProvision` if a host has no port.
    """
    with transaction.atomic():
        instance = Instance.objects.select_for_update(of=("self",)).select_related("tenant").get(pk=context.instance.pk)
        try:
            port_leases.lease_new_routes(instance)
        except port_leases.PoolEmpty as error:
            raise _no_port_error(error) from error
        previous_endpoints = instance.endpoints
        addresses.write_endpoints(instance)
        if instance.endpoints != previous_endpoints:
            instance.save_changes(["endpoints"])
    context.instance = instance


def report_address(context: ReconcileContext) -> list[PortLease]:
    """Returns the leases; reports the address to the operations."""
    rows = PortLease.objects.filter(instance=context.instance, route__isnull=False)
    result = list(rows.select_related("route", "broker", "host").order_by("broker__number", "route"))
    address = context.instance.bootstrap_servers
    brokers = len({row.broker_id for row in result})
    context.finish_step(Step.PLACED, f"{brokers} brokers", brokers=brokers)
    context.finish_step(Step.ADDRESS_RESERVED, address, bootstrap_servers=address)
    return result


def publish(context: ReconcileContext, publisher: Publisher, leases: list[PortLease]) -> bool:
    """Publishes the instance's document and its topics' documents; True if the document was not published before."""
    context.start_step(Step.LIMITS_PUBLISHED)
    instance = context.instance
    certificates = certificates_of(instance)
    # Before the document, so that a broker that confirms it has the certificates; the first time their parent node does
    # not exist yet.
    publisher.publish_certificates(instance.pk, certificates)
    is_new = publisher.publish_instance(instance.pk, document_of(instance, leases))
    publisher.publish_certificates(instance.pk, certificates)
    topic_documents.publish(instance, publisher)
    fact = f"{instance.bandwidth_mb_s} MB/s each way, {instance.storage_gb} GB"
    context.finish_step(
        Step.LIMITS_PUBLISHED, fact, bandwidth_mb_s=instance.bandwidth_mb_s, storage_gb=instance.storage_gb
    )
    return is_new


def document_of(instance: Instance, leases: list[PortLease]) -> InstanceDocument:
    """Returns the instance's document for brokers (CKA-40)."""
    known_settings = InstanceSettings.__dataclass_fields__
    routes = route_documents(instance, leases)
    return InstanceDocument(
        generation=instance.generation,
        produce_bps=instance.bandwidth_bytes_per_s,
        consume_bps=instance.bandwidth_bytes_per_s,
        capacity_bytes=instance.storage_bytes,
        partitions_max=instance.partitions_max,
        message_bytes_max=instance.message_bytes_max,
        state=instance.wanted_state,  # type: ignore[arg-type]
        endpoints=dict(routes[0].endpoints) if routes else {},
        ports=first_plaintext_ports(routes),
        routes=routes,
        leaving=tuple(sorted({row.broker.number for row in leases if row.is_leaving})),
        settings=InstanceSettings(**{key: value for key, value in instance.settings.items() if key in known_settings}),
        allow_everyone_if_no_acl=bool(instance.settings_in_force["allow_everyone_if_no_acl"]),
        bandwidth_policy=instance.settings_in_force["bandwidth_policy"],
        quota_scope=instance.settings_in_force["quota_scope"],
        tenant_id=instance.tenant_id,
    )


def route_documents(instance: Instance, leases: list[PortLease]) -> tuple[RouteDocument, ...]:
    """Returns the routes with ports, in order, including ports on brokers that the instance leaves."""
    endpoints = addresses.endpoints_of(leases)
    return tuple(
        RouteDocument(
            name=route.name,
            security=route.security,
            ports={row.broker.number: row.port for row in leases if row.route_id == route.pk},
            endpoints=endpoints[route.pk],
            allow_list=tuple(route.allow_list),
            connections_max=route.connections_max,
            proxies=tuple(route.proxies),
            principal_mapping_rules=route.principal_mapping_rules,
        )
        for route in instance.routes_in_order
        if route.pk in endpoints
    )


def certificates_of(instance: Instance) -> dict[str, CertificatesDocument]:
    """Returns the certificates by route, of routes that have any."""
    rows = RouteCertificates.objects.filter(route__instance=instance).select_related("route")
    documents = {
        row.route.name: CertificatesDocument(
            client_ca_pem=row.client_ca_pem,
            revoked=bytes(row.revoked),
            certificate_pem=row.certificate_pem,
            private_key_pem=row.private_key_pem,
        )
        for row in rows
    }
    return {name: document for name, document in documents.items() if not document.is_empty}


def replace_ports(context: ReconcileContext, leases: list[PortLease], acks: Acks) -> None:
    """Leases other ports for those that cannot be opened (used by another process), with a new generation.

    Brokers may have joined or left since `leases` were read: the current leases count. Raises `CannotProvision` if a
    host has no other port.
    """
    refused_ids = {row.pk for row in leases if acks.refuses(row.broker.number, row.route.name if row.route else "")}
    with transaction.atomic():
        instance = Instance.objects.select_for_update(of=("self",)).get(pk=context.instance.pk)
        replaced = list(PortLease.objects.filter(instance=instance, pk__in=refused_ids))
        if not replaced:
            return
        try:
            port_leases.replace_ports(replaced)
        except port_leases.PoolEmpty as error:
            raise _no_port_error(error) from error
        instance.generation += 1
        instance.save_changes([*addresses.write_endpoints(instance), "generation"])


def apply(context: ReconcileContext, acks: Acks) -> Instance:
    """Moves the instance to its target phase after every live broker has confirmed, and completes the waiting
    operations.
    """
    with transaction.atomic():
        if context.instance.first_running_at is None:
            # Locked before the instance, in the order of a suspension: either it sees this instance run, or this step
            # sees the suspension.
            Tenant.objects.select_for_update(no_key=True).get(pk=context.instance.tenant_id)
        rows = Instance.objects.select_for_update(of=("self",)).select_related("tenant")
        instance = rows.get(pk=context.instance.pk)
        confirmed = context.instance.generation
        was_provisioning = instance.current_phase is Phase.PROVISIONING
        fields = []
        if confirmed > instance.observed_generation:
            instance.observed_generation = confirmed
            fields.append("observed_generation")
        if instance.generation == confirmed:
            target = instance.resolved_phase
            if instance.current_phase is not target:
                fields += set_phase(instance, target, instance.suspended_for if target is Phase.SUSPENDED else "")
            if instance.first_running_at is None and target is Phase.RUNNING:
                instance.first_running_at = timezone.now()
                fields.append("first_running_at")
        conditions = conditions_of(acks, is_probed=instance.first_running_at is not None) + observed_only(
            instance.conditions
        )
        if _without_times(instance.conditions) != _without_times(conditions):
            instance.conditions = conditions
            fields.append("conditions")
        if fields:
            instance.save_changes(fields)
        if instance.generation == confirmed:
            port_leases.release_closed_routes(instance)
        for operation in operations.open_operations(instance):
            if operation.generation <= confirmed and operation.type != OperationType.PURGE:
                operations.succeed(operation)
        if was_provisioning and instance.current_phase is Phase.RUNNING:
            audit.record(context.acting, "instance.running", instance, tenant=instance.tenant)
            if instance.tenant.is_suspended:
                tenant = instance.tenant
                suspend_instance(
                    acting=context.acting, instance=instance, reason=reason_of(tenant), note=tenant.suspension_note
                )
    return instance


def fail(context: ReconcileContext, why: CannotProvision) -> None:
    """Fails a first provisioning: stores the reason, and releases capacity and ports, so that nothing is charged or
    reserved.
    """
    with transaction.atomic():
        rows = Instance.objects.select_for_update(of=("self",)).select_related("tenant")
        instance = rows.get(pk=context.instance.pk)
        if instance.current_phase not in (Phase.REQUESTED, Phase.PROVISIONING):
            return
        port_leases.release(instance)
        Placement.objects.filter(instance=instance).delete()
        addresses.write_endpoints(instance)
        instance.conditions = []
        instance.save_changes(["endpoints", "conditions", *set_phase(instance, Phase.FAILED, why.reason)])
        for operation in operations.open_operations(instance):
            kinds = (OperationType.CREATE, OperationType.RESTORE)
            code = why.reason.value if operation.type in kinds else "superseded"
            operations.fail(operation, code, why.detail, why.data)
        audit.record(
            context.acting, ACTION_OF_FAILURE, instance, None, {"reason": why.reason.value}, tenant=instance.tenant
        )


def conditions_of(acks: Acks, *, is_probed: bool) -> list[dict[str, object]]:
    """Returns the conditions of a confirmed instance; brokers that are down are named."""
    since = timezone.now().isoformat()
    down_brokers = sorted(acks.down)
    message = f"Down: broker {', '.join(map(str, down_brokers))}." if down_brokers else ""
    return [
        {"type": ConditionType.PLACED.value, "status": True, "message": "", "since": since},
        {"type": ConditionType.PUBLISHED.value, "status": True, "message": "", "since": since},
        {"type": ConditionType.LISTENING.value, "status": not down_brokers, "message": message, "since": since},
        {"type": ConditionType.PROBED.value, "status": is_probed, "message": "", "since": since},
    ]


def _without_times(conditions: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{key: value for key, value in condition.items() if key != "since"} for condition in conditions]
