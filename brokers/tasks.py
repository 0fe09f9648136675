"""Celery tasks of the fleet. A task may be lost, run twice, or run out of order; the sweep enqueues lost work again."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import structlog
from celery import shared_task
from django.db import close_old_connections
from django.utils import timezone
from kombu.exceptions import OperationalError

from brokers.agent.broker_certificates import renew_control_plane_certificates
from brokers.auditing import reader
from brokers.infra.locks import Busy, exclusive_lock
from brokers.limits import SWEEP_EVERY_S, WORK_LOOK_EVERY_S, WORK_ROUND_S
from brokers.monitoring import (
    cluster_overview,
    delays,
    health,
    incidents,
    lag_sampling,
    storage_sampling,
    traffic_samples,
    watching,
)
from brokers.operations import compiled_uptake, job_runner, revocation
from brokers.provisioning import oauth, reconciler, sweep
from brokers.provisioning.steps import RetryLater
from instances.copying import turns as copy_turns
from instances.copying.limits import COPY_ROUND_S
from instances.quickstart.limits import PUSH_ENDS_AFTER_S, PUSH_EVERY_S, SAMPLE_EVERY_S, SAMPLE_TURN_EXPIRES_S
from instances.quickstart.pushing import end_push, push_turn
from instances.quickstart.sending import send_turn
from instances.services import purge_expired_topics, purge_expired_users, record_certificate_expiry
from instances.topics import table as topic_table
from tenants.containment import contained

log = structlog.get_logger(__name__)

RETRY_AFTER_S = 1
RETRIES_MAX = 15
REFRESH_EXPIRES_S = 5
# An unresponsive queue must not delay a request: the sweep does the work a little later.
QUICK_PUBLISH = {"max_retries": 1, "interval_start": 0.0, "interval_step": 0.1, "interval_max": 0.1}


def enqueue_reconciliation(instance_id: str, *, expires_s: float | None = None) -> None:
    """Implements `instances.interfaces.reconcile`: enqueues the work; losing it is harmless."""
    try:
        reconcile_instance.apply_async((instance_id,), expires=expires_s, retry=True, retry_policy=QUICK_PUBLISH)
    except OperationalError:
        log.warning("queue.unreachable", instance_id=instance_id)


@shared_task(name="brokers.renew_certificates")
def renew_certificates() -> None:
    """Renews certificates of the control plane's programs on a machine with the authority's key. Agents with a database
    do the same; joined agents do not have the key.
    """
    try:
        renew_control_plane_certificates()
    except (OSError, ValueError) as error:
        log.warning("certificates.not_renewed", reason=f"{type(error).__name__}: {error}")


@shared_task(name="brokers.publish_revocations", ignore_result=True)
def publish_revocations() -> int:
    """Publishes the revocations of brokers' certificates to the brokers of the cluster."""
    close_old_connections()
    return revocation.publish(timezone.now())


@shared_task(bind=True, name="brokers.reconcile_instance", max_retries=RETRIES_MAX)
def reconcile_instance(self: Any, instance_id: str) -> str:
    """Reconciles one instance with its row. Idempotent and safe to run concurrently."""
    close_old_connections()
    try:
        return reconciler.reconcile(instance_id)
    except RetryLater as reason:
        log.info("instance.postponed", instance_id=instance_id, reason=str(reason))
        if self.request.retries >= RETRIES_MAX:
            return f"left to the sweep: {reason}"
        raise self.retry(countdown=RETRY_AFTER_S, exc=reason) from reason


def enqueue_oauth_publication(instance_id: str) -> None:
    """Implements `instances.interfaces.publish_oauth`; losing it is harmless."""
    try:
        publish_oauth.apply_async((instance_id,), retry=True, retry_policy=QUICK_PUBLISH)
    except OperationalError:
        log.warning("queue.unreachable", instance_id=instance_id)


