"""Documents for joined agents: the wanted state of a host, settings and secrets of its brokers, and certificates.

The documents of a host have nothing about brokers of other hosts, or about clusters without a broker on the host.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.serialization import Encoding
from django.conf import settings
from django.db import transaction

from brokers.agent.broker_certificates import internal_identity, route_hosts
from brokers.agent.database import ClusterFacts, cluster_facts, process_settings
from brokers.choices import ProcessState
from brokers.contract.agent_requests import DOCUMENT_VERSION, Purpose
from brokers.contract.certificates import ROUTE_KEYS_FILE
from brokers.contract.version import VERSION
from brokers.infra import certificates
from brokers.infra.upstream_login import upstream_of
from brokers.limits import AGENT_POLL_S_MAX, AGENT_POLL_S_MIN, AGENT_POLLS_PER_S_MAX
from brokers.models import AgentCertificate, Broker, Host
from brokers.operations import revocation
from brokers.operations.agent_access import AgentRefused
from brokers.operations.joining import require_valid_key
from tenants import audit
from tenants.actors import Actor
from tenants.errors import Unavailable

# Names of the document's files, by the field of a broker's settings that refers to the file.
NAMED_FILES: Final = {
    "control_secret_file": "control_secret-{cluster_id}",
    "zookeeper_credentials_file": "zookeeper_broker",
    "zookeeper_ca_file": "zookeeper_ca.pem",
    "zookeeper_certificate_file": "zookeeper_broker.pem",
}
# Fields that refer to files with a fixed path on the host: the agent fills them in.
OWN_FILES: Final = ("tls_certificate_file", "internal_certificate_file", "internal_ca_file")


def wanted_document(host: Host) -> dict[str, Any]:
    """Returns the wanted state of a host. Raises `Unavailable` if a secret of its brokers cannot be read."""
    rows = Broker.objects.filter(host=host).select_related("cluster", "host").order_by("number")
    # The process of a removed broker may still run, if the agent was away when it was to be stopped.
    ended_states = (ProcessState.STOPPED, ProcessState.UNKNOWN)
    current_brokers = list(rows.exclude(removed_at__isnull=False, process_state__in=ended_states))
    facts, hosts = cluster_facts(broker.cluster_id for broker in current_brokers), route_hosts(current_brokers)
    files: dict[str, str] = {}
    brokers = [
        _broker_document(broker, facts[broker.cluster_id], hosts[broker.pk], files) for broker in current_brokers
    ]
    if any(broker["settings"] for broker in brokers):
        _add_file(files, ROUTE_KEYS_FILE, settings.TLS_DIR / ROUTE_KEYS_FILE)
    return {
        "version": DOCUMENT_VERSION,
        "product_version": VERSION,
        "host": {
            "id": host.pk,
            "name": host.name,
            "bind_host": host.bind_host,
            "port_first": host.port_first,
            "port_last": host.port_last,
            "data_dirs": host.data_dirs,
            "version": host.version,
        },
        "brokers": brokers,
        "files": files,
        "poll_after_s": poll_after_s(Host.objects.filter(removed_at=None).exclude(agent_joined_at=None).count()),
    }


def tag_of(document: dict[str, Any]) -> str:
    """Returns the ETag of a document."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def poll_after_s(agents: int) -> float:
    """Returns the pause between two polls of an agent in seconds; it grows with the number of agents, within bounds."""
    return min(AGENT_POLL_S_MAX, max(AGENT_POLL_S_MIN, agents / AGENT_POLLS_PER_S_MAX))


