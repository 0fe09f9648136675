"""Requests and responses of instance and operation endpoints. 1 MB = 10^6 bytes, 1 GB = 10^9 bytes."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from instances.acls.selectors import allows_everyone
from instances.choices import BandwidthPolicy, ClusterType, OperationState, QuotaScope, Reason, StorageWhenFull
from instances.lifecycle.phases import Phase
from instances.limits import (
    ADDRESS_CHARS_MAX,
    BANDWIDTH_MB_S_MAX,
    DEFAULT_PARTITIONS_MAX,
    NAME_CHARS_MAX,
    NAME_PATTERN,
    REPLICATION_FACTOR_MAX,
    RETENTION_MINUTES_MAX,
    STORAGE_GB_MAX,
)
from instances.models import HOST_CHARS_MAX, Instance, Operation, Route
from instances.routes.certificate_entries import (
    CLIENT_CA_BYTES_MAX,
    PRIVATE_KEY_BYTES_MAX,
    REVOCATION_LIST_BYTES_MAX,
    SERVER_CHAIN_BYTES_MAX,
)
from instances.routes.kinds import (
    CIDRS_MAX,
    MAPPING_RULES_CHARS_MAX,
    ROUTE_CONNECTIONS_MAX,
    ROUTE_NAME_CHARS_MAX,
    SECURITIES,
)
from tenants.api.strict import Choice, Flag, Integer, StrictSerializer, Text

PHASES = [phase.value for phase in Phase]
REASONS = [reason.value for reason in Reason]


class SettingsIn(StrictSerializer):
    """Settings of an instance: defaults of new topics, access to resources without access rules, sharing of limits over
    brokers, and behaviour when the storage is full.
    """

    auto_create_topics = Flag(required=False, help_text="Create a topic when a client first produces to it.")
    default_partitions = Integer(required=False, min_value=1, max_value=DEFAULT_PARTITIONS_MAX)
    default_replication_factor = Integer(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=REPLICATION_FACTOR_MAX,
        help_text=f"null: a copy on each of the instance's brokers, {REPLICATION_FACTOR_MAX} at most.",
    )
    allow_everyone_if_no_acl = Flag(
        required=False,
        help_text="Whether the instance is open: every user may do everything to a topic, group or transactional id "
        "that has no access rule, except administer the cluster. Default: false.",
    )
    bandwidth_policy = Choice(
        required=False,
        choices=BandwidthPolicy.choices,
        help_text="How the bandwidth is shared out over the brokers that lead its partitions. adaptive: follows what "
        "clients move and wait for. normalised, weighted, literal: follows what they move, as CKafka does; weighted "
        "compares brokers by what a partition of them moves, literal may exceed what was bought for a while. static: "
        "by partitions.",
    )
    quota_scope = Choice(
        required=False,
        choices=QuotaScope.choices,
        help_text="Whether a client quota in bytes per second holds over all brokers together, or on each of them as "
        "in Kafka.",
    )
    storage_when_full = Choice(
        required=False,
        choices=StorageWhenFull.choices,
        help_text="`stop`: produce is refused. `shrink_retention`: from 95 % on, the oldest closed segments of topics "
        "with cleanup.policy delete go until less than 90 % is used.",
    )
    storage_retention_minutes_min = Integer(
        required=False,
        min_value=1,
        max_value=RETENTION_MINUTES_MAX,
        help_text="With `shrink_retention`, no record goes that is younger; where none is older, produce is refused.",
    )
    storage_grow_step_gb = Integer(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=STORAGE_GB_MAX,
        help_text="From 90 % on, the instance grows by this until less is used; each step is charged as any other. "
        "Needs `storage_grow_max_gb`. null: it does not grow by itself.",
    )
    storage_grow_max_gb = Integer(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=STORAGE_GB_MAX,
        help_text="It grows no further than this, and never beyond the plan.",
    )


class SettingsOut(serializers.Serializer):
    auto_create_topics = serializers.BooleanField()
    default_partitions = serializers.IntegerField()
    default_replication_factor = serializers.IntegerField(
        allow_null=True, help_text="What is in force; null while the instance has no broker."
    )
    allow_everyone_if_no_acl = serializers.BooleanField()
    bandwidth_policy = serializers.ChoiceField(choices=BandwidthPolicy.choices)
    quota_scope = serializers.ChoiceField(choices=QuotaScope.choices)
    storage_when_full = serializers.ChoiceField(choices=StorageWhenFull.choices)
    storage_retention_minutes_min = serializers.IntegerField()
    storage_grow_step_gb = serializers.IntegerField(allow_null=True)
    storage_grow_max_gb = serializers.IntegerField(allow_null=True)


class ConditionOut(serializers.Serializer):
    type = serializers.CharField()
    status = serializers.BooleanField()
    message = serializers.CharField(allow_blank=True)
    since = serializers.DateTimeField()


class StatusOut(serializers.Serializer):
    phase = serializers.ChoiceField(choices=PHASES)
    reason = serializers.CharField(allow_blank=True, help_text="Why, where the phase alone does not say it.")
    message = serializers.CharField(allow_blank=True, help_text="What the operator says while it is suspended.")
    since = serializers.DateTimeField(help_text="When the phase began.")
    conditions = ConditionOut(many=True)


class RouteAddressOut(serializers.Serializer):
    broker_id = serializers.IntegerField()
    address = serializers.CharField()


class CertificateOut(serializers.Serializer):
    """A route's own certificate; its key is never shown."""

    subject = serializers.CharField()
    issuer = serializers.CharField()
    not_before = serializers.DateTimeField()
    not_after = serializers.DateTimeField(help_text="The earliest end in the chain.")
    fingerprint_sha256 = serializers.CharField()
    names = serializers.ListField(child=serializers.CharField(), help_text="Hosts it is for.")


