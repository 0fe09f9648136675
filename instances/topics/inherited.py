"""Schemas and masks that a clone of a topic inherits, so that each role sees copied records like the originals."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from django.utils.translation import gettext_noop

from instances.copying.models import CopyState, TopicCopy
from instances.messages.limits import MASKS_PER_INSTANCE_MAX
from instances.messages.schemas.limits import SCHEMAS_PER_INSTANCE_MAX
from instances.models import Instance
from instances.topic_models import TopicMask, TopicSchema
from tenants.errors import Message, QuotaExceeded


def too_many_masks(limit: int) -> QuotaExceeded:
    """Returns the error for masks beyond the limit of an instance."""
    detail = gettext_noop("The topics of an instance have at most %(n)s masks, deleted topics included.")
    return QuotaExceeded(Message(detail, n=limit))


def too_many_schemas(limit: int) -> QuotaExceeded:
    """Returns the error for schemas beyond the limit of an instance."""
    detail = gettext_noop("The topics of an instance have at most %(n)s schemas, deleted topics included.")
    return QuotaExceeded(Message(detail, n=limit))


def running_copy_targets(instance: Instance, topic: str) -> Sequence[str]:
    """Returns the topics to which the records of a topic are being copied at the moment, in order."""
    running = TopicCopy.objects.filter(instance=instance, source=topic, state=CopyState.RUNNING)
    return sorted(running.values_list("target", flat=True))


def add_missing_masks(instance: Instance, masks: Collection[tuple[str, str]], clone: str) -> Sequence[tuple[str, str]]:
    """Adds those of the masks (part, path) that a clone lacks, and returns them. The masks were set on its topic after
    copying began.

    Raises `QuotaExceeded` if the instance has no room for them.
    """
    rows = TopicMask.objects.filter(instance=instance)
    missing = sorted(set(masks) - set(rows.filter(topic=clone).values_list("part", "path")))
    if rows.count() + len(missing) > MASKS_PER_INSTANCE_MAX:
        raise too_many_masks(MASKS_PER_INSTANCE_MAX)
    TopicMask.objects.bulk_create(
        TopicMask(instance=instance, topic=clone, part=part, path=path) for part, path in missing
    )
    return missing


def copy_schemas_and_masks(instance: Instance, topic: str, clone: str) -> None:
    """Copies the schemas and masks of a topic to its clone; those that exist already under the clone's name stay.

    Raises `QuotaExceeded` if the instance has no room for them.
    """
    masks = TopicMask.objects.filter(instance=instance)
    existing_masks = set(masks.filter(topic=clone).values_list("part", "path"))
    new_masks = [
        TopicMask(instance=instance, topic=clone, part=part, path=path)
        for part, path in masks.filter(topic=topic).values_list("part", "path")
        if (part, path) not in existing_masks
    ]
    if masks.count() + len(new_masks) > MASKS_PER_INSTANCE_MAX:
        raise too_many_masks(MASKS_PER_INSTANCE_MAX)
    schemas = TopicSchema.objects.filter(instance=instance)
    existing_schemas = set(schemas.filter(topic=clone).values_list("part", "framing", "schema_id"))
    new_schemas = [
        TopicSchema(
            instance=instance,
            topic=clone,
            part=schema.part,
            format=schema.format,
            framing=schema.framing,
            schema_id=schema.schema_id,
            message=schema.message,
            text=schema.text,
        )
        for schema in schemas.filter(topic=topic)
        if (schema.part, schema.framing, schema.schema_id) not in existing_schemas
    ]
    if schemas.count() + len(new_schemas) > SCHEMAS_PER_INSTANCE_MAX:
        raise too_many_schemas(SCHEMAS_PER_INSTANCE_MAX)
    TopicMask.objects.bulk_create(new_masks)
    TopicSchema.objects.bulk_create(new_schemas)
