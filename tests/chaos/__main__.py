"""Chaos runs, `make chaos`: three brokers and two producers at full load with acks=all, while brokers are killed.

The exit code is 0 if no acknowledged record was lost or reordered and all replicas are equal, else 1. The verbs: `kill`
a random broker with kill -9, `pause` it with SIGSTOP for 5 to 60 s, `rolling` restarts one after the other, `zookeeper`
is stopped for a minute.

With `--security sasl_tls` or `mtls`, the default in two of three runs, producers sign in over TLS or show certificates,
and rights, users and revocations change meanwhile (`secured`).

With `--hosts namespaces`, for root alone, each broker is on a host of its own in a zone of its own: `cut` takes a host
off the network for 10 to 60 s, `throttle` leaves it 1 MB/s.

Other workloads: `exactly-once` (`exactly_once`) and `group` (`membership`), with verbs of their own.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.exceptions import KazooException

from brokers.contract.routes import PLAINTEXT
from config.embedded.java import find_java
from config.embedded.process import free_port, wait_until
from config.embedded.zookeeper import EmbeddedZooKeeper
from tests.chaos import exactly_once, identities, membership, networks, replicas, secured
from tests.chaos.faults import Faults, sleep
from tests.chaos.verdict import first_differing_offset, judge_records
from tests.chaos.workload import Workload
from tests.testkit.engine import EngineCluster, TestInstance
from tests.testkit.host_network import HostNetwork, missing_requirement
from tests.testkit.tls import make_certificate
from tests.testkit.waiting import eventually

VERBS = {
    "records": ("kill", "pause", "rolling", "zookeeper"),
    "exactly-once": exactly_once.VERBS,
    "group": membership.VERBS,
}
RECORDS_PER_S = {"records": 4_000, "exactly-once": 400, "group": 400}
PARTITIONS = 6
ZOOKEEPER_AWAY_S = 60.0
IN_SYNC_TIMEOUT_S = 90.0
SECURITIES = (PLAINTEXT, "sasl_tls", "mtls")
LOCAL, NAMESPACES = "local", "namespaces"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOptions:
    """Options of a run; pairs of seconds are the bounds of a random duration."""

    seed: int
    seconds: float
    verbs: Sequence[str]
    records_per_s: int = 4_000
    between_s: tuple[float, float] = (5.0, 15.0)
    away_s: tuple[float, float] = (0.5, 4.0)
    paused_s: tuple[float, float] = (5.0, 60.0)
    zookeeper_away_s: float = ZOOKEEPER_AWAY_S
    workload: str = "records"
    group_members: membership.GroupMembers = membership.DEFAULT_MEMBERS
    security: str = PLAINTEXT
    hosts: str = LOCAL
    cut_s: tuple[float, float] = networks.CUT_S
    throttled_s: tuple[float, float] = networks.THROTTLED_S

    @property
    def is_secured(self) -> bool:
        return self.security != PLAINTEXT


STARTED_S = time.monotonic()


def print_line(line: str) -> None:
    print(f"{time.monotonic() - STARTED_S:7.1f}  {line}", flush=True)


def run(options: ChaosOptions, zookeeper: EmbeddedZooKeeper, directory: Path) -> bool:
    """Runs the workload with faults; returns True if no guarantee was violated."""
    if options.hosts == LOCAL:
        return _run(options, zookeeper, directory, None)
    with HostNetwork(len(networks.ZONES)) as network:
        return _run(options, zookeeper, directory, network)


def _run(options: ChaosOptions, zookeeper: EmbeddedZooKeeper, directory: Path, network: HostNetwork | None) -> bool:
    random_ = random.Random(options.seed)
    overrides = {"replica.lag.time.max.ms": "10000", "group.min.session.timeout.ms": "1000"}
    certificate = make_certificate(directory.with_name("tls")) if options.is_secured else None
    cluster = EngineCluster(
        zookeeper.address,
        directory,
        size=3,
        overrides=overrides,
        certificate=certificate,
        broker_zookeeper_address=network.relay(zookeeper.port) if network else "",
        racks=networks.ZONES if network else (),
        hosts=networks.engine_hosts(network) if network else (),
    )
    if options.workload != "records":
        return _run_clients(options, cluster, random_)
    with cluster:
        instance = cluster.create_instance("ins-chaos000", security=options.security)
        settings, rights = _secure(options, cluster, instance, directory)
        admin = AdminClient({"bootstrap.servers": instance.bootstrap, **settings})
        names = ("sequenced", "plain", *([secured.GUARDED] if rights else []))
        new_topics = [NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for name in names]
        for created in admin.create_topics(new_topics).values():
            created.result(30)
        eventually(lambda: replicas.all_in_sync(cluster), within_s=IN_SYNC_TIMEOUT_S, what="all replicas in sync")
        loads = [
            Workload(
                instance.bootstrap,
                name,
                PARTITIONS,
                idempotent=name == "sequenced",
                records_per_s=options.records_per_s // 2,
                settings=settings,
            )
            for name in ("sequenced", "plain")
        ]
        for load in loads:
            load.start()
        uncertain_spans = secured.UncertainSpans()
        if rights:
            uncertain_spans = rights.uncertain_spans
            rights.start()
        try:
            _run_faults(options, cluster, zookeeper, random_, loads, uncertain_spans, network)
        finally:
            if rights:
                rights.finish()
            for load in loads:
                load.finish()
        print_line("all replicas back in sync ...")
        eventually(lambda: replicas.all_in_sync(cluster), within_s=IN_SYNC_TIMEOUT_S, what="all replicas in sync")
        verdicts = [_judge_load(load) for load in loads]
        if rights:
            verdicts.append(rights.holds)
    return _are_replicas_equal(cluster) and all(verdicts)


def _secure(
    options: ChaosOptions, cluster: EngineCluster, instance: TestInstance, directory: Path
) -> tuple[dict[str, Any], secured.Rights | None]:
    """Returns the additional settings of the workloads' clients, and the object that changes rights."""
    if not options.is_secured:
        return {}, None
    ca_file, owner = str(directory.with_name("tls") / "ca.pem"), secured.owner_of(cluster, instance)
    client_identities: identities.Identities
    if options.security == "mtls":
        client_identities = identities.Certificates(cluster, instance, ca_file, directory.with_name("clients"))
    else:
        client_identities = identities.Passwords(cluster, instance, owner, ca_file)
    secured.allow_workloads(client_identities, owner)
    rights = secured.Rights(instance.bootstrap, owner, client_identities, random.Random(options.seed), print_line)
    return client_identities.settings(identities.USER), rights


