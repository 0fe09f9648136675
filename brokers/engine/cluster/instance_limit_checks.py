"""Checks of an instance's limits for partitions and topic metadata. Pure.

They run for each topic of a request, which may create a thousand topics; so totals are cached in the image.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from brokers.contract import instance_limits
from brokers.engine.cluster import errors
from brokers.engine.cluster.image import InstanceImage, TopicImage
from brokers.engine.cluster.in_flight_creations import CreatedTopic


def check_partitions(instance: InstanceImage | None, added: int, pending_creations: Sequence[CreatedTopic]) -> None:
    """Checks the partition limit; `pending_creations` are creations that may not be in the image yet.

    Raises errors.PolicyViolation.
    """
    if instance is None or instance.document.partitions_max is None:
        return
    partition_count = instance.partition_count + sum(
        max(0, len(creation.assignment) - (0 if shown is None else len(shown.partitions)))
        for creation, shown in _with_shown(instance, pending_creations)
    )
    if partition_count + added > instance.document.partitions_max:
        raise errors.PolicyViolation(
            f"The instance may have {instance.document.partitions_max} partitions and has {partition_count}; "
            f"{added} more do not fit."
        )


def check_documents(
    instance: InstanceImage | None, added_bytes: int, pending_creations: Iterable[CreatedTopic] = ()
) -> None:
    """Checks the size limit of topic metadata. Raises errors.PolicyViolation."""
    if instance is None or instance.document.partitions_max is None or added_bytes <= 0:
        return
    bytes_max = instance_limits.document_bytes_max(instance.document.partitions_max)
    if documents_bytes(instance, pending_creations) + added_bytes > bytes_max:
        raise errors.PolicyViolation(
            f"Names and configurations of the instance's topics would weigh more than {bytes_max} bytes. "
            "Delete topics, or remove configuration that is not needed."
        )


def documents_bytes(instance: InstanceImage, pending_creations: Iterable[CreatedTopic] = ()) -> int:
    """Returns the size of the documents of all topics, including those that no image shows yet."""
    return instance.stored_bytes + sum(
        max(0, creation.stored_bytes - (0 if shown is None else shown.stored_bytes))
        for creation, shown in _with_shown(instance, pending_creations)
    )


def _with_shown(
    instance: InstanceImage, pending_creations: Iterable[CreatedTopic]
) -> Iterable[tuple[CreatedTopic, TopicImage | None]]:
    """Yields the last creation of each topic, with the topic in the image."""
    for creation in {creation.internal_name: creation for creation in pending_creations}.values():
        yield creation, instance.topic(creation.user_name) if creation.internal_name in instance.topic_names else None
