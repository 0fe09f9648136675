"""Publishes the OAuth configurations of instances to brokers, and fetches the key sets from their addresses.

All steps are idempotent, and a failed step is repeated in the next round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import structlog
from django.db.models import F

from brokers.contract.oauth import OAuthDocument
from brokers.infra import zookeeper
from brokers.infra.locks import Busy, exclusive_lock
from brokers.limits import (
    KEY_SETS_FETCHED_AT_ONCE,
    KEY_SETS_PER_ROUND_MAX,
    KEY_SETS_PER_TENANT_AND_ROUND_MAX,
    OAUTH_PUBLISHED_PER_ROUND_MAX,
)
from brokers.models import Cluster, Placement
from brokers.provisioning.publisher import PublishConflict, Publisher
from instances.models import OAuthConfiguration
from instances.oauth.key_sets import KeySetRefused, PublicKey, parse
from instances.oauth.limits import (
    KEY_SET_BYTES_MAX,
    KEY_SET_REFRESH_S,
    KEY_SET_REQUESTED_REFRESH_S,
    KEY_SET_RETRY_S,
)
from instances.oauth.validation import message_of
from instances.services.oauth import mark_published, store_failed_fetch, store_fetched_keys
from tenants import outbound
from tenants.containment import contained
from tenants.errors import DomainError

log = structlog.get_logger(__name__)

EXTERNAL_ERRORS = (DomainError, PublishConflict, Busy, *zookeeper.ERRORS)


def publish(instance_id: str) -> bool:
    """Publishes the row to the brokers of its instance; False if that has to be retried.

    A concurrent worker may have read an older row: the lock keeps an older row from being written last.
    """
    placement = Placement.objects.select_related("cluster").filter(instance_id=instance_id).first()
    if placement is None:
        return False
    try:
        with exclusive_lock(f"oauth {instance_id}"):
            row = OAuthConfiguration.objects.filter(instance_id=instance_id).first()
            if row is not None:
                _publisher(placement.cluster).publish_oauth(instance_id, document_of(row))
                mark_published(row)
    except EXTERNAL_ERRORS as error:
        log.info("oauth.not_published_yet", instance_id=instance_id, reason=str(error) or type(error).__name__)
        return False
    return True


def document_of(row: OAuthConfiguration) -> OAuthDocument | None:
    """Returns the document that brokers read; None if they accept no tokens."""
    if row.is_removed:
        return None
    return OAuthDocument(
        issuer=row.issuer,
        audience=row.audience,
        principal_claim=row.principal_claim,
        clock_skew_s=row.clock_skew_s,
        keys=row.public_keys,
        is_fetched=bool(row.jwks_url),
    )


def run_round(now: datetime) -> int:
    """Runs one round: fetches due key sets and publishes unpublished rows. Returns the number of requested key sets.

    Only one round runs at a time: slow addresses occupy at most one worker.
    """
    try:
        with exclusive_lock("key sets"):
            requested_ids = _take_key_requests()
            rows = due_configurations(now, requested_ids)
            for row, outcome in _fetch_key_sets(rows):
                with contained("oauth.keys_failed", instance_id=row.instance_id):
                    _store_outcome(row, outcome, now)
            for instance_id in unpublished_instance_ids():
                with contained("oauth.publish_failed", instance_id=instance_id):
                    publish(instance_id)
            return len(rows)
    except Busy:
        return 0


def due_configurations(now: datetime, requested_by_brokers: Iterable[str]) -> list[OAuthConfiguration]:
    """Returns the configurations whose key sets must be fetched now, new ones first, then by waiting time.

    Key sets of the instances `requested_by_brokers` are fetched after a shorter interval.
    """
    requested_ids = frozenset(requested_by_brokers)
    rows = (
        OAuthConfiguration.objects.filter(
            is_removed=False, instance__placement__isnull=False, instance__deleted_at__isnull=True
        )
        .exclude(jwks_url="")
        .select_related("instance")
        .defer("keys")
        .order_by(F("tried_at").asc(nulls_first=True), "pk")
    )
    result: list[OAuthConfiguration] = []
    count_by_tenant: dict[str, int] = {}
    for row in rows.iterator(chunk_size=KEY_SETS_PER_ROUND_MAX):
        tenant_id = str(row.instance.tenant_id)
        is_due = _is_due(row, now, is_requested=row.instance_id in requested_ids)
        if is_due and count_by_tenant.get(tenant_id, 0) < KEY_SETS_PER_TENANT_AND_ROUND_MAX:
            count_by_tenant[tenant_id] = count_by_tenant.get(tenant_id, 0) + 1
            result.append(row)
            if len(result) >= KEY_SETS_PER_ROUND_MAX:
                break
    return result


def _is_due(row: OAuthConfiguration, now: datetime, *, is_requested: bool) -> bool:
    if row.tried_at is None:
        return True
    interval_s = KEY_SET_RETRY_S if row.fetch_error else KEY_SET_REFRESH_S
    if is_requested:
        interval_s = min(interval_s, KEY_SET_REQUESTED_REFRESH_S)
    return row.tried_at + timedelta(seconds=interval_s) <= now


def unpublished_instance_ids() -> list[str]:
    """Returns the instances whose brokers have another revision than the row's."""
    rows = OAuthConfiguration.objects.exclude(published_revision=F("revision")).filter(
        instance__placement__isnull=False
    )
    return list(rows.order_by("pk").values_list("instance_id", flat=True)[:OAUTH_PUBLISHED_PER_ROUND_MAX])