@shared_task(name="brokers.publish_oauth", ignore_result=True)
def publish_oauth(instance_id: str) -> bool:
    """Publishes the OAuth configuration to brokers; a failure is left to the next round. Then the keys of a new address
    are fetched.
    """
    close_old_connections()
    published = oauth.publish(instance_id)
    keep_key_sets.delay()
    return published


def enqueue_topics_refresh(instance_id: str) -> None:
    """Implements `instances.topics.interfaces.refresh_topics`: pages show the stored table until it is done."""
    try:
        refresh_topics.apply_async((instance_id,), expires=REFRESH_EXPIRES_S, retry=True, retry_policy=QUICK_PUBLISH)
    except OperationalError:
        log.warning("queue.unreachable", instance_id=instance_id)


@shared_task(name="brokers.refresh_topics", ignore_result=True)
def refresh_topics(instance_id: str) -> None:
    """Rebuilds the table of an instance's topics, for pages that are being viewed."""
    close_old_connections()
    with contained("topics.refresh_failed", instance_id=instance_id):
        topic_table.rebuild(instance_id)


@shared_task(name="brokers.keep_key_sets", ignore_result=True)
def keep_key_sets() -> int:
    """Fetches due key sets, and publishes unpublished OAuth configurations."""
    close_old_connections()
    return oauth.run_round(timezone.now())


@shared_task(name="brokers.sweep", ignore_result=True)
def sweep_instances() -> int:
    """Finds instances whose state differs from their row, and enqueues a task for each. It expires at the next sweep:
    while tasks cannot be done they must not accumulate in the queue.
    """
    close_old_connections()
    result = sweep.instance_ids_needing_work(timezone.now())
    for instance_id in result:
        enqueue_reconciliation(instance_id, expires_s=SWEEP_EVERY_S)
    return len(result)


@shared_task(name="brokers.tidy", ignore_result=True)
def delete_leftovers() -> int:
    """Removes leftovers of a crashed reconciler."""
    close_old_connections()
    return sweep.delete_leftovers()


@shared_task(name="brokers.purge_deleted_topics", ignore_result=True)
def purge_deleted_topics() -> int:
    """Deletes topics and users permanently that can no longer be restored."""
    close_old_connections()
    now = timezone.now()
    return purge_expired_topics(now) + purge_expired_users(now)


@shared_task(name="brokers.copy_topics", ignore_result=True)
def copy_topics() -> int:
    """Continues copies of topics, each in one worker at a time."""
    close_old_connections()
    ends_s = time.monotonic() + COPY_ROUND_S
    copies = copy_turns.due_copies()
    for copy_id in copies:
        with (
            contained("topics.copy_turn_failed", copy_id=copy_id),
            suppress(Busy),
            exclusive_lock(f"topic copy {copy_id}"),
        ):
            copy_turns.run_turn(copy_id, deadline_s=ends_s, now=timezone.now())
    return len(copies)


@shared_task(name="brokers.watch_certificates", ignore_result=True)
def watch_certificates() -> int:
    """Notifies owners of route certificates that expire soon."""
    close_old_connections()
    return record_certificate_expiry(timezone.now())


@shared_task(name="brokers.observe", ignore_result=True)
def observe_brokers() -> int:
    """Queries the status of every broker and stores it with its row; also caches the cluster images."""
    close_old_connections()
    now = timezone.now()
    answered = health.store_statuses(now)
    for cluster, counts in cluster_overview.cache_images(now):
        with contained("incidents.cluster_failed", cluster_id=cluster.pk):
            incidents.cache_owners(cluster, counts)
    compiled_uptake.start_due_restarts(now)
    return answered


@shared_task(name="brokers.watch", ignore_result=True)
def watch_instances() -> int:
    """Notifies tenants of brokers that do not answer, partitions without a leader and storage that runs out."""
    close_old_connections()
    return watching.check_clusters(timezone.now())


@shared_task(name="brokers.keep_delays", ignore_result=True)
def keep_delays() -> int:
    """Stores the minutes in which clients were throttled, which brokers retain for 15 minutes only."""
    close_old_connections()
    return delays.store_delays(timezone.now())


