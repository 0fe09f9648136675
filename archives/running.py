"""Selects the archives that are due and runs them, reading as clients of their instances."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import structlog
from cryptography.fernet import InvalidToken
from django.conf import settings
from django.db.models import Count, F, OuterRef, QuerySet, Subquery, Sum

from archives import address, database_address, job, limits, load_job, sweeping
from archives.models import Archive, ArchiveFile, ArchiveState, OnTrouble
from archives.reading import Source, Stopped, consumer_conf
from billing.models import Direction, UsageMinute
from brokers.infra.locks import Busy, exclusive_lock
from instances.lifecycle.phases import REACHABLE, Phase
from instances.models import Instance, Route
from instances.routes.kinds import PLAINTEXT, WITH_SASL, WITH_TLS
from instances.services import is_masked
from notifications import queues
from notifications.models import Queue
from tenants import outbound
from tenants.errors import Message, gettext_noop
from tenants.models import Tenant
from tenants.second_factor.adapter import cipher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger(__name__)

LOCK = "archives"
MECHANISM = "SCRAM-SHA-512"


def run_due(make_session: Callable[[], SparkSession], now: datetime) -> int:
    """Runs archives that are due and returns the number of runs.

    Each cluster has one run at a time, fair by tenant: the next archive belongs to the tenant whose archives were run
    longest ago. After `RUN_S` no further run is started, because the usage pipeline shares the worker.
    """
    deadline_s = time.monotonic() + limits.RUN_S
    advance_by_received_bytes(now)
    return sum(_run_cluster(make_session, cluster_id, now, deadline_s) for cluster_id in _due_clusters(now))


def _due_clusters(now: datetime) -> list[str | None]:
    """Returns clusters with archives that are due, ordered by the tenant that was served longest ago."""
    rows = set(_due_archives(now).order_by().values_list("instance__placement__cluster_id", "tenant_id"))
    rank_by_tenant = {
        tenant: rank
        for rank, tenant in enumerate(queues.in_service_order(Queue.ARCHIVES, {tenant for _, tenant in rows}))
    }
    return list(dict.fromkeys(cluster for cluster, _ in sorted(rows, key=lambda row: rank_by_tenant[row[1]])))


def _due_archives(now: datetime) -> QuerySet[Archive]:
    return Archive.objects.filter(next_run_at__lte=now, state__in=(ArchiveState.ACTIVE, ArchiveState.DELETING))


def advance_by_received_bytes(now: datetime) -> int:
    """Makes archives due whose topic received at least `run_after_bytes` since the last run; returns their number.

    The received bytes are summed from the minute rows of usage.
    """
    received_bytes = (
        UsageMinute.objects.filter(
            instance_id=OuterRef("instance_id"),
            topic=OuterRef("topic"),
            direction=Direction.PRODUCE,
            minute__gte=OuterRef("last_run_at"),
        )
        .order_by()
        .values("instance_id")
        .annotate(sum=Sum("bytes"))
        .values("sum")
    )
    waiting = Archive.objects.filter(
        state=ArchiveState.ACTIVE,
        run_after_bytes__isnull=False,
        last_run_at__isnull=False,
        next_run_at__gt=now,
        error="",
    )
    return (
        waiting.annotate(received_bytes=Subquery(received_bytes))
        .filter(received_bytes__gte=F("run_after_bytes"))
        .update(next_run_at=now)
    )


def _run_cluster(
    make_session: Callable[[], SparkSession], cluster_id: str | None, now: datetime, deadline_s: float
) -> int:
    """Runs the due archives of one cluster until `deadline_s` and returns the number of runs."""
    runs = 0
    archive_ids_run: list[str] = []
    try:
        with exclusive_lock(f"{LOCK} {cluster_id}"):
            while runs < limits.DUE_AT_ONCE_MAX and time.monotonic() < deadline_s:
                archive = _next_archive(cluster_id, now, archive_ids_run)
                if archive is None:
                    break
                archive_ids_run.append(archive.pk)
                queues.record_served(Queue.ARCHIVES, [archive.tenant_id])
                run_one(make_session, archive, now)
                runs += 1
    except Busy:
        log.info("archives_busy", cluster_id=cluster_id)
    return runs


def _next_archive(cluster_id: str | None, now: datetime, archive_ids_run: Collection[str]) -> Archive | None:
    """Returns the longest waiting archive of the tenant that was served longest ago."""
    due = _due_archives(now).filter(instance__placement__cluster_id=cluster_id).exclude(pk__in=archive_ids_run)
    tenants = queues.in_service_order(Queue.ARCHIVES, set(due.order_by().values_list("tenant_id", flat=True)))
    if not tenants:
        return None
    due_of_tenant = due.filter(tenant=tenants[0])
    return due_of_tenant.select_related("instance", "tenant").order_by("next_run_at", "pk").first()


def run_one(
    make_session: Callable[[], SparkSession], archive: Archive, now: datetime, **options: Any
) -> job.ArchiveRunReport:
    """Runs one archive. Errors are stored in its row and do not affect other archives.

    `options` are passed to `job.run` or `load_job.run`.
    """
    empty_report = job.ArchiveRunReport(records=0, files=0, is_caught_up=False, error="")
    try:
        if archive.state == ArchiveState.DELETING:
            _delete_with_files(archive)
            return empty_report
        if archive.instance.current_phase is Phase.DELETED:
            _mark_ended(archive)
            return empty_report
        _require_unmasked(archive)
        if archive.is_in_database:
            return load_job.run(make_session, archive, source_of(archive), database_of(archive), now, **options)
        _require_disk_quota(archive)
        return job.run(make_session, archive, source_of(archive), store_of(archive), now, **options)
    except (Stopped, outbound.OutboundFailed) as stop:
        return job.store_failure(archive, now, stop.detail)
    except address.AddressRefused as refusal:
        return job.store_failure(archive, now, str(refusal))
    except Exception as failure:  # including exceptions of Spark
        log.error("archive_broken", archive_id=archive.pk, reason=type(failure).__name__)
        return job.store_failure(archive, now, "The archive could not be run. It is tried again.")


def _require_unmasked(archive: Archive) -> None:
    """Raises `Stopped` if the topic has masks, and the archive may not read masked fields."""
    if not archive.may_unmask and is_masked(archive.instance, archive.topic):
        raise Stopped(
            Message(
                gettext_noop(
                    "The topic has masks, and the archive may not read masked fields. A member or token with"
                    " messages:unmask lets it go on with Run now; or delete it."
                )
            )
        )


def source_of(archive: Archive) -> Source:
    """Returns the access to the topic. Raises `Stopped` if no route of the instance admits the archive."""
    instance = Instance.objects.prefetch_related("routes").get(pk=archive.instance_id)
    if instance.current_phase not in REACHABLE:
        raise Stopped(Message(gettext_noop("The instance is %(phase)s."), phase=instance.phase))
    for route in instance.routes_in_order:
        # A host that the tenant configured may be any machine, including one in the internal network.
        if route.bootstrap_servers and not route.advertised_host and _admits(route, archive.username):
            return Source(
                topic=archive.topic,
                conf=consumer_conf(route.bootstrap_servers, _security_settings(route, archive)),
                value_format=archive.value_format,
                value_schema=archive.value_schema,
                skips_bad_records=archive.on_bad_record == OnTrouble.SKIP,
            )
    raise Stopped(
        "No route of the instance, at the brokers' own hosts, lets a user in by a password." if archive.username
        else "Every route of the instance at the brokers' own hosts asks for a user. Give the archive one."
    )  # fmt: skip


def _admits(route: Route, username: str) -> bool:
    return route.security in WITH_SASL if username else route.security == PLAINTEXT


def _security_settings(route: Route, archive: Archive) -> dict[str, Any]:
    conf: dict[str, Any] = {"security.protocol": route.security_protocol}
    if route.security in WITH_TLS:
        authority = settings.TLS_DIR / "ca.pem"
        conf["ssl.ca.location"] = str(authority) if authority.exists() and not route.certificate else "probe"
    if route.security in WITH_SASL:
        conf |= {
            "sasl.mechanism": MECHANISM,
            "sasl.username": archive.username,
            "sasl.password": decrypt(archive.password),
        }
    return conf


def store_of(archive: Archive) -> address.Store:
    """Returns the destination. Raises `AddressRefused`, `OutboundFailed`."""
    parsed_address = require_allowed(archive.url)
    return address.Store(
        address=parsed_address,
        root=str(settings.ARCHIVE_ROOT / archive.tenant_id) if settings.ARCHIVE_ROOT else "",
        folder=f"{archive.pk}/{archive.topic}",
        access_key_id=archive.access_key_id,
        secret_access_key=decrypt(archive.secret_access_key),
        refused=tuple(settings.OUTBOUND_REFUSED_ADDRESSES),
        private=tuple(settings.OUTBOUND_PRIVATE_ADDRESSES),
        ca_file=settings.OUTBOUND_CA_FILE,
    )


def require_allowed(url: str) -> address.Address:
    """Checks an address without any network access. Raises `AddressRefused`."""
    parsed_address = address.parse(url)
    if not parsed_address.bucket and not settings.ARCHIVE_ROOT:
        raise address.AddressRefused("There are no archives on the disks here. Name a bucket: s3://.")
    if parsed_address.endpoint:
        try:
            target = outbound.target_of(parsed_address.endpoint)
        except outbound.OutboundFailed as refusal:
            raise address.AddressRefused(f"The endpoint is refused. {refusal}") from None
        if target.path != "/":
            raise address.AddressRefused("The endpoint must have no path.")
    return parsed_address


def database_of(archive: Archive) -> database_address.Database:
    """Returns the destination in a database. Raises `AddressRefused`, `Stopped`."""
    return database_address.Database(
        address=require_allowed_database(archive.url),
        user=archive.database_user,
        password=decrypt(archive.database_password),
        refused=tuple(settings.OUTBOUND_REFUSED_ADDRESSES),
        private=tuple(settings.OUTBOUND_PRIVATE_ADDRESSES),
        ca_file=settings.OUTBOUND_CA_FILE,
    )


def require_allowed_database(url: str) -> database_address.DatabaseAddress:
    """Checks the address of a table without any network access. Raises `AddressRefused`."""
    parsed_address = database_address.parse_database(url)
    try:
        outbound.target_of(f"https://{parsed_address.authority}/")
    except outbound.OutboundFailed as refusal:
        raise address.AddressRefused(f"The server is refused. {refusal}") from None
    return parsed_address


def decrypt(ciphertext: str) -> str:
    """Decrypts a secret. Raises `Stopped`."""
    try:
        return cipher().decrypt(ciphertext.encode()).decode() if ciphertext else ""
    except InvalidToken:
        raise Stopped("A password or key of the archive cannot be read with the key of this installation.") from None


def local_disk_use(tenant: Tenant) -> tuple[int, int]:
    """Returns the total bytes and the number of files of the tenant's archives on local disks."""
    files = ArchiveFile.objects.filter(archive__tenant=tenant, archive__url__startswith="file:")
    sums = files.aggregate(bytes=Sum("bytes"), files=Count("pk"))
    return sums["bytes"] or 0, sums["files"]