class ClientCaOut(serializers.Serializer):
    """Authorities of client certificates."""

    subjects = serializers.ListField(child=serializers.CharField())
    not_after = serializers.DateTimeField(help_text="The earliest end among them.")
    fingerprints_sha256 = serializers.ListField(child=serializers.CharField())


class RevocationOut(serializers.Serializer):
    """The revoked client certificates."""

    crl_number = serializers.IntegerField(allow_null=True, help_text="null: lists of several authorities.")
    this_update = serializers.DateTimeField()
    next_update = serializers.DateTimeField(
        allow_null=True, help_text="The list stays in force when this has passed; an event says so."
    )
    count = serializers.IntegerField()


class RouteOut(serializers.Serializer):
    """One route of the instance."""

    name = serializers.CharField()
    security = serializers.ChoiceField(choices=SECURITIES)
    security_protocol = serializers.CharField(help_text="What a Kafka client sets as security.protocol.")
    bootstrap_servers = serializers.CharField(allow_blank=True, help_text="Empty until the address is reserved.")
    addresses = RouteAddressOut(many=True)
    allow_list = serializers.ListField(child=serializers.CharField(), help_text="Empty: every address may connect.")
    advertised_host = serializers.CharField(allow_null=True, help_text="null: the brokers' own.")
    connections_max = serializers.IntegerField(allow_null=True, help_text="null: as many as the instance may have.")
    proxies = serializers.ListField(
        child=serializers.CharField(), help_text="They say with PROXY protocol version 2 for whom they speak."
    )
    certificate = CertificateOut(allow_null=True, help_text="null: of this installation's authority (/ca.pem).")
    client_ca = ClientCaOut(allow_null=True, help_text="For mtls. null: nobody comes in.")
    principal_mapping_rules = serializers.CharField(
        help_text="For mtls: names of users by certificate (Kafka's ssl.principal.mapping.rules)."
    )
    revocation = RevocationOut(allow_null=True, help_text="For mtls. null: nothing is revoked.")

    def to_representation(self, route: Route) -> dict[str, Any]:
        values = {name: getattr(route, name) for name in self.fields if name not in ("addresses", "advertised_host")}
        addresses = [
            {"broker_id": int(number), "address": address}
            for number, address in sorted(route.endpoints.items(), key=lambda item: int(item[0]))
        ]
        return values | {"addresses": addresses, "advertised_host": route.advertised_host or None}


class LimitsOut(serializers.Serializer):
    bandwidth_mb_s = serializers.IntegerField(help_text="In each direction, for the whole instance.")
    storage_gb = serializers.IntegerField()
    partitions_max = serializers.IntegerField()


class InstanceWarningOut(serializers.Serializer):
    code = serializers.CharField(help_text="`instance_open`.")
    detail = serializers.CharField()


