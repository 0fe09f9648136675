"""Enumerations of this app, with their labels."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from instances.lifecycle.phases import Phase
from instances.messages import masks
from instances.messages.schemas import sources
from instances.routes import kinds

PHASE_CHOICES = [
    (Phase.REQUESTED.value, _("Requested")),
    (Phase.PROVISIONING.value, _("Provisioning")),
    (Phase.RUNNING.value, _("Running")),
    (Phase.UPDATING.value, _("Updating")),
    (Phase.SUSPENDED.value, _("Suspended")),
    (Phase.FAILED.value, _("Failed")),
    (Phase.DELETING.value, _("Deleting")),
    (Phase.DELETED.value, _("Deleted")),
]


class ClusterType(models.TextChoices):
    SHARED = "shared", _("Shared")
    DEDICATED = "dedicated", _("Dedicated")


class BandwidthPolicy(models.TextChoices):
    """Policies of sharing bandwidth over brokers, as named in `quotas.policies`."""

    ADAPTIVE = "adaptive", _("Follows what clients want")
    NORMALISED = "normalised", _("CKafka: follows traffic")
    WEIGHTED = "weighted", _("CKafka: follows the traffic of a partition")
    LITERAL = "literal", _("CKafka to the letter: may exceed what was bought for a while")
    STATIC = "static", _("By partitions")


class QuotaScope(models.TextChoices):
    """The scope of a client quota in bytes."""

    CLUSTER = "cluster", _("Over all brokers together")
    BROKER = "broker", _("On each broker, as in Kafka")


class StorageWhenFull(models.TextChoices):
    """The behaviour of an instance that uses all of its storage."""

    STOP = "stop", _("Produce is refused")
    SHRINK_RETENTION = "shrink_retention", _("The oldest records are deleted before their time")


class TopicState(models.TextChoices):
    """State of a topic that is not deleted. Brokers show a created or restored topic about a second later."""

    READY = "ready", _("Ready")
    BEING_CREATED = "being_created", _("Being created")
    BEING_RESTORED = "being_restored", _("Being restored")


class RouteSecurity(models.TextChoices):
    """The security of a route, as named in `routes.kinds`."""

    PLAINTEXT = kinds.PLAINTEXT, _("None: without users, not encrypted")
    SASL_PLAINTEXT = kinds.SASL_PLAINTEXT, _("Username and password, not encrypted")
    TLS = kinds.TLS, _("Encrypted, without users")
    SASL_TLS = kinds.SASL_TLS, _("Username and password, encrypted")
    MTLS = kinds.MTLS, _("Encrypted, users by certificate")


class OperationType(models.TextChoices):
    CREATE = "instance.create", _("Create instance")
    RESIZE = "instance.resize", _("Resize instance")
    CONFIGURE = "instance.configure", _("Change settings")
    ROUTES = "instance.routes", _("Change routes")
    SUSPEND = "instance.suspend", _("Suspend instance")
    RESUME = "instance.resume", _("Resume instance")
    DELETE = "instance.delete", _("Delete instance")
    RESTORE = "instance.restore", _("Restore instance")
    PURGE = "instance.purge", _("Purge instance")


class OperationState(models.TextChoices):
    PENDING = "pending", _("Waiting")
    RUNNING = "running", _("Running")
    SUCCEEDED = "succeeded", _("Done")
    FAILED = "failed", _("Failed")


class StepState(models.TextChoices):
    PENDING = "pending", _("Waiting")
    RUNNING = "running", _("Running")
    DONE = "done", _("Done")
    FAILED = "failed", _("Failed")


class Step(models.TextChoices):
    """The steps of operations, in order."""

    ACCEPTED = "accepted", _("Request accepted")
    PLACED = "placed", _("Placed")
    ADDRESS_RESERVED = "address_reserved", _("Address reserved")
    LIMITS_PUBLISHED = "limits_published", _("Limits published")
    LISTENERS_OPEN = "listeners_open", _("Listeners open")
    FIRST_MESSAGE = "first_message", _("First message in and out")


class Reason(models.TextChoices):
    """The reason for the phase of an instance, if the phase alone is not sufficient."""

    NONE = "", ""
    NO_ROOM = "no_room", _("No cluster has room for it")
    BROKERS_SILENT = "brokers_silent", _("No broker confirmed it in time")
    PORT_NOT_OPEN = "port_not_open", _("A broker could not open its port")
    PROBE_FAILED = "probe_failed", _("The first message did not come back")
    UNPAID = "unpaid", _("Unpaid invoice")
    TENANT_SUSPENDED = "tenant_suspended", _("The tenant is suspended")
    BY_OPERATOR = "by_operator", _("Suspended by the operator")
    IDLE = "idle", _("Stopped by its plan, because nobody used it")
    DELETED_BY_USER = "deleted_by_user", _("Deleted, can be restored")
    DELETED_FOR_GOOD = "deleted_for_good", _("Deleted for good")


class MessagePart(models.TextChoices):
    """Part of a message to which a schema or a mask applies. Schemas apply to keys and values only."""

    KEY = masks.KEY, pgettext_lazy("message", "Key")
    VALUE = masks.VALUE, _("Value")
    HEADER = masks.HEADER, _("Header")


class SchemaFormat(models.TextChoices):
    """Format of a key or value that a schema describes."""

    AVRO = sources.AVRO, "Avro"
    PROTOBUF = sources.PROTOBUF, "Protobuf"


class SchemaFraming(models.TextChoices):
    """Framing of a key or value with a schema: the bytes before it, if any."""

    PLAIN = sources.PLAIN, _("The value alone")
    CONFLUENT = sources.CONFLUENT, _("Confluent's header, then the value")


class ConditionType(models.TextChoices):
    """Conditions that are true or false besides the phase."""

    PLACED = "Placed", _("Placed on brokers")
    PUBLISHED = "Published", _("Wanted state published")
    LISTENING = "Listening", _("Every broker listens")
    PROBED = "Probed", _("A message went in and out")
    BROKERS_ANSWER = "BrokersAnswer", _("Every broker answers")
    PARTITIONS_LED = "PartitionsLed", _("Every partition has a leader")
    STORAGE_AVAILABLE = "StorageAvailable", _("Less than 80 % of the storage is used")
    RETENTION_KEPT = "RetentionKept", _("Records stay as long as their topics say")
    STORAGE_GROWS = "StorageGrows", _("Storage grows by itself as far as is set")


STEPS_OF: dict[OperationType, tuple[Step, ...]] = {
    OperationType.CREATE: tuple(Step),
    OperationType.RESIZE: (Step.ACCEPTED, Step.LIMITS_PUBLISHED, Step.LISTENERS_OPEN),
    OperationType.ROUTES: (Step.ACCEPTED, Step.LIMITS_PUBLISHED, Step.LISTENERS_OPEN),
    OperationType.CONFIGURE: (Step.ACCEPTED, Step.LIMITS_PUBLISHED, Step.LISTENERS_OPEN),
    OperationType.SUSPEND: (Step.ACCEPTED, Step.LIMITS_PUBLISHED, Step.LISTENERS_OPEN),
    OperationType.RESUME: (Step.ACCEPTED, Step.LIMITS_PUBLISHED, Step.LISTENERS_OPEN),
    OperationType.DELETE: (Step.ACCEPTED, Step.LIMITS_PUBLISHED, Step.LISTENERS_OPEN),
    OperationType.RESTORE: (Step.ACCEPTED, Step.LIMITS_PUBLISHED, Step.LISTENERS_OPEN),
    OperationType.PURGE: (Step.ACCEPTED,),
}
