"""Celery: every task may be lost, run twice, or run out of order; the sweep repairs what is left."""

from __future__ import annotations

import time
from typing import Any

import structlog
from celery import shared_task
from django.db import close_old_connections
from django.utils import timezone
from kombu.exceptions import OperationalError

from brokers.auditing import reader
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
from brokers.operations import compiled_uptake, job_runner
from brokers.provisioning import oauth, reconciler, sweep
from brokers.provisioning.steps import NotYet
from instances.quickstart.limits import PUSH_ENDS_AFTER_S, PUSH_EVERY_S, SAMPLE_EVERY_S, SAMPLE_TURN_EXPIRES_S
from instances.quickstart.pushing import end_push, push_turn
from instances.quickstart.sending import send_turn
from instances.services import note_certificate_ends, purge_expired
from instances.topics import table as topic_table
from tenants.containment import contained

log = structlog.get_logger(__name__)

RETRY_AFTER_S = 1
RETRIES_MAX = 15
REFRESH_EXPIRES_S = 5
# A queue that does not answer must not keep a request waiting: the sweep does the work a little later.
QUICK_PUBLISH = {"max_retries": 1, "interval_start": 0.0, "interval_step": 0.1, "interval_max": 0.1}


def ask_to_reconcile(instance_id: str, *, expires_s: float | None = None) -> None:
    """The port `instances.interfaces.reconcile`: put the work into the queue; losing it is harmless."""
    try:
        reconcile_instance.apply_async((instance_id,), expires=expires_s, retry=True, retry_policy=QUICK_PUBLISH)
    except OperationalError:
        log.warning("queue.unreachable", instance_id=instance_id)


@shared_task(bind=True, name="brokers.reconcile_instance", max_retries=RETRIES_MAX)
def reconcile_instance(self: Any, instance_id: str) -> str:
    """Bring the world in line with one instance's row."""
    close_old_connections()
    try:
        return reconciler.reconcile(instance_id)
    except NotYet as reason:
        log.info("instance.not_yet", instance_id=instance_id, reason=str(reason))
        if self.request.retries >= RETRIES_MAX:
            return f"left to the sweep: {reason}"
        raise self.retry(countdown=RETRY_AFTER_S, exc=reason) from reason


def ask_to_publish_oauth(instance_id: str) -> None:
    """The port `instances.interfaces.publish_oauth`; losing it is harmless as well."""
    try:
        publish_oauth.apply_async((instance_id,), retry=True, retry_policy=QUICK_PUBLISH)
    except OperationalError:
        log.warning("queue.unreachable", instance_id=instance_id)


@shared_task(name="brokers.publish_oauth", ignore_result=True)
def publish_oauth(instance_id: str) -> bool:
    """Tell brokers whose tokens they may take; what fails is left to the next round. Then the keys of a new address are
    fetched.
    """
    close_old_connections()
    published = oauth.publish(instance_id)
    keep_key_sets.delay()
    return published


def ask_to_refresh_topics(instance_id: str) -> None:
    """The port `instances.topics.interfaces.refresh_topics`: pages show what is kept until it is done."""
    try:
        refresh_topics.apply_async((instance_id,), expires=REFRESH_EXPIRES_S, retry=True, retry_policy=QUICK_PUBLISH)
    except OperationalError:
        log.warning("queue.unreachable", instance_id=instance_id)


@shared_task(name="brokers.refresh_topics", ignore_result=True)
def refresh_topics(instance_id: str) -> None:
    """Bring the table of an instance's topics up to date, for pages that somebody looks at."""
    close_old_connections()
    with contained("topics.refresh_failed", instance_id=instance_id):
        topic_table.rebuild(instance_id)


@shared_task(name="brokers.keep_key_sets", ignore_result=True)
def keep_key_sets() -> int:
    """Fetch key sets that are due, and publish what brokers do not know."""
    close_old_connections()
    return oauth.keep(timezone.now())


@shared_task(name="brokers.sweep", ignore_result=True)
def sweep_instances() -> int:
    """Find instances whose world differs from their row, and put each into the queue until the next sweep does so:
    what cannot be done for an hour must not lie there an hour's times.
    """
    close_old_connections()
    result = sweep.needing_work(timezone.now())
    for instance_id in result:
        ask_to_reconcile(instance_id, expires_s=SWEEP_EVERY_S)
    return len(result)


@shared_task(name="brokers.tidy", ignore_result=True)
def tidy() -> int:
    """Remove what a crash of the reconciler may leave behind without anybody noticing."""
    close_old_connections()
    return sweep.tidy()


@shared_task(name="brokers.purge_deleted_topics", ignore_result=True)
def purge_deleted_topics() -> int:
    """Delete topics for good that can no longer be restored."""
    close_old_connections()
    return purge_expired(timezone.now())


@shared_task(name="brokers.watch_certificates", ignore_result=True)
def watch_certificates() -> int:
    """Tell owners of certificates of their routes that end soon."""
    close_old_connections()
    return note_certificate_ends(timezone.now())