class InstanceOut(serializers.Serializer):
    """An instance. While it is created, `status.phase` follows its operation."""

    id = serializers.CharField()
    name = serializers.CharField()
    plan = serializers.CharField()
    cluster_type = serializers.CharField()
    status = StatusOut()
    bootstrap_servers = serializers.CharField(
        allow_blank=True, help_text="For a Kafka client; empty until the address is reserved."
    )
    routes = RouteOut(many=True)
    limits = LimitsOut()
    settings = SettingsOut()
    protected = serializers.BooleanField()
    deleted_at = serializers.DateTimeField(allow_null=True)
    restorable_until = serializers.DateTimeField(allow_null=True)
    warnings = InstanceWarningOut(many=True, help_text="What is allowed, and seldom meant.")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    def to_representation(self, instance: Instance) -> dict[str, Any]:
        return super().to_representation(_instance_values(instance))


def _instance_values(instance: Instance) -> dict[str, Any]:
    """Returns the content of `InstanceOut` for a row."""
    return {
        "id": instance.pk,
        "name": instance.name,
        "plan": instance.plan,
        "cluster_type": instance.cluster_type,
        "status": {
            "phase": instance.phase,
            "reason": instance.reason,
            "message": instance.suspension_note,
            "since": instance.phase_since,
            "conditions": instance.conditions,
        },
        "bootstrap_servers": instance.bootstrap_servers,
        "routes": instance.routes_in_order,
        "limits": {
            "bandwidth_mb_s": instance.bandwidth_mb_s,
            "storage_gb": instance.storage_gb,
            "partitions_max": instance.partitions_max,
        },
        "settings": instance.settings_in_force,
        "protected": instance.protected,
        "deleted_at": instance.deleted_at,
        "restorable_until": instance.restorable_until,
        "warnings": _warnings(instance),
        "created_at": instance.created_at,
        "updated_at": instance.updated_at,
    }


def _warnings(instance: Instance) -> list[dict[str, str]]:
    if not allows_everyone(instance):
        return []
    detail = (
        "Every user, and every client of a route without sign-in, may do everything to what has no access rule, except "
        "administer the cluster. Create the rules that clients need, then set allow_everyone_if_no_acl to false."
    )
    return [{"code": "instance_open", "detail": detail}]


class NameField(serializers.RegexField):
    """Lower-case letters, digits and hyphens; a letter first, no hyphen last."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("max_length", NAME_CHARS_MAX)
        kwargs.setdefault("trim_whitespace", False)
        super().__init__(NAME_PATTERN, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or "\n" in data:  # `$` in the pattern also matches before a last "\n"
            self.fail("invalid")
        return str(super().to_internal_value(data))


class RouteNameField(NameField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=ROUTE_NAME_CHARS_MAX, **kwargs)


class Cidrs(serializers.ListField):
    """IP addresses and CIDRs."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=Text(max_length=ADDRESS_CHARS_MAX), max_length=CIDRS_MAX, required=False, **kwargs)