def _run_clients(options: ChaosOptions, cluster: EngineCluster, random_: random.Random) -> bool:
    """Runs a workload with client processes, which has verbs of its own; returns True if no guarantee was violated."""
    with cluster:
        instance = cluster.create_instance("ins-chaos000")
        workload: exactly_once.ExactlyOnce | membership.Membership
        if options.workload == "exactly-once":
            workload = exactly_once.ExactlyOnce(
                cluster, instance, random_, print_line, records_per_s=options.records_per_s
            )
        else:
            workload = membership.Membership(
                cluster,
                instance,
                random_,
                print_line,
                records_per_s=options.records_per_s,
                member_options=options.group_members,
            )
        faults = Faults(cluster, random_, print_line, between_s=options.between_s, away_s=options.away_s)
        holds = workload.run(options.seconds, list(options.verbs), faults, options.between_s)
        print_line(f"{faults.count} faults to brokers, {faults.controller_count} of them to the controller")
        eventually(lambda: replicas.all_in_sync(cluster), within_s=IN_SYNC_TIMEOUT_S, what="all replicas in sync")
    return _are_replicas_equal(cluster) and holds


def _run_faults(
    options: ChaosOptions,
    cluster: EngineCluster,
    zookeeper: EmbeddedZooKeeper,
    random_: random.Random,
    loads: list[Workload],
    uncertain_spans: secured.UncertainSpans,
    network: HostNetwork | None,
) -> None:
    network_faults = networks.NetworkFaults(network, random_, print_line) if network else None
    end_s = time.monotonic() + options.seconds
    kills = Faults(cluster, random_, print_line, between_s=options.between_s, away_s=options.away_s)
    pauses = Faults(cluster, random_, print_line, between_s=options.between_s, away_s=options.paused_s)
    eventually(lambda: all(load.count > 1_000 for load in loads), within_s=60, what="the load to begin")
    while time.monotonic() < end_s:
        verb = random_.choice(list(options.verbs))
        kills.wait()
        count_before = sum(load.count for load in loads)
        if verb == "kill":
            kills.kill()
        elif verb == "pause":
            uncertain_spans.begin()
            pauses.pause()
            uncertain_spans.end()
        elif verb == "rolling":
            leaders_before = replicas.leaders_of(cluster)
            kills.restart_all()
            print_line(f"  rolled over {len(leaders_before)} partitions")
        elif verb in networks.VERBS:
            assert network_faults is not None
            _disturb_network(options, network_faults, verb)
        else:
            uncertain_spans.begin()
            _without_zookeeper(options, cluster, zookeeper, loads)
            uncertain_spans.end()
        print_line(f"  {sum(load.count for load in loads) - count_before} records acknowledged meanwhile")
    print_line(
        f"{kills.count + pauses.count} faults, "
        f"{kills.controller_count + pauses.controller_count} of them to the controller"
    )


