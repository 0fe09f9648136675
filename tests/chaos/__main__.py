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
from tests.chaos.faults import Faults, last
from tests.chaos.verdict import differing, judge
from tests.chaos.workload import Workload
from tests.testkit.engine import EngineCluster, TestInstance
from tests.testkit.host_network import HostNetwork, missing
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
class Given:
    seed: int
    seconds: float
    verbs: Sequence[str]
    records_per_s: int = 4_000
    between_s: tuple[float, float] = (5.0, 15.0)
    away_s: tuple[float, float] = (0.5, 4.0)
    paused_s: tuple[float, float] = (5.0, 60.0)
    zookeeper_away_s: float = ZOOKEEPER_AWAY_S
    workload: str = "records"
    who: membership.Who = membership.ANYBODY
    security: str = PLAINTEXT
    hosts: str = LOCAL
    cut_s: tuple[float, float] = networks.CUT_S
    throttled_s: tuple[float, float] = networks.THROTTLED_S

    @property
    def is_secured(self) -> bool:
        return self.security != PLAINTEXT


BEGAN_S = time.monotonic()


def say(line: str) -> None:
    print(f"{time.monotonic() - BEGAN_S:7.1f}  {line}", flush=True)


def run(given: Given, zookeeper: EmbeddedZooKeeper, directory: Path) -> bool:
    """One run; whether everything that was promised held."""
    if given.hosts == LOCAL:
        return _run(given, zookeeper, directory, None)
    with HostNetwork(len(networks.ZONES)) as network:
        return _run(given, zookeeper, directory, network)


def _run(given: Given, zookeeper: EmbeddedZooKeeper, directory: Path, network: HostNetwork | None) -> bool:
    rolls = random.Random(given.seed)
    overrides = {"replica.lag.time.max.ms": "10000", "group.min.session.timeout.ms": "1000"}
    certificate = make_certificate(directory.with_name("tls")) if given.is_secured else None
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
    if given.workload != "records":
        return _run_clients(given, cluster, rolls)
    with cluster:
        instance = cluster.create_instance("ins-chaos000", security=given.security)
        settings, rights = _secure(given, cluster, instance, directory)
        admin = AdminClient({"bootstrap.servers": instance.bootstrap, **settings})
        names = ("sequenced", "plain", *([secured.GUARDED] if rights else []))
        wanted = [NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for name in names]
        for created in admin.create_topics(wanted).values():
            created.result(30)
        eventually(lambda: replicas.all_in_sync(cluster), within_s=IN_SYNC_TIMEOUT_S, what="all replicas in sync")
        loads = [
            Workload(
                instance.bootstrap,
                name,
                PARTITIONS,
                idempotent=name == "sequenced",
                records_per_s=given.records_per_s // 2,
                settings=settings,
            )
            for name in ("sequenced", "plain")
        ]
        for load in loads:
            load.start()
        unsure = secured.Unsure()
        if rights:
            unsure = rights.unsure
            rights.start()
        try:
            _disturb(given, cluster, zookeeper, rolls, loads, unsure, network)
        finally:
            if rights:
                rights.finish()
            for load in loads:
                load.finish()
        say("all replicas back in sync ...")
        eventually(lambda: replicas.all_in_sync(cluster), within_s=IN_SYNC_TIMEOUT_S, what="all replicas in sync")
        verdicts = [_judged(load) for load in loads]
        if rights:
            verdicts.append(rights.holds)
    return _equal(cluster) and all(verdicts)


def _secure(
    given: Given, cluster: EngineCluster, instance: TestInstance, directory: Path
) -> tuple[dict[str, Any], secured.Rights | None]:
    """Returns the additional settings of the workloads' clients, and the object that changes rights."""
    if not given.is_secured:
        return {}, None
    ca_file, owner = str(directory.with_name("tls") / "ca.pem"), secured.owner_of(cluster, instance)
    known_by: identities.Identities
    if given.security == "mtls":
        known_by = identities.Certificates(cluster, instance, ca_file, directory.with_name("clients"))
    else:
        known_by = identities.Passwords(cluster, instance, owner, ca_file)
    secured.allow_workloads(known_by, owner)
    rights = secured.Rights(instance.bootstrap, owner, known_by, random.Random(given.seed), say)
    return known_by.settings(identities.USER), rights