@shared_task(name="brokers.observe", ignore_result=True)
def observe_brokers() -> int:
    """Ask every broker for its status and keep it with its row; and for its image of the cluster."""
    close_old_connections()
    now = timezone.now()
    answered = health.observe(now)
    for cluster, counts in cluster_overview.keep(now):
        with contained("incidents.cluster_failed", cluster_id=cluster.pk):
            incidents.keep(cluster, counts)
    compiled_uptake.take_up(now)
    return answered


@shared_task(name="brokers.watch", ignore_result=True)
def watch_instances() -> int:
    """Tell tenants of brokers that do not answer, partitions without a leader and storage that ends."""
    close_old_connections()
    return watching.reconcile_once(timezone.now())


@shared_task(name="brokers.keep_delays", ignore_result=True)
def keep_delays() -> int:
    """Keep what brokers forget after a quarter of an hour: the minutes in which clients were delayed."""
    close_old_connections()
    return delays.keep(timezone.now())


@shared_task(name="brokers.sample_traffic", ignore_result=True)
def sample_traffic() -> int:
    """Keep what instances moved and what held them back, so that no chart depends on the memory of a broker."""
    close_old_connections()
    return traffic_samples.collect(time.time_ns() // 1_000_000)


def ask_for_samples(instance_id: str, topic: str, run: str) -> None:
    """The port `instances.interfaces.stream_samples`: put the first turn into the queue."""
    try:
        send_samples.apply_async((instance_id, topic, run, 0), retry=True, retry_policy=QUICK_PUBLISH)
    except OperationalError:
        log.warning("queue.unreachable", instance_id=instance_id)


@shared_task(name="brokers.send_samples", ignore_result=True)
def send_samples(instance_id: str, topic: str, run: str, turn: int) -> None:
    """Send one turn of sample data, and put the next one into the queue."""
    close_old_connections()
    if send_turn(instance_id, topic, run, turn):
        send_samples.apply_async(
            (instance_id, topic, run, turn + 1),
            countdown=SAMPLE_EVERY_S,
            expires=SAMPLE_EVERY_S + SAMPLE_TURN_EXPIRES_S,
            retry=True,
            retry_policy=QUICK_PUBLISH,
        )


def ask_to_push(instance_id: str, topic: str, run: str) -> None:
    """The port `instances.interfaces.push_limit`: put the first turn and the end into the queue."""
    try:
        end_push_of.apply_async((instance_id, run), countdown=PUSH_ENDS_AFTER_S, retry=True, retry_policy=QUICK_PUBLISH)
        push.apply_async((instance_id, topic, run, 0), retry=True, retry_policy=QUICK_PUBLISH)
    except OperationalError:
        log.warning("queue.unreachable", instance_id=instance_id)
        end_push(instance_id, run)


@shared_task(name="brokers.push", ignore_result=True)
def push(instance_id: str, topic: str, run: str, turn: int) -> None:
    """Send one turn beyond the demo client's quota, and put the next one into the queue."""
    close_old_connections()
    if push_turn(instance_id, topic, run, turn):
        push.apply_async(
            (instance_id, topic, run, turn + 1), countdown=PUSH_EVERY_S, retry=True, retry_policy=QUICK_PUBLISH
        )


@shared_task(name="brokers.end_push", ignore_result=True)
def end_push_of(instance_id: str, run: str) -> None:
    """Take the demo client's quota back, if its last turn has not."""
    close_old_connections()
    end_push(instance_id, run)


@shared_task(name="brokers.sample_lags", ignore_result=True)
def sample_lags() -> int:
    """Take a sample of groups' lags, so that their trend does not depend on a watcher."""
    close_old_connections()
    return lag_sampling.sample_all(time.time_ns() // 1_000_000)


@shared_task(name="brokers.sample_storage", ignore_result=True)
def sample_storage() -> int:
    """Take a sample of what instances store, for the forecast of when they are full."""
    close_old_connections()
    return storage_sampling.sample_all(time.time_ns() // 1_000_000)


@shared_task(name="brokers.work", ignore_result=True)
def carry_on() -> int:
    """Look at rebalances and rolling restarts for most of a second, so that one step follows the other."""
    close_old_connections()
    end_s = time.monotonic() + WORK_ROUND_S
    result = job_runner.reconcile_once()
    while result and time.monotonic() < end_s:
        time.sleep(WORK_LOOK_EVERY_S)
        result = job_runner.reconcile_once(measure=False)
    return result


@shared_task(name="brokers.work_on_clusters", ignore_result=True)
def work_on_clusters() -> int:
    """Look at clusters that are being formed or retired."""
    close_old_connections()
    return job_runner.reconcile_clusters()


@shared_task(name="brokers.read_audit", ignore_result=True)
def read_audit() -> int:
    """Bring what Kafka clients administered into their tenants' audit logs."""
    close_old_connections()
    return reader.read_everywhere()
