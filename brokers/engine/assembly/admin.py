"""Responses of the admin port: health, metrics, and the figures for tenants and operators."""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from brokers.contract.upstream import UPSTREAM_LOST
from brokers.contract.version import VERSION
from brokers.engine.assembly import audit_log, bandwidth_report, connection_report, coordination_counts, instance_counts
from brokers.engine.assembly.admin_server import access_refusal
from brokers.engine.assembly.cluster_report import ClusterReport
from brokers.engine.assembly.flow_control import FlowControl
from brokers.engine.assembly.free_space_monitor import volume
from brokers.engine.assembly.instance_counts import storage_samples
from brokers.engine.assembly.internal_security import InternalSecurity
from brokers.engine.assembly.long_turns import api_name
from brokers.engine.assembly.storage_capacity import StorageCapacity
from brokers.engine.assembly.storage_shortening import StorageShortening
from brokers.engine.assembly.tenant_listeners import TenantListeners
from brokers.engine.assembly.topic_figures import replica_figures, topic_clients, topic_figures
from brokers.engine.assembly.traffic_report import throttle_samples, traffic_page
from brokers.engine.cluster.image import InstanceImage
from brokers.engine.cluster.session import ClusterSession
from brokers.engine.cluster.tree import SessionState
from brokers.engine.controller.loop import ControllerLoop
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.loop_turns import LONG_TURN_S
from brokers.engine.network.listener import Listeners
from brokers.engine.replication.roles import Roles
from brokers.engine.telemetry import metrics
from brokers.engine.telemetry.admin_http import DELETE, Reply, Request
from brokers.engine.telemetry.metrics import Sample
from brokers.engine.throttling.traffic import NEVER_MS
from brokers.native import finder as native
from brokers.native import notes

_INSTANCE: Final = re.compile(
    r"/v1/instances/(ins-[a-z0-9]{8})/(traffic|throttles|topics|topic_figures|topic_clients|bandwidth|connections)\Z"
)
_CONNECTION: Final = re.compile(r"/v1/instances/(ins-[a-z0-9]{8})/connections/([0-9]{1,18})\Z")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
TRAFFIC_STEP_MS: Final = 1_000
PARTITIONS_PER_PAGE: Final = 50


