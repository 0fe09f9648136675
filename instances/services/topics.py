"""Changes of an instance's topics, through a Kafka admin client, and of their address lists.

The audit row is written first and the admin client is called last: a refusal by the broker rolls everything back. If
the outcome is unknown, only the audit row stays (`tenants.audit.in_doubt`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from instances import interfaces
from instances.access import require_reachable
from instances.choices import TopicState
from instances.interfaces import ConfigEntry
from instances.limits import ALLOW_LISTS_PER_INSTANCE_MAX
from instances.models import Instance, TopicAllowList
from instances.services.common import bump_and_publish, lock_allow_lists, lock_topic
from instances.services.deleted_topics import require_topic_name_free, soft_delete_topic
from instances.topic_models import TopicSchema
from instances.topics import allow_lists, pending, table
from instances.topics.allow_lists import AllowLists
from instances.topics.inherited import copy_schemas_and_masks
from instances.topics.limits import ALLOW_LIST_BYTES_MAX
from instances.topics.presence import describe_topic, not_ready_if_pending
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, DomainError, Invalid, Message, OutcomeUnknown, QuotaExceeded


@audit.atomic
def create_topic(
    *,
    acting: Actor,
    instance: Instance,
    name: str,
    partitions: int | None = None,
    replication_factor: int | None = None,
    config: Mapping[str, str] | None = None,
    cloned_from: str = "",
    dry_run: bool = False,
) -> None:
    """Creates a topic as the instance's owner (CreateTopics); omitted values default to the instance's settings.

    Brokers choose the replication factor if the tenant left it open: a broker that is being drained takes no replica.
    Raises `Conflict(recently_deleted)` for the name of a deleted topic that can be restored, and the
    error of a refusal by brokers.
    """
    access.require(acting, Scope.TOPICS_WRITE)
    require_reachable(instance)
    require_topic_name_free(instance, name)
    count = partitions or instance.settings["default_partitions"]
    factor = replication_factor or instance.settings["default_replication_factor"]
    factor_in_force = replication_factor or instance.default_replication_factor
    after: dict[str, Any] = {"partitions": count, "replication_factor": factor_in_force, "config": dict(config or {})}
    if cloned_from:
        after["cloned_from"] = cloned_from
    entry = audit.record(acting, "topic.created", topic_ref(instance, name), None, after, tenant=instance.tenant)
    with audit.in_doubt(entry):
        interfaces.data_plane.implementation.create_topic(
            instance.pk,
            name,
            partitions=count,
            replication_factor=factor,
            config=dict(config or {}),
            validate_only=dry_run,
        )
    if not dry_run:
        pending_topic = pending.PendingTopic(
            name, TopicState.BEING_CREATED.value, "", count, factor_in_force, pending.current_ms()
        )
        transaction.on_commit(lambda: pending.add(instance.pk, pending_topic))
        refresh_topic_list_on_commit(instance, created=[name])


@audit.atomic
def clone_topic(*, acting: Actor, instance: Instance, topic: str, name: str, dry_run: bool = False) -> None:
    """Creates a topic with the partitions, replicas, own settings, schemas and masks of another one, without its
    messages and address lists. Raises `NotFound` for an unknown topic, and the errors of `create_topic`.
    """
    access.require(acting, Scope.TOPICS_WRITE)
    require_reachable(instance)
    description = describe_topic(instance, topic)
    with not_ready_if_pending(instance, topic):
        entries = interfaces.data_plane.implementation.topic_config(instance.pk, topic)
    if not dry_run:
        inherit_schemas_and_masks(instance, topic, name)
    create_topic(
        acting=acting,
        instance=instance,
        name=name,
        partitions=len(description.partitions),
        replication_factor=description.replication_factor,
        config=own_settings(entries),
        cloned_from=topic,
        dry_run=dry_run,
    )


def inherit_schemas_and_masks(instance: Instance, topic: str, clone: str) -> None:
    """Copies the schemas and masks of a topic to its clone, with both topics locked: existing masks are copied here,
    and later ones by `instances.services.set_masks`. Raises `Conflict` and `QuotaExceeded`.
    """
    for name in sorted((topic, clone)):
        lock_topic(instance, name)
    copy_schemas_and_masks(instance, topic, clone)


def own_settings(entries: Sequence[ConfigEntry]) -> dict[str, str]:
    """Returns the settings that are set on the topic itself and that its owner may set."""
    return {
        entry.name: entry.value
        for entry in entries
        if not entry.is_default and not entry.is_read_only and entry.value is not None
    }


@audit.atomic
def update_topic(
    *,
    acting: Actor,
    instance: Instance,
    name: str,
    partitions: int | None = None,
    config: Mapping[str, str | None] | None = None,
    dry_run: bool = False,
) -> None:
    """Adds partitions (the number is the total) and sets configs (None removes one). Raises the error of
    a refusal by brokers.
    """
    access.require(acting, Scope.TOPICS_WRITE)
    require_reachable(instance)
    lock_topic(instance, name)
    description = describe_topic(instance, name)
    grows = partitions is not None and partitions != len(description.partitions)
    if grows and partitions is not None and partitions < len(description.partitions):
        raise Invalid.at("/partitions", "A topic never loses partitions.", code="cannot_shrink")
    before = {"partitions": len(description.partitions)} if grows else {}
    after = {**({"partitions": partitions} if grows else {}), **({"config": dict(config)} if config else {})}
    if not after:
        return
    entry = audit.record(acting, "topic.changed", topic_ref(instance, name), before, after, tenant=instance.tenant)
    new_count = partitions if grows else None
    with audit.in_doubt(entry):
        # Of two calls the second one is validated first, so that a refusal changes nothing.
        if config and new_count is not None:
            interfaces.data_plane.implementation.grow_topic(instance.pk, name, new_count, validate_only=True)
        if config:
            interfaces.data_plane.implementation.alter_topic_config(instance.pk, name, config, validate_only=dry_run)
        if new_count is not None:
            _grow(instance, name, new_count, settings_changed=bool(config) and not dry_run, dry_run=dry_run)
    if not dry_run:
        refresh_topic_list_on_commit(instance)


def check_topic_config(*, acting: Actor, instance: Instance, name: str, config: Mapping[str, str | None]) -> None:
    """Validates settings of a topic with the brokers, and changes nothing. Raises the error of a refusal."""
    access.require(acting, Scope.TOPICS_WRITE)
    require_reachable(instance)
    interfaces.data_plane.implementation.alter_topic_config(instance.pk, name, config, validate_only=True)


def _grow(instance: Instance, name: str, partitions: int, *, settings_changed: bool, dry_run: bool) -> None:
    """Adds partitions. After a change of settings (`settings_changed`) a refusal is raised as `OutcomeUnknown`, so
    that the audit row stays.
    """
    try:
        interfaces.data_plane.implementation.grow_topic(instance.pk, name, partitions, validate_only=dry_run)
    except DomainError as error:
        if settings_changed:
            raise OutcomeUnknown from error
        raise


@audit.atomic
def delete_topic(
    *, acting: Actor, instance: Instance, name: str, for_good: bool = False, dry_run: bool = False
) -> None:
    """Deletes a topic, its messages and its address lists. It can be restored for some days, unless `for_good`.

    Raises `NotFound` for an unknown topic.
    """
    access.require(acting, Scope.TOPICS_WRITE)
    require_reachable(instance)
    if not for_good and interfaces.is_on_kafka.implementation(instance.pk):
        raise Conflict(
            gettext_noop("A topic of an instance on a Kafka cluster cannot be restored: delete it for good."),
            code="not_on_kafka_cluster",
        )
    lock_topic(instance, name)
    description = describe_topic(instance, name)
    before = {"partitions": len(description.partitions)}
    if not for_good:
        deleted_row = soft_delete_topic(instance, description, now=timezone.now(), dry_run=dry_run)
        after = {"restorable_until": deleted_row.expires_at.isoformat()}
        audit.record(acting, "topic.deleted", topic_ref(instance, name), before, after, tenant=instance.tenant)
        if not dry_run:
            refresh_topic_list_on_commit(instance, deleted=[name])
        return
    entry = audit.record(acting, "topic.deleted", topic_ref(instance, name), before, None, tenant=instance.tenant)
    TopicSchema.objects.filter(instance=instance, topic=name).delete()
    # The lists are emptied rather than removed: brokers keep published lists until others are published.
    rows = TopicAllowList.objects.filter(instance=instance, topic=name)
    had_lists = rows.update(**allow_lists.AllowLists().columns(""))
    if not dry_run:
        with audit.in_doubt(entry):
            interfaces.data_plane.implementation.delete_topic(instance.pk, name)
        refresh_topic_list_on_commit(instance, deleted=[name])
    if had_lists:
        bump_and_publish(instance, dry_run=dry_run)


@audit.atomic
def set_allow_list(
    *,
    acting: Actor,
    instance: Instance,
    topic: str,
    lists: AllowLists,
    pointer_prefix: str = "",
    publishes: bool = True,
    dry_run: bool = False,
) -> bool:
    """Sets the addresses (IPs or CIDRs) from which a topic may be produced to, consumed from and administered. An empty
    list admits every address; to administer, those that may both produce and consume. Returns True if they changed.

    It takes effect within a second, on open connections too (CKA-12). Without `publishes` the caller publishes it after
    its queries to brokers (`bump_and_publish`). Raises `Invalid` with a pointer (below `pointer_prefix`) for each
    wrong address, and `NotFound` for an unknown topic.
    """
    access.require(acting, Scope.TOPICS_WRITE)
    require_reachable(instance)
    if interfaces.is_on_kafka.implementation(instance.pk):
        raise Conflict(
            gettext_noop("Topics have no address lists of their own on a Kafka cluster: use those of the routes."),
            code="not_on_kafka_cluster",
        )
    lock_topic(instance, topic)
    describe_topic(instance, topic)
    new_lists = lists.columns(pointer_prefix)
    lock_allow_lists(instance)
    existing = TopicAllowList.objects.filter(instance=instance, topic=topic).first()
    if existing is None:
        _require_list_quota(instance)
    _require_address_quota(instance, topic, new_lists)
    before = {column: getattr(existing, column) for column in new_lists} if existing else None
    TopicAllowList.objects.update_or_create(instance=instance, topic=topic, defaults=new_lists)
    if before == new_lists:
        return False
    audit.record(acting, "allow_list.changed", topic_ref(instance, topic), before, new_lists, tenant=instance.tenant)
    if publishes:
        bump_and_publish(instance, dry_run=dry_run)
    return True


def _require_list_quota(instance: Instance) -> None:
    """Raises `QuotaExceeded` if the instance has its maximum of allow-lists, those of deleted topics included."""
    if TopicAllowList.objects.filter(instance=instance).count() >= ALLOW_LISTS_PER_INSTANCE_MAX:
        detail = Message(
            gettext_noop("At most %(n)s topics of an instance have allow-lists, deleted ones included."),
            n=ALLOW_LISTS_PER_INSTANCE_MAX,
        )
        raise QuotaExceeded(detail)


def _require_address_quota(instance: Instance, topic: str, new_lists: Mapping[str, Sequence[str]]) -> None:
    """Raises `QuotaExceeded` if the lists of an instance would become larger than brokers store. A list can be made
    shorter at any time.
    """
    bytes_by_topic = {
        name: allow_lists.stored_bytes(*lists)
        for name, *lists in TopicAllowList.objects.filter(instance=instance).values_list("topic", *allow_lists.COLUMNS)
    }
    before = bytes_by_topic.pop(topic, 0)
    after = allow_lists.stored_bytes(*new_lists.values())
    if after > before and sum(bytes_by_topic.values()) + after > ALLOW_LIST_BYTES_MAX:
        detail = Message(
            gettext_noop("The allow-lists of an instance have at most %(n)s bytes together; use networks (CIDRs)."),
            n=ALLOW_LIST_BYTES_MAX,
        )
        raise QuotaExceeded(detail)


def refresh_topic_list_on_commit(
    instance: Instance, *, created: Sequence[str] = (), deleted: Sequence[str] = ()
) -> None:
    """Invalidates the cached list of topics when the transaction is committed."""
    instance_id = instance.pk
    transaction.on_commit(lambda: table.invalidate(instance_id, created=created, deleted=deleted))
    if deleted:
        transaction.on_commit(lambda: pending.remove(instance_id, deleted))


def topic_ref(instance: Instance, name: str) -> tuple[str, str]:
    """Returns the audit log's name of a topic: `ins-…/orders`."""
    return "topic", f"{instance.pk}/{name}"