def _run_clients(given: Given, cluster: EngineCluster, rolls: random.Random) -> bool:
    """A workload of applications, whose verbs are its own."""
    with cluster:
        instance = cluster.create_instance("ins-chaos000")
        workload: exactly_once.ExactlyOnce | membership.Membership
        if given.workload == "exactly-once":
            workload = exactly_once.ExactlyOnce(cluster, instance, rolls, say, records_per_s=given.records_per_s)
        else:
            workload = membership.Membership(
                cluster, instance, rolls, say, records_per_s=given.records_per_s, who=given.who
            )
        faults = Faults(cluster, rolls, say, between_s=given.between_s, away_s=given.away_s)
        holds = workload.run(given.seconds, list(given.verbs), faults, given.between_s)
        say(f"{faults.count} faults to brokers, {faults.controllers} of them to the controller")
        eventually(lambda: replicas.all_in_sync(cluster), within_s=IN_SYNC_TIMEOUT_S, what="all replicas in sync")
    return _equal(cluster) and holds


def _disturb(
    given: Given,
    cluster: EngineCluster,
    zookeeper: EmbeddedZooKeeper,
    rolls: random.Random,
    loads: list[Workload],
    unsure: secured.Unsure,
    network: HostNetwork | None,
) -> None:
    cables = networks.NetworkFaults(network, rolls, say) if network else None
    ends_s = time.monotonic() + given.seconds
    kills = Faults(cluster, rolls, say, between_s=given.between_s, away_s=given.away_s)
    pauses = Faults(cluster, rolls, say, between_s=given.between_s, away_s=given.paused_s)
    eventually(lambda: all(load.count > 1_000 for load in loads), within_s=60, what="the load to begin")
    while time.monotonic() < ends_s:
        verb = rolls.choice(list(given.verbs))
        kills.wait()
        before = sum(load.count for load in loads)
        if verb == "kill":
            kills.kill()
        elif verb == "pause":
            unsure.begin()
            pauses.pause()
            unsure.end()
        elif verb == "rolling":
            for_all = replicas.leaders_of(cluster)
            kills.restart_all()
            say(f"  rolled over {len(for_all)} partitions")
        elif verb in networks.VERBS:
            assert cables is not None
            _disturb_network(given, cables, verb)
        else:
            unsure.begin()
            _without_zookeeper(given, cluster, zookeeper, loads)
            unsure.end()
        say(f"  {sum(load.count for load in loads) - before} records acknowledged meanwhile")
    say(f"{kills.count + pauses.count} faults, {kills.controllers + pauses.controllers} of them to the controller")


def _disturb_network(given: Given, cables: networks.NetworkFaults, verb: str) -> None:
    if verb == "cut":
        cables.cut(given.cut_s)
    else:
        cables.throttle(given.throttled_s)


def _without_zookeeper(
    given: Given, cluster: EngineCluster, zookeeper: EmbeddedZooKeeper, loads: list[Workload]
) -> None:
    epochs = replicas.leaders_of(cluster)
    before = sum(load.count for load in loads)
    say(f"ZooKeeper killed for {given.zookeeper_away_s:.0f} s")
    process = zookeeper.child.process
    assert process is not None
    process.kill()
    process.wait()
    last(given.zookeeper_away_s)
    say(f"  {sum(load.count for load in loads) - before} records acknowledged without it")
    zookeeper.start()
    wait_until(zookeeper.is_ready, child=zookeeper.child, timeout_s=30)
    began_s = time.monotonic()
    eventually(lambda: _completed(cluster), within_s=60, what="brokers registered again")
    moved = {name for name, epoch in replicas.leaders_of(cluster).items() if epochs.get(name) != epoch}
    say(f"  registered again after {time.monotonic() - began_s:.1f} s, {len(moved)} leaders changed")