@transaction.atomic
def issue_for_broker(*, acting: Actor, host: Host, broker_id: str, purpose: str, csr_pem: str, now: datetime) -> str:
    """Returns a certificate of a broker of the host, in PEM, for a key that the host has made.

    Its names are determined here, not by the signing request. Raises `AgentRefused` for a broker of another host,
    `Invalid` for a wrong signing request, and `Unavailable` without the authority's key.
    """
    # Locked, so that no certificate is issued during a revocation of the host's certificates but dated after it.
    locked = Host.objects.select_for_update(no_key=True).get(pk=host.pk)
    if not AgentCertificate.objects.filter(host=locked, revoked_at=None).exclude(first_used_at=None).exists():
        raise AgentRefused("The certificate is revoked.", code="certificate_revoked", host=host)
    broker = broker_of(host, broker_id)
    key = require_valid_key(csr_pem)
    hosts: tuple[str, ...]
    try:
        if purpose == Purpose.INTERNAL:
            identity = internal_identity(broker)
            name, hosts = identity.file_name.removesuffix(".pem"), (host.internal_host, *certificates.LOCAL_HOSTS)
            issued_at = revocation.issue_date(broker, now)
            certificate = certificates.issue_certificate(
                settings.INTERNAL_TLS_DIR, name, key, _without_duplicates(hosts), issued_at, process=identity
            )
        else:
            clients = route_hosts([broker])[broker.pk]
            name, hosts = f"{broker.cluster_id}-{broker.number}", (*clients, *certificates.LOCAL_HOSTS)
            certificate = certificates.issue_certificate(settings.TLS_DIR, name, key, _without_duplicates(hosts), now)
    except OSError:
        raise Unavailable("The web process has no key of the authority (ca_key.pem).", retry_after_s=60) from None
    after = {"purpose": purpose, "expires_at": certificate.not_valid_after_utc}
    audit.record(acting, "broker.certificate_issued", broker, None, after)
    return certificate.public_bytes(Encoding.PEM).decode()


def broker_of(host: Host, broker_id: str) -> Broker:
    """Returns a broker of a host. Raises `AgentRefused` for any other one, whether it exists or not."""
    row = Broker.objects.select_related("cluster", "host").filter(pk=broker_id, host=host, removed_at=None).first()
    if row is None:
        raise AgentRefused("The broker is not one of this host.", code="other_host", host=host, http_status=403)
    return row


def _broker_document(broker: Broker, cluster: ClusterFacts, hosts: list[str], files: dict[str, str]) -> dict[str, Any]:
    """Returns the document's part about a broker, and adds its files to `files`; a removed broker has no settings."""
    is_removed = broker.removed_at is not None
    return {
        "id": broker.pk,
        "number": broker.number,
        "cluster_id": broker.cluster_id,
        "wanted": broker.wanted,
        "restart_generation": broker.restart_generation,
        "process_restart_generation": broker.process_restart_generation,
        "process_state": broker.process_state,
        "settings": None if is_removed else _broker_settings(broker, cluster, files),
        "internal_hosts": [] if is_removed else [broker.host.internal_host],
        "route_hosts": [] if is_removed else hosts,
        "internal_certificate_from_s": revocation.valid_from_s(broker),
    }


def _broker_settings(broker: Broker, cluster: ClusterFacts, files: dict[str, str]) -> dict[str, Any]:
    process_fields = asdict(process_settings(broker, cluster))
    if process_fields["upstream_file"]:
        process_fields["upstream_file"] = name = f"upstream-{broker.cluster_id}.json"
        files[name] = upstream_of(broker.cluster.kafka).to_json()
    for field, pattern in NAMED_FILES.items():
        if process_fields[field]:
            name = pattern.format(cluster_id=broker.cluster_id)
            _add_file(files, name, Path(process_fields[field]))
            process_fields[field] = name
    return {name: value for name, value in process_fields.items() if name not in OWN_FILES}


def _add_file(files: dict[str, str], name: str, file: Path) -> None:
    """Adds a file to the document; a missing file is left out, and the broker that needs it reports the reason."""
    if name in files:
        return
    try:
        files[name] = file.read_text(encoding="ascii")
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise Unavailable("A secret of the host's brokers cannot be read.", retry_after_s=5) from error


def _without_duplicates(hosts: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(hosts))
