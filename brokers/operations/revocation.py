"""Revocation of the certificates of a host's brokers, and its publication to the other brokers (decision 168).

A task publishes the dates in the rows every few seconds, and thereby repeats failed publications. Brokers read the
document as often.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import structlog
from django.db.models import Q

from brokers.contract.revoked_certificates import RevokedCertificates
from brokers.infra import zookeeper
from brokers.infra.certificates import CERTIFICATE_DAYS, CLOCK_SKEW
from brokers.models import Broker, Cluster, Host
from brokers.provisioning.publisher import PublishConflict, Publisher
from tenants.containment import contained
from tenants.errors import DomainError

log = structlog.get_logger(__name__)

# Certificates that are older than this have expired.
PUBLISHED_FOR = timedelta(days=CERTIFICATE_DAYS) + CLOCK_SKEW


def revoke_for_host(host: Host, now: datetime) -> int:
    """Revokes the certificates of all brokers that the host has or had; returns their number.

    Certificates for clients are not among them: other processes do not trust those.
    """
    brokers = Broker.objects.filter(host=host).filter(Q(removed_at=None) | Q(removed_at__gt=now - PUBLISHED_FOR))
    return brokers.update(certificates_void_before=now)


def valid_from_s(broker: Broker) -> int:
    """Returns the date of issue from which on certificates of a broker are accepted, in seconds since 1970.

    Dates in certificates have whole seconds; a certificate of the second of the revocation counts as revoked.
    """
    dates = [date for date in (broker.certificates_void_before, broker.removed_at) if date is not None]
    return math.floor(max(dates).timestamp()) + 1 if dates else 0


def issue_date(broker: Broker, now: datetime) -> datetime:
    """Returns the date of issue of a new certificate of a broker, which is late enough not to be revoked."""
    return max(now, datetime.fromtimestamp(valid_from_s(broker), UTC))


def revocation_documents(now: datetime) -> dict[str, RevokedCertificates]:
    """Returns the documents of all clusters with revoked certificates that have not expired, by cluster id."""
    published_since = now - PUBLISHED_FOR
    brokers = Broker.objects.filter(Q(certificates_void_before__gt=published_since) | Q(removed_at__gt=published_since))
    dates_by_cluster: dict[str, dict[int, int]] = {}
    for broker in brokers.only("cluster_id", "number", "certificates_void_before", "removed_at"):
        dates_by_cluster.setdefault(broker.cluster_id, {})[broker.number] = valid_from_s(broker)
    return {
        cluster_id: RevokedCertificates(valid_from_by_broker)
        for cluster_id, valid_from_by_broker in dates_by_cluster.items()
    }


def publish(now: datetime) -> int:
    """Publishes the documents that differ from the published ones; returns their number. The next round repeats
    failures.
    """
    documents_by_cluster = revocation_documents(now)
    count = 0
    for cluster in _active_clusters(documents_by_cluster):
        with contained("certificates.revocation_failed", cluster_id=cluster.pk):
            count += _publish_to_cluster(cluster, documents_by_cluster[cluster.pk])
    return count


def _active_clusters(ids: Iterable[str]) -> Iterable[Cluster]:
    return Cluster.objects.active().filter(pk__in=list(ids)).order_by("pk")


def _publish_to_cluster(cluster: Cluster, document: RevokedCertificates) -> bool:
    """Publishes the document to a cluster; True if it was not published before. A failure is logged."""
    try:
        is_new = Publisher(zookeeper.session(cluster), cluster.chroot).publish_revoked(document)
    except (DomainError, PublishConflict, *zookeeper.ERRORS) as error:
        log.warning("certificates.revocation_not_published", cluster_id=cluster.pk, reason=repr(error))
        return False
    if is_new:
        log.info("certificates.revocation_published", cluster_id=cluster.pk, brokers=sorted(document.valid_from_s))
    return is_new