def _completed(cluster: EngineCluster) -> bool:
    try:
        return all(broker.status_of("/readyz") == 200 for broker in cluster.brokers) and replicas.all_in_sync(cluster)
    except KazooException:  # our own session ended too, and another one begins
        return False


def _judged(load: Workload) -> bool:
    read = load.read()
    holds = not load.failed
    for failure in sorted(set(load.failed)):
        say(f"{load.topic}: the client gave up: {failure}")
    for partition, acknowledged in enumerate(load.acknowledged):
        verdict = judge(acknowledged.numbers(), read[partition])
        holds &= verdict.holds(idempotent=load.idempotent)
        say(
            f"{load.topic}-{partition}: {verdict.acknowledged} acknowledged, {len(verdict.lost)} lost"
            f"{f' (first {verdict.lost[0]})' if verdict.lost else ''}, {len(verdict.reordered)} reordered, "
            f"{len(verdict.repeated)} written twice"
        )
    _say_pauses(load)
    return holds


def _say_pauses(load: Workload) -> None:
    """Prints how long partitions blocked their producer; the longest with the time of its end."""
    pauses = [pause for partition in load.acknowledged for pause in partition.pauses_ms]
    if not pauses:
        return
    middle_s = statistics.median(length for _, length in pauses) / 1000
    ended_ms, most_ms = max(pauses, key=lambda pause: pause[1])
    say(
        f"{load.topic}: {len(pauses)} times a partition was away: p50 {middle_s:.2f} s, "
        f"max {most_ms / 1000:.2f} s (until {ended_ms / 1000 - BEGAN_S:.1f})"
    )


def _equal(cluster: EngineCluster) -> bool:
    """REP-19, once every broker has stopped: the same batches below the high watermark that all of them knew."""
    homes = [Path(broker.settings.data_dirs[0]) for broker in cluster.brokers]
    known = [replicas.high_watermarks(home) for home in homes]
    holds = True
    for name in sorted(set.intersection(*(set(marks) for marks in known))):
        end_offset = min(marks[name] for marks in known)
        result = differing([replicas.stored_batches(home / name, end_offset) for home in homes])
        if result is not None:
            say(f"{name}: the replicas differ from offset {result} on, below {end_offset}")
            holds = False
    say(f"replicas of {len(known[0])} partitions compared: {'equal' if holds else 'NOT equal'}")
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
    known = VERBS[options.workload]
    default = ["kill"] if options.workload == "records" else list(known)
    if options.hosts == NAMESPACES:
        if options.workload != "records" or options.security not in (None, PLAINTEXT):
            parser.error("--hosts namespaces is for the workload records on plaintext routes")
        if lacking := missing():
            parser.error(f"--hosts namespaces: {lacking}")
        known, default, options.security = (*known, *networks.VERBS), list(networks.VERBS), PLAINTEXT
    verbs = options.verbs.split(",") if options.verbs else default
    if unknown := set(verbs) - set(known):
        parser.error(f"no such verb: {', '.join(sorted(unknown))}")
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    security = PLAINTEXT
    if options.workload == "records":
        # Not of the rolls that choose faults: a seed from before means the same.
        security = options.security or random.Random(f"security {seed}").choice(SECURITIES)
    say(f"seed {seed}, {options.workload}, {security}: {', '.join(verbs)}, {options.seconds:.0f} s")
    given = Given(
        seed=seed,
        seconds=options.seconds,
        verbs=verbs,
        records_per_s=options.records_per_second or RECORDS_PER_S[options.workload],
        between_s=tuple(options.between),
        workload=options.workload,
        who=membership.Who(
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
            holds = run(given, zookeeper, home / "brokers")
        finally:
            zookeeper.child.stop()
    say("everything promised was kept" if holds else "PROMISES WERE BROKEN")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