def _require_disk_quota(archive: Archive) -> None:
    """Raises `Stopped` if the tenant's archives on local disks have reached a limit."""
    if not archive.is_on_our_disks:
        return
    size, files = local_disk_use(archive.tenant)
    if size >= limits.FILE_BYTES_PER_TENANT_MAX:
        gigabytes = limits.FILE_BYTES_PER_TENANT_MAX // 10**9
        raise Stopped(f"The tenant's archives on the disks here have {gigabytes} GB, which is the most.")
    if files >= limits.FILES_PER_TENANT_MAX:
        raise Stopped(
            f"The tenant's archives on the disks here have {limits.FILES_PER_TENANT_MAX:,} files, which is the most."
        )


def _mark_ended(archive: Archive) -> None:
    """Ends an archive whose instance was deleted; its files stay."""
    Archive.objects.filter(pk=archive.pk, state=ArchiveState.ACTIVE).update(state=ArchiveState.ENDED, error="")
    log.info("archive_ended", archive_id=archive.pk, instance_id=archive.instance_id)


def _delete_with_files(archive: Archive) -> None:
    """Deletes an archive with its files on local disks; files at the tenant's own address stay."""
    if archive.is_on_our_disks:
        with address.open_destination(replace(store_of(archive), folder=archive.pk)) as destination:
            sweeping.delete_folder(destination)
    archive.delete()
