"""Cost of users, rights and TLS to a broker, and to Apache Kafka beside it.

  python -m benchmarks.security [--gb 0.2] [--rounds 3] [--only b,d]
                                [--kafka HOST:PORT --kafka-tls HOST:PORT --kafka-ca FILE --kafka-pids 1]

One broker has four instances: plaintext, users, TLS, and users over TLS; those with users have 200 access control
entries besides. The loads of `benchmarks.load` run on each in turn, every other round in reverse order, so that
variations of the machine affect all; memory is not filled before them. The relative cost is the ratio of two instances
in each round: its median and range. Apache Kafka needs a listener with TLS beside the open one (a PEM keystore is the
broker's own certificate file). Then the authorization decisions alone are measured in this process: nanoseconds per
produce.
"""

from __future__ import annotations

import argparse
import json
import socket
import ssl
import statistics
import tempfile
import timeit
from pathlib import Path
from typing import Any, Final

from confluent_kafka import admin

from benchmarks import environment, load
from brokers.contract.acls import (
    ANY_HOST,
    ENTRIES_MAX,
    USER_PREFIX,
    AclDocument,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from brokers.engine.access.acls import AclIndexes
from config.embedded.java import find_java
from tests.testkit.administering import let_everybody_administer
from tests.testkit.engine import HOST, EngineCluster, TestInstance
from tests.testkit.own_zookeeper import own_zookeeper
from tests.testkit.tls import make_certificate
from tests.testkit.users import alter_users, user_addition

SECURITIES: Final = ("plaintext", "sasl_plaintext", "tls", "sasl_tls")
USER, PASSWORD = "bench", "bench-secret"
# More entries take longer to create, and no longer to evaluate.
OTHER_USERS: Final = 200
REPEATED: Final = 20_000
RATIOS: Final = (("sasl_plaintext", "plaintext"), ("sasl_tls", "tls"), ("tls", "plaintext"), ("tls", "kafka tls"))


def print_figures(figures: dict[str, Any]) -> None:
    print(json.dumps(figures), flush=True)


def settings_of(instance: TestInstance, security: str, ca_file: str) -> dict[str, Any]:
    """Returns the settings of librdkafka for a client of this instance."""
    conf: dict[str, Any] = {"bootstrap.servers": instance.bootstrap}
    protocol = {"plaintext": "PLAINTEXT", "sasl_plaintext": "SASL_PLAINTEXT", "tls": "SSL", "sasl_tls": "SASL_SSL"}
    conf["security.protocol"] = protocol[security]
    if "tls" in security:
        conf["ssl.ca.location"] = ca_file
    if "sasl" in security:
        conf |= {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": USER, "sasl.password": PASSWORD}
    return conf


def grant_rights(cluster: EngineCluster, instance: TestInstance, conf: dict[str, Any]) -> None:
    """Creates a user, the rule that admits it, and entries about other users."""
    alter_users(cluster, instance, user_addition(USER, PASSWORD, instance_id=instance.id))
    let_everybody_administer(cluster, instance)
    entries = [_allowing(f"other-{number}", f"other-{number}-", "PREFIXED") for number in range(OTHER_USERS)]
    client = admin.AdminClient(conf)
    for future in client.create_acls([_allowing(USER, "*", "LITERAL"), *entries]).values():
        future.result(120)


def _allowing(user: str, topic: str, pattern_type: str) -> admin.AclBinding:
    """Returns an entry that allows a user every operation on these topics."""
    return admin.AclBinding(
        admin.ResourceType.TOPIC,
        topic,
        admin.ResourcePatternType[pattern_type],
        f"{USER_PREFIX}{user}",
        ANY_HOST,
        admin.AclOperation.ALL,
        admin.AclPermissionType.ALLOW,
    )


def negotiated_cipher(bootstrap: str, ca_file: str) -> str:
    """Returns the TLS version and cipher that a client with default settings negotiates."""
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    context = ssl.create_default_context(cafile=ca_file)
    with (
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as encrypted,
    ):
        cipher = encrypted.cipher()
        assert cipher is not None
        return f"{encrypted.version()} {cipher[0]}"


def bench_of(conf: dict[str, Any], pids: list[int], gb: float) -> load.Bench:
    return load.Bench(conf=conf, server=load.Server(pids), gb=gb, acks="1", replication_factor=1)


def measure(args: argparse.Namespace, home: Path) -> None:
    certificate = make_certificate(home / "tls")
    ca_file = str(home / "tls" / "ca.pem")
    with (
        own_zookeeper(home, find_java(home / "java")) as server,
        EngineCluster(server.address, home / "engine", certificate=certificate) as cluster,
    ):
        benches: dict[str, load.Bench] = {}
        for number, security in enumerate(args.securities.split(",")):
            instance = cluster.create_instance(f"ins-bench{number:03}", security=security)
            conf = settings_of(instance, security, ca_file)
            if "sasl" in security:
                grant_rights(cluster, instance, conf)
            if security == "tls":
                print_figures({"target": security, "negotiated": negotiated_cipher(instance.bootstrap, ca_file)})
            benches[security] = bench_of(conf, [cluster.brokers[0].pid], args.gb)
        if args.kafka_tls:
            secured = {"security.protocol": "SSL", "ssl.ca.location": args.kafka_ca}
            print_figures({"target": "kafka tls", "negotiated": negotiated_cipher(args.kafka_tls, args.kafka_ca)})
            for name, bootstrap, tls_conf in (("kafka", args.kafka, {}), ("kafka tls", args.kafka_tls, secured)):
                benches[name] = bench_of({"bootstrap.servers": bootstrap, **tls_conf}, args.kafka_pids, args.gb)
        names = args.only.split(",")
        runs_by_target = run_alternately(benches, names, args.rounds)
        for name in names:
            summaries = {target: load.summary(name, runs[name]) for target, runs in runs_by_target.items()}
            for target, figures in summaries.items():
                print_figures({"target": target, **figures})
            key = load.cost_key(name)
            for numerator, denominator in RATIOS:
                if numerator in summaries and denominator in summaries:
                    rounds = zip(runs_by_target[numerator][name], runs_by_target[denominator][name], strict=True)
                    spread = spread_of(
                        [numerator_run[key] / denominator_run[key] for numerator_run, denominator_run in rounds]
                    )
                    print_figures({"load": name, "ratio": f"{numerator} / {denominator}", **spread})


def spread_of(ratios: list[float]) -> dict[str, float]:
    """Returns the median and range of the cost ratios of the rounds."""
    sorted_ratios = sorted(ratios)
    spread = {"median": statistics.median(sorted_ratios), "least": sorted_ratios[0], "most": sorted_ratios[-1]}
    return {"rounds": len(sorted_ratios), **{name: round(ratio, 3) for name, ratio in spread.items()}}


def run_alternately(benches: dict[str, load.Bench], names: list[str], rounds: int) -> dict[str, load.Rounds]:
    """Runs as `load.interleaved`, but without filling memory, and in reverse order every other round."""
    runs_by_target: dict[str, load.Rounds] = {target: {} for target in benches}
    for bench in benches.values():
        bench.warm_up()
    for number in range(rounds):
        for target, bench in list(benches.items())[:: -1 if number % 2 else 1]:
            for name, figures in bench.run(names, lambda: None):
                runs_by_target[target].setdefault(name, []).append(figures)
    return runs_by_target


def measure_decisions() -> None:
    """Measures the authorization of a produce, which looks the topic up in the cached decisions and in the cluster's
    image; the decision itself is made once.
    """
    documents = {}
    for number in range(ENTRIES_MAX):
        pattern = ResourcePattern(ResourceType.TOPIC, f"other-{number}", PatternType.PREFIXED)
        entry = AclEntry(f"{USER_PREFIX}other-{number}", ANY_HOST, AclOperation.ALL, Permission.ALLOW)
        documents[str(number)] = AclDocument(pattern=pattern, entries=frozenset({entry}))
    indexes = AclIndexes()
    started_s = timeit.default_timer()
    rights = indexes.rights("ins-aaaaaaaa", documents, USER, HOST, everyone=True)
    index_ms = (timeit.default_timer() - started_s) * 1000
    decide = timeit.Timer(lambda: rights.allows(AclOperation.WRITE, ResourceType.TOPIC, "orders"))
    routes = {b"orders": object()}
    look_up = timeit.Timer(lambda: routes.get(b"orders"))
    print_figures(
        {
            "benchmark": "authorisation",
            "entries": ENTRIES_MAX,
            "index_made_ms": round(index_ms, 1),
            "decided_ns": round(min(decide.repeat(5, REPEATED)) / REPEATED * 1e9),
            "looked_up_ns": round(min(look_up.repeat(5, REPEATED)) / REPEATED * 1e9),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="b,d,e")
    parser.add_argument("--securities", default=",".join(SECURITIES), help="of our routes")
    parser.add_argument("--kafka", default="")
    parser.add_argument("--kafka-tls", default="")
    parser.add_argument("--kafka-ca", default="")
    parser.add_argument("--kafka-pids", type=lambda text: [int(pid) for pid in text.split(",")], default=[])
    args = parser.parse_args()
    print(environment.line(), flush=True)
    measure_decisions()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        measure(args, Path(scratch))


if __name__ == "__main__":
    main()