def _disturb_network(options: ChaosOptions, network_faults: networks.NetworkFaults, verb: str) -> None:
    if verb == "cut":
        network_faults.cut(options.cut_s)
    else:
        network_faults.throttle(options.throttled_s)


def _without_zookeeper(
    options: ChaosOptions, cluster: EngineCluster, zookeeper: EmbeddedZooKeeper, loads: list[Workload]
) -> None:
    epochs = replicas.leaders_of(cluster)
    before = sum(load.count for load in loads)
    print_line(f"ZooKeeper killed for {options.zookeeper_away_s:.0f} s")
    process = zookeeper.child.process
    assert process is not None
    process.kill()
    process.wait()
    sleep(options.zookeeper_away_s)
    print_line(f"  {sum(load.count for load in loads) - before} records acknowledged without it")
    zookeeper.start()
    wait_until(zookeeper.is_ready, child=zookeeper.child, timeout_s=30)
    began_s = time.monotonic()
    eventually(lambda: _are_brokers_ready(cluster), within_s=60, what="brokers registered again")
    moved = {name for name, epoch in replicas.leaders_of(cluster).items() if epochs.get(name) != epoch}
    print_line(f"  registered again after {time.monotonic() - began_s:.1f} s, {len(moved)} leaders changed")


def _are_brokers_ready(cluster: EngineCluster) -> bool:
    try:
        return all(broker.status_of("/readyz") == 200 for broker in cluster.brokers) and replicas.all_in_sync(cluster)
    except KazooException:  # our own session ended too, and another one begins
        return False


def _judge_load(load: Workload) -> bool:
    read = load.read()
    holds = not load.failures
    for failure in sorted(set(load.failures)):
        print_line(f"{load.topic}: the client gave up: {failure}")
    for partition, acknowledged in enumerate(load.acknowledged):
        verdict = judge_records(acknowledged.numbers(), read[partition])
        holds &= verdict.holds(idempotent=load.idempotent)
        print_line(
            f"{load.topic}-{partition}: {verdict.acknowledged} acknowledged, {len(verdict.lost)} lost"
            f"{f' (first {verdict.lost[0]})' if verdict.lost else ''}, {len(verdict.reordered)} reordered, "
            f"{len(verdict.repeated)} written twice"
        )
    _print_pauses(load)
    return holds


def _print_pauses(load: Workload) -> None:
    """Prints how long partitions blocked their producer; the longest with the time of its end."""
    pauses = [pause for partition in load.acknowledged for pause in partition.pauses_ms]
    if not pauses:
        return
    middle_s = statistics.median(length for _, length in pauses) / 1000
    ended_ms, longest_ms = max(pauses, key=lambda pause: pause[1])
    print_line(
        f"{load.topic}: {len(pauses)} times a partition was away: p50 {middle_s:.2f} s, "
        f"max {longest_ms / 1000:.2f} s (until {ended_ms / 1000 - STARTED_S:.1f})"
    )