@dataclass(slots=True, eq=False)
class AdminPort:
    """Handler of the admin port. `ready_reasons` has the reasons why the broker is not ready, and the time in ms since
    when it is not.
    """

    services: BrokerServices
    listeners: Listeners
    tenant_listeners: TenantListeners
    roles: Roles
    session: ClusterSession
    controller: ControllerLoop
    security: InternalSecurity
    started_at_ms: int
    ready_reasons: dict[str, int]
    counts: coordination_counts.Counts
    storage: StorageCapacity
    flow: FlowControl
    shortening: StorageShortening
    _report: ClusterReport = field(default_factory=ClusterReport)

    def handle(self, request: Request) -> Reply:
        """Returns the reply to a request; an error reply if its peer may not make it or the path is unknown."""
        secret = self.services.access.control_secret if self.security.accepts_secret else None
        refused = access_refusal(request, cluster_id=self.security.cluster_id, secret=secret)
        if refused is not None:
            return refused
        if request.method == DELETE:
            return self._close_connection(request)
        if request.path == "/healthz":
            return Reply.json({"ok": True})
        if request.path == "/readyz":
            return self._ready()
        if request.path == "/metrics":
            return Reply(200, metrics.render(self._samples), metrics.CONTENT_TYPE)
        if request.path == "/v1/status":
            return Reply.json(self._status())
        if request.path == "/v1/cluster":
            return Reply.json(self._cluster())
        if request.path == "/v1/storage":
            return Reply.json(self._storage())
        if request.path == "/v1/traffic":
            return Reply.json(self._traffic_of_all(request))
        if request.path == "/v1/delays":
            return Reply.json(self._delays())
        if request.path == "/v1/partitions":
            return Reply.json(self._partitions(request))
        result = _INSTANCE.match(request.path)
        if result is None:
            return Reply.json({"error": "no such path"}, 404)
        instance_id, report = result.groups()
        if instance_id not in self.services.metadata.current.image.instances:
            return Reply.json({"error": "no such instance"}, 404)
        if report == "traffic":
            return Reply.json(self._traffic(instance_id, request.number("since_ms", 0)))
        if report == "throttles":
            return Reply.json(self._throttles(instance_id))
        if report == "bandwidth":
            loop_used_ms = self.listeners.loop_used_ms(instance_id)
            return Reply.json(bandwidth_report.of_instance(self.services, instance_id, loop_used_ms))
        if report == "topics":
            return Reply.json(self._topics(instance_id, request.query.get("name", "")))
        return Reply.json(self._page_of(instance_id, report, request))

    def _page_of(self, instance_id: str, report: str, request: Request) -> dict[str, Any]:
        """Returns one page of a long report. Making a page takes one turn of the event loop."""
        if report == "topic_figures":
            replicas = self.storage.use.replicas_by_topic(instance_id)
            if replicas is not None:
                return replica_figures(self.services, instance_id, self.started_at_ms, replicas)
            return topic_figures(self.services, instance_id, self.started_at_ms, after=request.query.get("after", ""))
        after, now_ms = request.number("after", 0), self.services.clock.now_ms()
        if report == "connections":
            return connection_report.connections_page(
                self.listeners, instance_id, after=after, started_at_ms=self.started_at_ms, now_ms=now_ms
            )
        return topic_clients(
            self.services.accounting.accountings.get(instance_id),
            request.query.get("name", ""),
            after=after,
            started_at_ms=self.started_at_ms,
            now_ms=now_ms,
        )

    def _close_connection(self, request: Request) -> Reply:
        """Closes the connection named in the path. The query's `started_at_ms` must be the start time of this process,
        since each process numbers its connections anew.
        """
        result = _CONNECTION.match(request.path)
        if result is None:
            return Reply.json({"error": "only GET is served"}, 405)
        instance_id, number = result.groups()
        is_ours = request.number("started_at_ms", 0) == self.started_at_ms
        if not is_ours or not connection_report.close_connection(self.listeners, instance_id, int(number)):
            return Reply.json({"error": "no such connection"}, 404)
        return Reply.json({"closed": True})

    def _ready(self) -> Reply:
        reasons = sorted(self.ready_reasons)
        if self.services.storage.table.offline_directories:
            reasons.append("a log directory is offline")
        return Reply.json({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    def _status(self) -> dict[str, Any]:
        totals = self.services.accounting.totals
        now_ms = self.services.clock.now_ms()
        image = self.services.metadata.current.image
        return {
            "broker_id": self.services.broker_id,
            "epoch": self.session.broker_epoch,
            "started_at_ms": self.started_at_ms,
            "uptime_ms": now_ms - self.started_at_ms,
            "version": VERSION,
            "compiled": native.is_installed(),
            "build": notes.of_this_host().as_json(),
            "is_controller": self.controller.is_controller,
            "controller_id": image.controller_id,
            "flow_master": bandwidth_report.flow_master(image),
            "leaders": self.roles.leaders,
            "replicas": len(self.services.storage.table),
            "instances": len(self.tenant_listeners),
            "not_ready_since_ms": self.ready_reasons,
            "unopened_listeners": self.tenant_listeners.unopened_count,
            "transactions_overdue": coordination_counts.overdue(self.services.coordination.transactions, now_ms),
            "connections": self.listeners.count,
            "connections_by_instance": instance_counts.connections_by_instance(self.listeners),
            "connections_refused": dict(sorted(self.listeners.counters.refused.items())),
            "connections_ended": dict(sorted(self.listeners.counters.ended.items())),
            "authentications_by_instance": instance_counts.authentications_by_instance(
                self.services.access.authentication
            ),
            "rss_bytes": rss_bytes(),
            "cpu_seconds": time.process_time(),
            "log_bytes": self.services.storage.table.size_bytes(),
            "log_directories": [
                {
                    "path": str(directory.path),
                    "partitions": directory.partitions,
                    "size_bytes": directory.size_bytes,
                    "offline_reason": directory.offline_reason,
                    "nearly_full": self.services.storage.table.disks[directory.path].is_short,
                    **volume(directory.path),
                }
                for directory in self.services.storage.table.directories()
            ],
            "bytes_in_total": totals.produce_bytes,
            "bytes_out_total": totals.consume_bytes,
            "requests_total": sum(totals.requests.values()),
            "loop_turns": self._loop_turns(),
            "image_failures": self.services.metadata.current.failures,
            "storage_full": self.storage.full_instances(),
        }

    def _loop_turns(self) -> dict[str, Any]:
        """Returns the number of long turns of the event loop since the start, by call and instance."""
        turns = self.services.accounting.loop_turns
        return {
            "limit_ms": round(LONG_TURN_S * 1000),
            "longest_ms": round(turns.longest_s * 1000, 1),
            "longest_of": None if turns.longest_of is None else [api_name(turns.longest_of[0]), turns.longest_of[1]],
            "by_api": {api_name(api_key): count for api_key, count in sorted(turns.by_api.items())},
            "by_instance": dict(sorted(turns.by_instance.items())),
        }

    def _cluster(self) -> dict[str, Any]:
        """Returns the cluster as this broker's metadata has it."""
        counts = self._report.counts(self.services.metadata.current.image)
        filled = self.storage.instances_above()
        return {
            "broker_id": self.services.broker_id,
            # A gateway knows its cluster without its upstream, too.
            "ready": not self.ready_reasons.keys() - {UPSTREAM_LOST},
            "storage": None if filled is None else [list(line) for line in filled],
            "storage_shortened": self.shortening.recent_deletions(),
            **counts,
        }

    def _storage(self) -> dict[str, Any]:
        """Returns the storage used by every instance of the cluster, if this broker is the controller."""
        lines = self.storage.instances_above(percent=0)
        return {"storage": None if lines is None else [[use.instance_id, use.used_bytes] for use in lines]}

    def _partitions(self, request: Request) -> dict[str, Any]:
        return self._report.page(
            self.services.metadata.current.image,
            state=request.query.get("state", "all"),
            broker=request.number("broker", 0) if "broker" in request.query else None,
            after=request.query.get("after", ""),
            limit=request.number("limit", PARTITIONS_PER_PAGE),
        )

    def _traffic(self, instance_id: str, since_ms: int) -> dict[str, Any]:
        now_ms = self.services.clock.now_ms()
        accounting = self.services.accounting.accountings.get(instance_id)
        return {
            "now_ms": now_ms,
            "step_ms": TRAFFIC_STEP_MS,
            "alive_since_ms": self.started_at_ms,
            "points": [] if accounting is None else accounting.traffic.points(since_ms, now_ms),
        }

    def _traffic_of_all(self, request: Request) -> dict[str, Any]:
        return traffic_page(
            self.services,
            self.started_at_ms,
            since_ms=request.number("since_ms", 0),
            until_ms=request.number("until_ms", NEVER_MS),
            after=request.query.get("after", ""),
        )

    def _throttles(self, instance_id: str) -> dict[str, Any]:
        now_ms = self.services.clock.now_ms()
        accounting = self.services.accounting.accountings.get(instance_id)
        return {
            "now_ms": now_ms,
            "entries": [] if accounting is None else accounting.ledger.as_json(now_ms),
            "totals": {} if accounting is None else accounting.ledger.totals_json(),
        }

    def _delays(self) -> dict[str, Any]:
        """Returns the longest delay of each minute, for every instance whose clients were recently delayed here."""
        now_ms = self.services.clock.now_ms()
        result = (
            (instance_id, accounting.traffic.delayed_minutes(now_ms))
            for instance_id, accounting in self.services.accounting.accountings
        )
        return {"now_ms": now_ms, "instances": {instance_id: minutes for instance_id, minutes in result if minutes}}

    def _topics(self, instance_id: str, name: str) -> dict[str, Any]:
        """Returns the partitions of one topic, or of all without a `name`, that this broker leads, under the tenant's
        topic names; at a gateway, the sizes of replicas; the storage used by all topics; and recent failures of
        auto-creation.
        """
        topics: dict[str, list[dict[str, int]]] = {}
        instance = self.services.metadata.current.image.instances[instance_id]
        names = sorted(instance.topic_names.items())
        if name:
            topic = instance.topics.get(name.encode())
            names = [] if topic is None else [(topic.name, name)]
        for internal_name, user_name in names:
            rows = []
            for assigned in instance.topics[user_name.encode()].partitions:
                partition = self.services.storage.table.get(internal_name, assigned.index)
                if partition is not None and partition.is_leader and not partition.offline:
                    rows.append(
                        {
                            "partition": partition.index,
                            "leader_epoch": partition.leader_epoch,
                            "log_start_offset": partition.log_start_offset,
                            "high_watermark": partition.high_watermark,
                            "size_bytes": partition.size_bytes,
                            "replicas": len(assigned.target),
                        }
                    )
            if rows:
                topics[user_name] = rows
        accounting = self.services.accounting.accountings.get(instance_id)
        return {
            "topics": topics,
            "hidden": {} if name else self._hidden_bytes(instance),
            "stored_bytes": self.storage.use.measure_now(instance_id),
            "replicas": {
                topic: list(sizes.items())
                for topic, sizes in (self.storage.use.replicas_by_topic(instance_id) or {}).items()
                if name in ("", topic)
            },
            "storage_full": self.storage.is_full(instance_id),
            "refused_topics": []
            if accounting is None
            else accounting.refused_topics.as_json(self.services.clock.now_ms()),
        }

    def _hidden_bytes(self, instance: InstanceImage) -> dict[str, int]:
        """Returns the bytes of all replicas of deleted topics that can be restored and that this broker leads."""
        result: dict[str, int] = {}
        for topic in instance.hidden.values():
            for assigned in topic.partitions:
                partition = self.services.storage.table.get(topic.name, assigned.index)
                if partition is not None and partition.is_leader and not partition.offline:
                    result[topic.user_name] = result.get(topic.user_name, 0) + partition.size_bytes * len(
                        assigned.target
                    )
        return result

    def _samples(self) -> Iterator[Sample]:
        services, table, counters = self.services, self.services.storage.table, self.listeners.counters
        totals = services.accounting.totals
        gauges = (
            ("penstock_broker_connections", "Open client connections.", self.listeners.count),
            ("penstock_broker_leaders", "Partitions led by this broker.", self.roles.leaders),
            ("penstock_broker_replicas", "Partitions held by this broker.", len(table)),
            ("penstock_broker_instances", "Instances served by this broker.", len(self.tenant_listeners)),
            ("penstock_broker_is_controller", "1 if this broker is controller.", int(self.controller.is_controller)),
            ("penstock_broker_log_bytes", "Bytes of all logs on disk.", table.size_bytes()),
            ("penstock_broker_offline_log_directories", "Log directories given up after a failure.",
             len(table.offline_directories)),
            ("penstock_broker_offline_replicas", "Partitions held on log directories that were given up.",
             sum(1 for partition in table if partition.offline)),
            ("penstock_broker_zookeeper_connected", "1 while the ZooKeeper session is connected.",
             int(self.session.state is SessionState.CONNECTED)),
            ("penstock_broker_uptime_seconds", "Seconds since the start.",
             (services.clock.now_ms() - self.started_at_ms) / 1000),
            ("process_resident_memory_bytes", "Resident memory.", rss_bytes()),
        )  # fmt: skip
        for name, text, value in gauges:
            yield Sample(name, "gauge", text, value)
        yield from self._listener_samples()
        yield from self._cluster_samples()
        counters_total = (
            ("penstock_broker_produced_bytes", "Record-batch bytes accepted.", totals.produce_bytes),
            ("penstock_broker_consumed_bytes", "Record-batch bytes sent.", totals.consume_bytes),
            ("penstock_broker_delays", "Requests that were delayed by a quota.", totals.delays),
            ("penstock_broker_malformed_requests", "Connections closed for malformed bytes.", counters.malformed),
            ("penstock_broker_request_faults", "Requests that failed by our own mistake.", counters.faults),
            ("process_cpu_seconds", "CPU time used.", time.process_time()),
        )
        for name, text, value in counters_total:
            yield Sample(name, "counter", text, value)
        cleaned = table.cleaned
        cleaner = (
            ("penstock_broker_cleaner_runs", "Runs of the log cleaner.", cleaned.runs),
            ("penstock_broker_cleaner_failures", "Runs that an error ended.", cleaned.failures),
            ("penstock_broker_cleaner_bytes_before", "Bytes of segments that were cleaned.", cleaned.bytes_before),
            ("penstock_broker_cleaner_bytes_after", "Bytes left of them.", cleaned.bytes_after),
            ("penstock_broker_cleaner_io_bytes", "Bytes read and written by the cleaner.", cleaned.io_bytes),
            ("penstock_broker_cleaner_cpu_seconds", "CPU time of the cleaning processes.", cleaned.cpu_s),
        )
        for name, text, value in cleaner:
            yield Sample(name, "counter", text, value)
        text = "Partitions that are not cleaned any more, for what is wrong in their logs."
        yield Sample("penstock_broker_uncleanable_partitions", "gauge", text, cleaned.uncleanable)
        text = "Partitions whose last cleaning failed and is tried again."
        yield Sample("penstock_broker_cleaner_waiting_partitions", "gauge", text, cleaned.waiting)
        for api_key, count in sorted(totals.requests.items()):
            label = (("api", api_name(api_key)),)
            yield Sample("penstock_broker_requests", "counter", "Requests by call.", count, label)
        yield from self._turn_samples()
        yield from coordination_counts.samples(
            self.counts, services.coordination.groups, services.coordination.transactions, services.clock.now_ms()
        )

    def _turn_samples(self) -> Iterator[Sample]:
        text = "Metadata images that a part of the broker could not take."
        yield Sample("penstock_broker_image_failures", "counter", text, self.services.metadata.current.failures)
        yield from storage_samples(self.storage, self.shortening, self.services.storage.table)
        yield from bandwidth_report.samples(self.flow)
        yield from throttle_samples(self.services.accounting.accountings)
        text = "Turns of the event loop over 10 ms, by the call that was served."
        for api_key, count in sorted(self.services.accounting.loop_turns.by_api.items()):
            yield Sample("penstock_broker_long_loop_turns", "counter", text, count, (("api", api_name(api_key)),))
        text = "Turns of the event loop over 10 ms, by the instance that was served."
        for name, count in sorted(self.services.accounting.loop_turns.by_instance.items()):
            yield Sample("penstock_broker_long_loop_turns_of_instance", "counter", text, count, (("instance", name),))

    def _listener_samples(self) -> Iterator[Sample]:
        yield from instance_counts.connection_samples(self.listeners)
        yield from instance_counts.authentication_samples(self.services.access.authentication)
        yield from audit_log.samples(self.services.access.audit)
        text = "Instances whose port could not be opened."
        yield Sample("penstock_broker_unopened_listeners", "gauge", text, self.tenant_listeners.unopened_count)
        text = "Attempts to open an instance's port that failed."
        yield Sample("penstock_broker_listener_failures", "counter", text, self.tenant_listeners.failures)

    def _cluster_samples(self) -> Iterator[Sample]:
        """Yields samples of the cluster on the controller only, so that a sum over brokers is right."""
        if not self.controller.is_controller:
            return
        counts = self._report.counts(self.services.metadata.current.image)
        for name, text in (
            ("under_replicated", "Partitions of the cluster that miss a replica."),
            ("offline", "Partitions of the cluster without a leader."),
            ("under_min_isr", "Partitions of the cluster that refuse acks=all."),
            ("moving", "Partitions of the cluster whose replicas are being moved."),
        ):
            yield Sample(f"penstock_cluster_{name}_partitions", "gauge", text, counts[name])


def rss_bytes() -> int:
    """Returns the resident memory of this process in bytes; where there is no /proc, the highest so far."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 (read at every scrape)
            return int(statm.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
