"""Publishes the documents that brokers apply (instances, certificates, OAuth, allow-lists), one way, from PostgreSQL to
ZooKeeper (CKA-40).

A document is written by compare-and-set together with its change node (ZK-32): either both exist, or none. A document
that is already published is not written again, so all methods are idempotent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency
from kazoo.security import ACL

from brokers.contract import documents, paths
from brokers.contract.certificates import CertificatesDocument
from brokers.contract.documents import InstanceAck, InstanceDocument, InstanceTopicDocument
from brokers.contract.oauth import CONFIGURATION, OAuthDocument
from brokers.contract.revoked_certificates import RevokedCertificates
from brokers.infra import zookeeper
from tenants.containment import contained

COMPARE_AND_SET_ATTEMPTS_MAX = 8
# Stands for the generation of a document that must be written again: it differs from all generations.
OUTDATED = -1


class PublishConflict(Exception):
    """Raised if a later generation was written, the document kept changing between read and write, or the instance is
    not published. The caller must read again.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Acks:
    """The brokers' acknowledgements of a generation. `refused` holds the reason why a port is not open,
    `routes_not_open` the affected routes. Brokers in `unable` cannot protect a route as configured, with any port.
    Brokers in `down` have no session.
    """

    confirmed: frozenset[int] = frozenset()
    refused: Mapping[int, str] = field(default_factory=dict)
    routes_not_open: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    unable: Mapping[int, str] = field(default_factory=dict)
    waiting: frozenset[int] = frozenset()
    down: frozenset[int] = frozenset()

    @property
    def is_complete(self) -> bool:
        """True if every live broker has confirmed, and at least one is live."""
        return bool(self.confirmed) and not self.waiting and not self.refused and not self.unable

    def refuses(self, broker: int, route: str) -> bool:
        """True if a route needs another port on the broker. A broker that names no routes has a single port."""
        return broker in self.refused and route in (self.routes_not_open.get(broker) or (route,))


