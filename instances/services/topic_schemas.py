"""Changes of the schemas by which a topic's messages are shown, and of masks that hide their fields from some roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.translation import gettext_noop

from instances import interfaces
from instances.access import require_reachable
from instances.choices import MessagePart, SchemaFraming
from instances.messages import limits as message_limits
from instances.messages import value_paths
from instances.messages.masks import Mask, Masks
from instances.messages.schemas import limits as schema_limits
from instances.messages.schemas import sources
from instances.messages.schemas.sources import StoredSchema
from instances.messages.schemas.work import WrongSchema
from instances.models import Instance
from instances.services.common import lock_topic
from instances.services.topics import topic_ref
from instances.topic_models import ANY_SCHEMA_ID, TopicMask, TopicSchema
from instances.topics.inherited import add_missing_masks, running_copy_targets, too_many_masks, too_many_schemas
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, Invalid, Message, QuotaExceeded


class TopicSchemas:
    """Schemas of one topic (`instances.messages.schemas.sources.SchemaSource`)."""

    def __init__(self, rows: Sequence[TopicSchema]) -> None:
        self._rows = rows

    def __bool__(self) -> bool:
        return bool(self._rows)

    def plain(self, part: str) -> Sequence[StoredSchema]:
        return [stored_schema(row) for row in self._rows if (row.part, row.framing) == (part, SchemaFraming.PLAIN)]

    def framed(self, part: str, schema_id: int) -> Sequence[StoredSchema]:
        framed = [row for row in self._rows if (row.part, row.framing) == (part, SchemaFraming.CONFLUENT)]
        with_id = [row for row in framed if row.schema_id == schema_id]
        return [stored_schema(row) for row in with_id or [row for row in framed if row.schema_id == ANY_SCHEMA_ID]]


def stored_schema(row: TopicSchema) -> StoredSchema:
    """Returns the schema of a row in the form that decoders use."""
    schema_id = None if row.schema_id == ANY_SCHEMA_ID else row.schema_id
    return StoredSchema(
        format=row.format, framing=row.framing, text=row.text, message=row.message, schema_id=schema_id
    )  # fmt: skip


def schemas_of(instance: Instance, topic: str) -> Sequence[TopicSchema]:
    return list(TopicSchema.objects.filter(instance=instance, topic=topic))


def masks_of(instance: Instance, topic: str) -> Sequence[TopicMask]:
    return list(TopicMask.objects.filter(instance=instance, topic=topic))


def masks_for(acting: Actor, instance: Instance, topic: str) -> Masks:
    """Returns the masks that hide fields of a topic from the actor; none for an actor with `messages:unmask`."""
    if access.permits(acting, Scope.MESSAGES_UNMASK):
        return Masks()
    rows = masks_of(instance, topic)
    return Masks(Mask(row.part, value_paths.parse(row.path)) for row in rows)


def is_masked(instance: Instance, topic: str) -> bool:
    """True if the topic has masks."""
    return TopicMask.objects.filter(instance=instance, topic=topic).exists()


def require_unmasked(acting: Actor, instance: Instance, topic: str) -> None:
    """Raises `PermissionDenied` if the topic has masks and the actor lacks `messages:unmask`."""
    if is_masked(instance, topic):
        access.require(acting, Scope.MESSAGES_UNMASK)


@audit.atomic
def add_schema(*, acting: Actor, instance: Instance, topic: str, fields: Mapping[str, Any]) -> TopicSchema:
    """Adds a schema of a topic's keys or values. On a topic with masks this requires `messages:unmask`, because another
    schema may give masked fields other names.

    Raises `Invalid` for an unusable schema, `Conflict` if the topic has a schema for these values, and `QuotaExceeded`.
    """
    _require_changeable(acting, instance, topic)
    schema = TopicSchema(
        instance=instance, topic=topic, part=fields["part"], format=fields["format"], framing=fields["framing"],
        schema_id=ANY_SCHEMA_ID if fields.get("schema_id") is None else fields["schema_id"],
        message=fields.get("message", ""), text=fields["schema"],
    )  # fmt: skip
    _require_consistent(schema)
    existing = TopicSchema.objects.filter(
        instance=instance, topic=topic, part=schema.part, framing=schema.framing, schema_id=schema.schema_id
    )
    if existing.exists():
        raise Conflict("The topic has a schema for these values. Delete it first.", code="already_exists")
    _require_schema_quota(TopicSchema, instance, topic, schema_limits.SCHEMAS_PER_TOPIC_MAX,
                  schema_limits.SCHEMAS_PER_INSTANCE_MAX)  # fmt: skip
    schema.save()
    ref = topic_ref(instance, topic)
    audit.record(acting, "topic_schema.added", ref, None, _audited_fields(schema), tenant=instance.tenant)
    return schema


@audit.atomic
def delete_schema(*, acting: Actor, instance: Instance, topic: str, schema_id: str) -> None:
    """Deletes a schema of a topic. Raises `NotFound`."""
    _require_changeable(acting, instance, topic)
    row = access.fetch(TopicSchema.objects.filter(instance=instance, topic=topic), pk=schema_id)
    ref = topic_ref(instance, topic)
    audit.record(acting, "topic_schema.deleted", ref, _audited_fields(row), None, tenant=instance.tenant)
    row.delete()


@audit.atomic
def set_masks(*, acting: Actor, instance: Instance, topic: str, masks: Sequence[Mask]) -> Sequence[TopicMask]:
    """Replaces the masks of a topic. They apply at once to every actor without `messages:unmask`. New masks are also
    added to clones to which the topic's records are being copied; complete clones have masks of their own.

    Masks stay when their topic is deleted, because its producers may create it again; an empty list can be set without
    a topic. Raises `NotFound` for an unknown topic, and `QuotaExceeded`.
    """
    access.require(acting, Scope.MESSAGES_UNMASK)
    access.require_active(acting)
    require_reachable(instance)
    lock_topic(instance, topic)
    if masks:
        interfaces.data_plane.implementation.topic(instance.pk, topic)
    paths = sorted({(mask.part, str(mask.path)) for mask in masks})
    rows = TopicMask.objects.filter(instance=instance, topic=topic)
    before = sorted(rows.values_list("part", "path"))
    if paths != before:
        rows.delete()
        other_count = TopicMask.objects.filter(instance=instance).count()
        if other_count + len(paths) > message_limits.MASKS_PER_INSTANCE_MAX:
            raise too_many_masks(message_limits.MASKS_PER_INSTANCE_MAX)
        TopicMask.objects.bulk_create(
            TopicMask(instance=instance, topic=topic, part=part, path=path) for part, path in paths
        )
        audit.record(
            acting, "topic_masks.changed", topic_ref(instance, topic), {"masks": _mask_texts(before)},
            {"masks": _mask_texts(paths)}, tenant=instance.tenant,
        )  # fmt: skip
        _add_masks_to_running_clones(acting, instance, topic, set(paths) - set(before))
    return masks_of(instance, topic)


def _add_masks_to_running_clones(acting: Actor, instance: Instance, topic: str, added: set[tuple[str, str]]) -> None:
    """Adds new masks of a topic to clones to which its records are being copied: without them, readers of a clone would
    see the masked fields.
    """
    for clone in running_copy_targets(instance, topic) if added else ():
        lock_topic(instance, clone)
        new_masks = add_missing_masks(instance, added, clone)
        if new_masks:
            after = {"from": topic, "added": _mask_texts(new_masks)}
            audit.record(acting, "topic_masks.changed", topic_ref(instance, clone), None, after, tenant=instance.tenant)


def _require_changeable(acting: Actor, instance: Instance, topic: str) -> None:
    access.require(acting, Scope.TOPICS_WRITE)
    require_reachable(instance)
    lock_topic(instance, topic)
    interfaces.data_plane.implementation.topic(instance.pk, topic)
    require_unmasked(acting, instance, topic)


def _require_consistent(schema: TopicSchema) -> None:
    if schema.part == MessagePart.HEADER:
        raise Invalid.at("/part", gettext_noop("A schema is for keys or for values."), code="part")
    if schema.framing == SchemaFraming.PLAIN and schema.schema_id != ANY_SCHEMA_ID:
        raise Invalid.at("/schema_id", gettext_noop("Values without a header carry no id."), code="schema_id")
    if schema.format != sources.PROTOBUF and schema.message:
        raise Invalid.at("/message", gettext_noop("Only a schema of Protobuf has several messages."), code="message")
    try:
        sources.check(stored_schema(schema))
    except WrongSchema as refusal:
        raise Invalid.at("/schema", str(refusal), code="schema") from None


def _require_schema_quota(
    model: type[TopicSchema], instance: Instance, topic: str, per_topic_max: int, per_instance_max: int
) -> None:
    rows = model.objects.filter(instance=instance)
    if rows.filter(topic=topic).count() >= per_topic_max:
        raise QuotaExceeded(Message(gettext_noop("A topic has at most %(n)s schemas."), n=per_topic_max))
    if rows.count() >= per_instance_max:
        raise too_many_schemas(per_instance_max)


def _audited_fields(row: TopicSchema) -> dict[str, Any]:
    """Returns what the audit log records about a schema, without its text."""
    schema_id = None if row.schema_id == ANY_SCHEMA_ID else row.schema_id
    return {
        "id": row.pk, "part": row.part, "format": row.format, "framing": row.framing, "schema_id": schema_id,
        "message": row.message, "chars": len(row.text),
    }  # fmt: skip


def _mask_texts(masks: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{part} {path}" for part, path in masks]