def _take_key_requests() -> set[str]:
    """Deletes the brokers' requests for key sets, and returns the ids of the requested instances.

    Also marks configurations as unpublished whose documents are missing, for example in a restored ZooKeeper.
    """
    requested: set[str] = set()
    for cluster in Cluster.objects.active().order_by("pk"):
        with contained("oauth.cluster_failed", cluster_id=cluster.pk):
            try:
                publisher = _publisher(cluster)
                for instance_id in publisher.key_requests():
                    publisher.forget_key_request(instance_id)
                    requested.add(instance_id)
                published = OAuthConfiguration.objects.filter(
                    instance__placement__cluster=cluster, is_removed=False, published_revision=F("revision")
                ).values_list("instance_id", flat=True)
                ids_without_document = publisher.ids_without_oauth(published)
            except EXTERNAL_ERRORS as error:
                log.warning("oauth.no_zookeeper", cluster_id=cluster.pk, reason=type(error).__name__)
                continue
            OAuthConfiguration.objects.filter(instance__in=ids_without_document).update(published_revision=0)
    return requested


Outcome = tuple[PublicKey, ...] | str


def _fetch_key_sets(rows: Sequence[OAuthConfiguration]) -> list[tuple[OAuthConfiguration, Outcome]]:
    """Fetches the key sets concurrently. Returns each row with its keys, or the reason of the failure."""
    if not rows:
        return []
    with ThreadPoolExecutor(KEY_SETS_FETCHED_AT_ONCE, "key-sets") as threads:
        return list(zip(rows, threads.map(fetch_keys, [row.jwks_url for row in rows]), strict=True))


def fetch_keys(url: str) -> Outcome:
    """Fetches the keys at an address; returns them, or the reason why there are none. Runs in a thread without a
    database connection.
    """
    try:
        return parse(outbound.fetch(url, bytes_max=KEY_SET_BYTES_MAX), is_pinned=False)
    except outbound.OutboundFailed as error:
        return error.detail
    except KeySetRefused as error:
        return message_of(error)
    except Exception:  # an unexpected answer must affect this address only
        log.exception("oauth.key_set_failed")
        return "Its answer cannot be read."


def _store_outcome(row: OAuthConfiguration, outcome: Outcome, now: datetime) -> None:
    if isinstance(outcome, str):
        store_failed_fetch(row, outcome, now)
        log.info("oauth.keys_not_fetched", instance_id=row.instance_id, reason=outcome)
    elif store_fetched_keys(row, outcome, now):
        log.info("oauth.keys_changed", instance_id=row.instance_id, keys=len(outcome))


def _publisher(cluster: Cluster) -> Publisher:
    return Publisher(zookeeper.session(cluster), cluster.chroot)