@shared_task(name="brokers.sample_traffic", ignore_result=True)
def sample_traffic() -> int:
    """Stores traffic and throttling of instances, so that no chart depends on the memory of a broker."""
    close_old_connections()
    return traffic_samples.collect_samples(time.time_ns() // 1_000_000)


def enqueue_samples(instance_id: str, topic: str, run: str) -> None:
    """Implements `instances.interfaces.stream_samples`: enqueues the first turn."""
    try:
        send_samples.apply_async((instance_id, topic, run, 0), retry=True, retry_policy=QUICK_PUBLISH)
    except OperationalError:
        log.warning("queue.unreachable", instance_id=instance_id)


@shared_task(name="brokers.send_samples", ignore_result=True)
def send_samples(instance_id: str, topic: str, run: str, turn: int) -> None:
    """Sends one turn of sample data, and enqueues the next one."""
    close_old_connections()
    if send_turn(instance_id, topic, run, turn):
        send_samples.apply_async(
            (instance_id, topic, run, turn + 1),
            countdown=SAMPLE_EVERY_S,
            expires=SAMPLE_EVERY_S + SAMPLE_TURN_EXPIRES_S,
            retry=True,
            retry_policy=QUICK_PUBLISH,
        )


def enqueue_push(instance_id: str, topic: str, run: str) -> None:
    """Implements `instances.interfaces.push_limit`: enqueues the first turn and the end."""
    try:
        end_push_of.apply_async((instance_id, run), countdown=PUSH_ENDS_AFTER_S, retry=True, retry_policy=QUICK_PUBLISH)
        push.apply_async((instance_id, topic, run, 0), retry=True, retry_policy=QUICK_PUBLISH)
    except OperationalError:
        log.warning("queue.unreachable", instance_id=instance_id)
        end_push(instance_id, run)


@shared_task(name="brokers.push", ignore_result=True)
def push(instance_id: str, topic: str, run: str, turn: int) -> None:
    """Sends one turn above the demo client's quota, and enqueues the next one."""
    close_old_connections()
    if push_turn(instance_id, topic, run, turn):
        push.apply_async(
            (instance_id, topic, run, turn + 1), countdown=PUSH_EVERY_S, retry=True, retry_policy=QUICK_PUBLISH
        )


@shared_task(name="brokers.end_push", ignore_result=True)
def end_push_of(instance_id: str, run: str) -> None:
    """Removes the demo client's quota, if its last turn has not."""
    close_old_connections()
    end_push(instance_id, run)


@shared_task(name="brokers.sample_lags", ignore_result=True)
def sample_lags() -> int:
    """Samples the lags of groups, so that their trend does not depend on viewers."""
    close_old_connections()
    return lag_sampling.sample_all(time.time_ns() // 1_000_000)


@shared_task(name="brokers.sample_storage", ignore_result=True)
def sample_storage() -> int:
    """Samples the used storage of instances, for the forecast of when they are full."""
    close_old_connections()
    return storage_sampling.sample_all(time.time_ns() // 1_000_000)


@shared_task(name="brokers.work", ignore_result=True)
def continue_moves_and_restarts() -> int:
    """Continues rebalances and rolling restarts for most of a second, so that steps follow each other quickly."""
    close_old_connections()
    end_s = time.monotonic() + WORK_ROUND_S
    result = job_runner.reconcile_once()
    while result and time.monotonic() < end_s:
        time.sleep(WORK_LOOK_EVERY_S)
        result = job_runner.reconcile_once(measure=False)
    return result


@shared_task(name="brokers.work_on_clusters", ignore_result=True)
def continue_cluster_operations() -> int:
    """Continues clusters that are being formed or retired."""
    close_old_connections()
    return job_runner.reconcile_clusters()


@shared_task(name="brokers.read_audit", ignore_result=True)
def read_audit() -> int:
    """Imports administrative actions of Kafka clients into their tenants' audit logs."""
    close_old_connections()
    return reader.read_all_clusters()