class RoutePatch(StrictSerializer):
    """The fields to change; fields that are not given stay."""

    security = Choice(required=False, choices=SECURITIES)
    allow_list = Cidrs(help_text="From where clients may connect; empty allows every address.")
    advertised_host = Text(
        required=False,
        allow_null=True,
        max_length=HOST_CHARS_MAX,
        help_text="The host that clients connect to, without a port, instead of the brokers' own hosts.",
    )
    connections_max = Integer(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=ROUTE_CONNECTIONS_MAX,
        help_text="On each broker; null: as many as the instance may have.",
    )
    proxies = Cidrs(help_text="Load balancers that speak PROXY protocol version 2; they must, and nobody else may.")
    principal_mapping_rules = Text(
        required=False,
        max_length=MAPPING_RULES_CHARS_MAX,
        help_text="For mtls: RULE:pattern/replacement/[LU] or DEFAULT, separated by commas, as Kafka's "
        "ssl.principal.mapping.rules; the patterns are RE2's.",
    )
    confirm_plaintext = Flag(
        required=False, help_text="Needed for security plaintext where brokers can be reached from other machines."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Replaces a null `advertised_host` by an empty string, as a row stores it."""
        return {name: "" if name == "advertised_host" and value is None else value for name, value in attrs.items()}


class RouteIn(RoutePatch):
    """A new route of an instance."""

    name = RouteNameField(help_text="Unique in the instance; it cannot be changed.")
    security = Choice(choices=SECURITIES)


class ClientCaIn(StrictSerializer):
    """Certificates of the authorities that may sign client certificates, concatenated."""

    ca_pem = Text(max_length=CLIENT_CA_BYTES_MAX)


class RevocationListIn(StrictSerializer):
    """A certificate revocation list, or one for each authority, concatenated."""

    crl_pem = Text(max_length=REVOCATION_LIST_BYTES_MAX)


class RouteCertificateIn(StrictSerializer):
    """A server certificate, followed by the intermediate certificates, and its key."""

    certificate_pem = Text(max_length=SERVER_CHAIN_BYTES_MAX)
    private_key_pem = Text(max_length=PRIVATE_KEY_BYTES_MAX, help_text="Without a password; RSA or EC.")


class InstanceIn(StrictSerializer):
    """The instance to create. The default plan is the smallest one that allows the sizes; the default sizes are those
    that the plan includes.
    """

    name = NameField(help_text="Unique among your instances; it can be changed.")
    plan = Text(required=False, max_length=32, help_text="Code of a plan, from /plans.")
    bandwidth_mb_s = Integer(required=False, min_value=1, max_value=BANDWIDTH_MB_S_MAX)
    storage_gb = Integer(required=False, min_value=1, max_value=STORAGE_GB_MAX)
    cluster_type = Choice(required=False, choices=ClusterType.choices, default=ClusterType.SHARED.value)
    settings = SettingsIn(required=False)
    protected = Flag(required=False, default=False, help_text="Refuse deletion until this is taken away.")
    routes = RouteIn(
        many=True,
        required=False,
        help_text="Default: one on which users sign in, with security sasl_tls, or sasl_plaintext where brokers are "
        "reached from their own machine alone. The first one is the address.",
    )


class InstancePatch(StrictSerializer):
    """The fields to change; fields that are not given stay."""

    name = NameField(required=False)
    plan = Text(required=False, max_length=32)
    bandwidth_mb_s = Integer(required=False, min_value=1, max_value=BANDWIDTH_MB_S_MAX)
    storage_gb = Integer(required=False, min_value=1, max_value=STORAGE_GB_MAX)
    settings = SettingsIn(required=False)
    protected = Flag(required=False)


class InstanceQuery(StrictSerializer):
    contains = Text(required=False, max_length=NAME_CHARS_MAX, help_text="Part of the name or the id.")
    phase = serializers.ChoiceField(required=False, choices=PHASES)


class StepOut(serializers.Serializer):
    name = serializers.CharField()
    state = serializers.ChoiceField(choices=("pending", "running", "done", "failed"))
    at_ms = serializers.IntegerField(allow_null=True, help_text="Milliseconds after the operation began.")
    fact = serializers.CharField(allow_blank=True, help_text="What came out of it, in a few words.")
    data = serializers.DictField(help_text="The same for programs.")


class OperationErrorOut(serializers.Serializer):
    code = serializers.CharField()
    detail = serializers.CharField()
    data = serializers.DictField(required=False)


class PlannedInstanceOut(serializers.Serializer):
    """An instance as a dry run would leave it."""

    name = serializers.CharField()
    plan = serializers.CharField()
    cluster_type = serializers.CharField()
    limits = LimitsOut(source="*")
    settings = SettingsOut(source="settings_in_force")
    protected = serializers.BooleanField()


class OperationOut(serializers.ModelSerializer[Operation]):
    """A long-running call. Poll until `state` is succeeded or failed; after a dry run there is nothing to poll."""

    id = serializers.CharField(allow_null=True, help_text="Null in a dry run.")
    resource_id = serializers.CharField(
        allow_null=True, help_text="The instance; null in a dry run that would create it."
    )
    planned = PlannedInstanceOut(
        source="instance", allow_null=True, help_text="In a dry run: the instance as it would become; else null."
    )
    progress = serializers.FloatField(help_text="Share of the steps that are done, 0 to 1.")
    steps = StepOut(many=True)
    error = OperationErrorOut(allow_null=True)
    state = serializers.ChoiceField(choices=OperationState.choices)

    class Meta:
        model = Operation
        fields = (
            "id", "type", "state", "resource_id", "planned", "progress", "steps", "error", "created_at", "finished_at",
        )  # fmt: skip

    def to_representation(self, operation: Operation) -> dict[str, Any]:
        """Returns the operation; a dry run is rolled back, so its ids are left out, and the planned
        instance is shown.
        """
        representation = super().to_representation(operation)
        if not self.context["view"].dry_run:
            return {**representation, "planned": None}
        creates_instance = operation.generation == 1  # each later operation has a later generation
        return {**representation, "id": None, "resource_id": None if creates_instance else operation.resource_id}


class OperationQuery(StrictSerializer):
    instance_id = Text(required=False, max_length=32)
    state = serializers.ChoiceField(required=False, choices=OperationState.choices)