def _are_replicas_equal(cluster: EngineCluster) -> bool:
    """True if all replicas have the same batches below their lowest high watermark (REP-19). All brokers must be
    stopped.
    """
    data_dirs = [Path(broker.settings.data_dirs[0]) for broker in cluster.brokers]
    high_watermarks = [replicas.high_watermarks(home) for home in data_dirs]
    holds = True
    for name in sorted(set.intersection(*(set(marks) for marks in high_watermarks))):
        end_offset = min(marks[name] for marks in high_watermarks)
        difference_offset = first_differing_offset(
            [replicas.stored_batches(home / name, end_offset) for home in data_dirs]
        )
        if difference_offset is not None:
            print_line(f"{name}: the replicas differ from offset {difference_offset} on, below {end_offset}")
            holds = False
    print_line(f"replicas of {len(high_watermarks[0])} partitions compared: {'equal' if holds else 'NOT equal'}")
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=None, help="drawn and printed if it is not given")
    parser.add_argument("--workload", choices=sorted(VERBS), default="records")
    parser.add_argument(
        "--verbs", help="; ".join(f"{name}: some of {','.join(verbs)}" for name, verbs in VERBS.items())
    )
    parser.add_argument("--records-per-second", type=int, default=None, help="of all producers together")
    parser.add_argument("--between", type=float, nargs=2, default=(5.0, 15.0), help="seconds between two faults")
    parser.add_argument("--client", action="append", choices=sorted(set(membership.CLIENTS)), help="group: of any kind")
    parser.add_argument("--members", type=int, default=5, help="group: as many at once as the group grows to")
    parser.add_argument("--strategy", default="range", help="group: how its members share partitions")
    parser.add_argument("--security", choices=SECURITIES, help="records: of the routes; drawn if it is not given")
    parser.add_argument(
        "--hosts", choices=(LOCAL, NAMESPACES), default=LOCAL,
        help="records: namespaces gives each broker a host and a zone of its own; verbs are then also "
        f"{','.join(networks.VERBS)}",
    )  # fmt: skip
    parser.add_argument("--keep", type=Path, help="a directory for logs and data, which is kept")
    options = parser.parse_args()
    verbs_of_workload = VERBS[options.workload]
    default_verbs = ["kill"] if options.workload == "records" else list(verbs_of_workload)
    if options.hosts == NAMESPACES:
        if options.workload != "records" or options.security not in (None, PLAINTEXT):
            parser.error("--hosts namespaces is for the workload records on plaintext routes")
        if missing := missing_requirement():
            parser.error(f"--hosts namespaces: {missing}")
        verbs_of_workload, default_verbs, options.security = (
            (*verbs_of_workload, *networks.VERBS),
            list(networks.VERBS),
            PLAINTEXT,
        )
    verbs = options.verbs.split(",") if options.verbs else default_verbs
    if unknown := set(verbs) - set(verbs_of_workload):
        parser.error(f"no such verb: {', '.join(sorted(unknown))}")
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    security = PLAINTEXT
    if options.workload == "records":
        # Not of the random_ that choose faults: a seed from before means the same.
        security = options.security or random.Random(f"security {seed}").choice(SECURITIES)
    print_line(f"seed {seed}, {options.workload}, {security}: {', '.join(verbs)}, {options.seconds:.0f} s")
    chaos_options = ChaosOptions(
        seed=seed,
        seconds=options.seconds,
        verbs=verbs,
        records_per_s=options.records_per_second or RECORDS_PER_S[options.workload],
        between_s=tuple(options.between),
        workload=options.workload,
        group_members=membership.GroupMembers(
            clients=options.client or membership.CLIENTS, members=options.members, strategy=options.strategy
        ),
        security=security,
        hosts=options.hosts,
    )
    with tempfile.TemporaryDirectory(prefix="penstock-chaos-") as scratch:
        home = options.keep or Path(scratch)
        home.mkdir(parents=True, exist_ok=True)
        java = find_java(home / "java")
        zookeeper = EmbeddedZooKeeper(home / "zookeeper", port=free_port(), java=java, log_file=home / "zookeeper.log")
        zookeeper.start()
        wait_until(zookeeper.is_ready, child=zookeeper.child, timeout_s=60)
        try:
            holds = run(chaos_options, zookeeper, home / "brokers")
        finally:
            zookeeper.child.stop()
    print_line("no guarantee was violated" if holds else "GUARANTEES WERE VIOLATED")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