class Publisher:
    """Writer of the documents of one cluster. Raises kazoo's errors (`zookeeper.ERRORS`) without ZooKeeper."""

    def __init__(self, client: KazooClient, chroot: str) -> None:
        self._client = client
        self._chroot = chroot

    # --- instances ------------------------------------------------------------------------------------------------

    def read_instance(self, instance_id: str) -> InstanceDocument | None:
        """Returns the published document of an instance, or None."""
        try:
            raw, _ = self._client.get(self._absolute(paths.instance(instance_id)))
        except NoNodeError:
            return None
        return InstanceDocument.from_json(raw)

    def generations(self) -> dict[str, int]:
        """Returns the published generation by instance id, for the sweep: all documents in one round of asynchronous
        reads.

        `OUTDATED` stands for a document that cannot be read, or without a tenant, written before documents named it.
        """
        try:
            ids = self._client.get_children(self._absolute(paths.INSTANCES))
        except NoNodeError:
            return {}
        pending = {
            instance_id: self._client.get_async(self._absolute(paths.instance(instance_id))) for instance_id in ids
        }
        result: dict[str, int] = {}
        for instance_id, future in pending.items():
            try:
                raw = future.get()[0]
            except NoNodeError:
                continue
            document = _parse_or_none(instance_id, raw)
            if document is None or document.tenant_id is None:
                result[instance_id] = OUTDATED
            else:
                result[instance_id] = document.generation
        return result

    def publish_instance(self, instance_id: str, document: InstanceDocument) -> bool:
        """Publishes the document and its port nodes; True if something was written.

        Raises `PublishConflict` if a later generation is already published.
        """
        path = self._absolute(paths.instance(instance_id))
        raw = document.to_json()
        for _ in range(COMPARE_AND_SET_ATTEMPTS_MAX):
            current = self._read(path)
            if current is not None:
                published = _parse_or_none(instance_id, current[0])
                if published is not None and published.generation > document.generation:
                    raise PublishConflict(f"generation {document.generation} of {instance_id} is out of date")
                if current[0] == raw:
                    return False
            if self._write_instance(instance_id, document, raw, None if current is None else current[1]):
                return True
        raise PublishConflict(f"the document of {instance_id} keeps changing")

    def _write_instance(self, instance_id: str, document: InstanceDocument, raw: bytes, version: int | None) -> bool:
        ports = [paths.instance_port(broker, port) for broker, port in document.leased_ports]
        self._ensure_nodes([paths.CHANGES, paths.INSTANCES, paths.INSTANCE_ACKS])
        self._ensure_nodes([port.rpartition("/")[0] for port in ports])
        missing_paths = self._missing_paths(
            [*ports, paths.instance_acks(instance_id), paths.instance_topics(instance_id)]
        )
        transaction = self._client.transaction()
        if version is None:
            self._add_creation(transaction, paths.instance(instance_id), raw)
        else:
            transaction.set_data(self._absolute(paths.instance(instance_id)), raw, version)
        for path in ports:
            if path in missing_paths:
                self._add_creation(transaction, path, instance_id.encode())
            else:
                transaction.set_data(self._absolute(path), instance_id.encode())
        for path in (paths.instance_acks(instance_id), paths.instance_topics(instance_id)):
            if path in missing_paths:
                self._add_creation(transaction, path, b"")
        self._add_creation(transaction, paths.CHANGE_PREFIX, _change_node(f"instances/{instance_id}"), sequence=True)
        return _commit(transaction)

    def publish_certificates(self, instance_id: str, certificates: Mapping[str, CertificatesDocument]) -> None:
        """Publishes the certificates of a published instance, by route."""
        parent = paths.instance_certificates(instance_id)
        try:
            existing = self._client.get_children(self._absolute(parent))
        except NoNodeError:
            existing = []
        if not existing and (not certificates or self._read(self._absolute(paths.instance(instance_id))) is None):
            return
        self._ensure_nodes([paths.CHANGES, parent])
        for name in sorted({*existing, *certificates}):
            self._publish_certificates(instance_id, name, certificates.get(name))

    def _publish_certificates(self, instance_id: str, name: str, document: CertificatesDocument | None) -> None:
        relative = paths.instance_route_certificates(instance_id, name)
        raw = None if document is None else document.to_json()
        for _ in range(COMPARE_AND_SET_ATTEMPTS_MAX):
            current = self._read(self._absolute(relative))
            if raw == (None if current is None else current[0]):
                return
            transaction = self._client.transaction()
            if current is None:
                self._add_creation(transaction, relative, raw)
            elif raw is None:
                transaction.delete(self._absolute(relative), current[1])
            else:
                transaction.set_data(self._absolute(relative), raw, current[1])
            change = _change_node(f"instances/{instance_id}/certificates/{name}")
            self._add_creation(transaction, paths.CHANGE_PREFIX, change, sequence=True)
            if _commit(transaction):
                return
        raise PublishConflict(f"the certificates of {instance_id} keep changing")

    def announce(self, instance_id: str) -> None:
        """Announces an instance's document to the brokers again; harmless if they have read it."""
        self._ensure_nodes([paths.CHANGES])
        self._client.create(
            self._absolute(paths.CHANGE_PREFIX),
            _change_node(f"instances/{instance_id}"),
            acl=_acl(paths.CHANGE_PREFIX),
            sequence=True,
        )

    def unpublish_instance(self, instance_id: str, ports: Iterable[tuple[int, int]]) -> None:
        """Removes an instance's documents, so that brokers close its listeners. Its topics are not deleted. `ports` are
        pairs of a broker and a port.
        """
        self._client.delete(self._absolute(paths.instance(instance_id)), recursive=True)
        self._client.delete(self._absolute(paths.instance_creations(instance_id)), recursive=True)
        for broker, port in ports:
            path = self._absolute(paths.instance_port(broker, port))
            existing = self._read(path)
            if existing is not None and existing[0].decode() == instance_id:
                self._delete(path)
        self.announce(instance_id)

    def forget_acks(self, instance_id: str) -> None:
        """Removes the acknowledgements of a deleted instance."""
        self._client.delete(self._absolute(paths.instance_acks(instance_id)), recursive=True)

    # --- acknowledgements of brokers ------------------------------------------------------------------------------

    def await_acks(
        self,
        instance_id: str,
        generation: int,
        brokers: Iterable[int],
        *,
        timeout_s: float,
        on_progress: Callable[[Acks], object] = lambda acks: None,
    ) -> Acks:
        """Waits until every live broker of `brokers` has answered for `generation`, or until the timeout; returns the
        acknowledgements. If no broker is live it does not wait: a waiting worker does nothing for other clusters.

        Watches end the wait immediately after the last answer; watches that remain have no effect. `on_progress` is
        called with the acknowledgements before every wait.
        """
        broker_set = frozenset(brokers)
        deadline_s = time.monotonic() + timeout_s
        has_changed = threading.Event()

        def wake(_event: object) -> None:
            has_changed.set()

        while True:
            has_changed.clear()
            acks = self._read_acks(instance_id, generation, broker_set, wake)
            remaining_s = deadline_s - time.monotonic()
            if acks.is_complete or acks.refused or acks.unable or not acks.waiting or remaining_s <= 0:
                return acks
            on_progress(acks)
            has_changed.wait(remaining_s)

    def _read_acks(self, instance_id: str, generation: int, broker_set: frozenset[int], wake: object) -> Acks:
        self._ensure_nodes([paths.BROKER_IDS])
        live_brokers = frozenset(
            int(name) for name in self._client.get_children(self._absolute(paths.BROKER_IDS), watch=wake)
        )
        confirmed, refused, not_open, unable = set(), {}, {}, {}
        for broker in broker_set & live_brokers:
            path = self._absolute(paths.instance_ack(instance_id, broker))
            if self._client.exists(path, watch=wake) is None:
                continue
            existing = self._read(path)
            ack = None if existing is None else InstanceAck.from_json(existing[0])
            if ack is None or ack.generation < generation:
                continue
            if ack.unable:
                unable[broker] = ack.unable
            elif ack.error:
                refused[broker], not_open[broker] = ack.error, ack.not_open
            else:
                confirmed.add(broker)
        answered_brokers = confirmed | refused.keys() | unable.keys()
        return Acks(
            confirmed=frozenset(confirmed),
            refused=refused,
            routes_not_open=not_open,
            unable=unable,
            waiting=(broker_set & live_brokers) - answered_brokers,
            down=broker_set - live_brokers,
        )

    # --- OAuth ----------------------------------------------------------------------------------------------------

    def publish_oauth(self, instance_id: str, document: OAuthDocument | None) -> bool:
        """Publishes the instance's OAuth document, None = none; True if something was written.

        Raises `PublishConflict` while the instance itself is not published.
        """
        folder, relative = paths.instance_oauth(instance_id), paths.instance_oauth_node(instance_id, CONFIGURATION)
        path, raw = self._absolute(relative), None if document is None else document.to_json()
        for _ in range(COMPARE_AND_SET_ATTEMPTS_MAX):
            current = self._read(path)
            if (None if current is None else current[0]) == raw:
                return False
            if self._read(self._absolute(paths.instance(instance_id))) is None:
                raise PublishConflict(f"{instance_id} is not published")
            self._ensure_nodes([paths.CHANGES, folder])
            transaction = self._client.transaction()
            if raw is None:
                assert current is not None, "answered above"
                transaction.delete(path, current[1])
            elif current is None:
                self._add_creation(transaction, relative, raw)
            else:
                transaction.set_data(path, raw, current[1])
            change = _change_node(f"instances/{instance_id}/oauth/{CONFIGURATION}")
            self._add_creation(transaction, paths.CHANGE_PREFIX, change, sequence=True)
            if _commit(transaction):
                return True
        raise PublishConflict(f"the OAuth document of {instance_id} keeps changing")

    def ids_without_oauth(self, instance_ids: Iterable[str]) -> set[str]:
        """Returns the instances that have no published OAuth document."""
        by_path = {paths.instance_oauth_node(instance_id, CONFIGURATION): instance_id for instance_id in instance_ids}
        return {by_path[path] for path in self._missing_paths(by_path)}

    def key_requests(self) -> list[str]:
        """Returns the instances whose key set a broker requested to be fetched again."""
        try:
            return sorted(self._client.get_children(self._absolute(paths.KEY_REQUESTS)))
        except NoNodeError:
            return []

    def forget_key_request(self, instance_id: str) -> None:
        """Deletes the brokers' request to fetch the key set of an instance again."""
        self._delete(self._absolute(paths.key_request(instance_id)))

    # --- revoked certificates -------------------------------------------------------------------------------------

    def publish_revoked(self, document: RevokedCertificates) -> bool:
        """Publishes the document of brokers' revoked certificates, without a change node, because brokers read it
        regularly; True if something was written.
        """
        path, raw = self._absolute(paths.REVOKED_CERTIFICATES), document.to_json()
        for _ in range(COMPARE_AND_SET_ATTEMPTS_MAX):
            current = self._read(path)
            if current is not None and current[0] == raw:
                return False
            self._ensure_nodes([paths.REVOKED_CERTIFICATES.rpartition("/")[0]])
            transaction = self._client.transaction()
            if current is None:
                self._add_creation(transaction, paths.REVOKED_CERTIFICATES, raw)
            else:
                transaction.set_data(path, raw, current[1])
            if _commit(transaction):
                return True
        raise PublishConflict("the document of revoked certificates keeps changing")

    # --- topics ---------------------------------------------------------------------------------------------------

    def topic_exists(self, internal_name: str) -> bool:
        return self._client.exists(self._absolute(paths.topic(internal_name))) is not None

    def topics(self) -> list[str]:
        """Returns the internal names of all topics of the cluster."""
        try:
            return sorted(self._client.get_children(self._absolute(paths.TOPICS)))
        except NoNodeError:
            return []

    def topics_of(self, instance_id: str) -> list[str]:
        """Returns the internal names of an instance's topics."""
        return [name for name in self.topics() if name.startswith(f"{instance_id}.")]

    def publish_topic(self, instance_id: str, internal_name: str, document: InstanceTopicDocument) -> bool:
        """Publishes the document of an existing topic; True if something was written."""
        relative = paths.instance_topic(instance_id, internal_name)
        path = self._absolute(relative)
        for _ in range(COMPARE_AND_SET_ATTEMPTS_MAX):
            current = self._read(path)
            if current is None and not document.has_content:
                return False
            if current is not None and InstanceTopicDocument.from_json(current[0]) == document:
                return False
            self._ensure_nodes([paths.CHANGES, paths.instance_topics(instance_id)])
            transaction = self._client.transaction()
            if current is None:
                self._add_creation(transaction, relative, document.to_json())
            else:
                transaction.set_data(path, document.to_json(), current[1])
            self._add_creation(transaction, paths.CHANGE_PREFIX, _change_node(f"topics/{internal_name}"), sequence=True)
            if _commit(transaction):
                return True
        raise PublishConflict(f"the document of {internal_name} keeps changing")

    def forget_quotas(self, instance_id: str) -> None:
        """Removes all client quotas of a deleted instance (their names contain its id)."""
        for kind in ("users", "clients", "ips"):
            root = self._absolute(f"/config/{kind}")
            if self._client.exists(root) is None:
                continue
            for name in self._client.get_children(root):
                if name.startswith(f"{instance_id}."):
                    self._client.delete(f"{root}/{name}", recursive=True)

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _absolute(self, path: str) -> str:
        return f"{self._chroot}{path}"

    def _read(self, path: str) -> tuple[bytes, int] | None:
        try:
            raw, stat = self._client.get(path)
        except NoNodeError:
            return None
        return raw, stat.version

    def _delete(self, path: str) -> None:
        try:
            self._client.delete(path)
        except NoNodeError:
            return

    def _missing_paths(self, relative: Iterable[str]) -> set[str]:
        pending = {path: self._client.exists_async(self._absolute(path)) for path in relative}
        return {path for path, future in pending.items() if future.get() is None}

    def _ensure_nodes(self, relative: Iterable[str]) -> None:
        for path in self._missing_paths(set(relative)):
            self._ensure_node(self._absolute(path))

    def _ensure_node(self, path: str) -> None:
        """Creates a node by its whole path, with its parents. Each has an access list of its own, which kazoo's
        `ensure_path` does not set.
        """
        if self._client.exists(path) is not None:
            return
        parent = path.rpartition("/")[0]
        if parent:
            self._ensure_node(parent)
        identity = zookeeper.identity()
        acl = zookeeper.kazoo_acl(identity.access.absolute_acl(path)) if identity else None
        try:
            self._client.create(path, acl=acl)
        except NodeExistsError:
            return

    def _add_creation(
        self, transaction: TransactionRequest, relative: str, raw: bytes | None, *, sequence: bool = False
    ) -> None:
        """Adds the creation of a node to a transaction; its parent must exist."""
        transaction.create(self._absolute(relative), raw or b"", acl=_acl(relative), sequence=sequence)


def _acl(relative: str) -> list[ACL] | None:
    identity = zookeeper.identity()
    return zookeeper.kazoo_acl(identity.access.acl(relative)) if identity else None


def _change_node(path: str) -> bytes:
    return documents.change_to_json([path])


def _parse_or_none(instance_id: str, raw: bytes) -> InstanceDocument | None:
    """Returns the document, or None if it cannot be read: it must be written again, and must not stop others."""
    with contained("publisher.document_unreadable", instance_id=instance_id):
        return InstanceDocument.from_json(raw)
    return None


def _commit(transaction: object) -> bool:
    """Commits a transaction; False if a node had changed since it was read. Raises the first other error."""
    results = transaction.commit()  # type: ignore[attr-defined]
    errors = [result for result in results if isinstance(result, Exception)]
    if not errors:
        return True
    for error in errors:
        if isinstance(error, BadVersionError | NodeExistsError | NoNodeError):
            return False
    real = [error for error in errors if not isinstance(error, RolledBackError | RuntimeInconsistency)]
    raise (real or errors)[0]
