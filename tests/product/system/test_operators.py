"""A cluster that is grown, balanced, shrunk and restarted during traffic, without an error for clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.product.system.fleet import QUIET, broker_process, program_process, traffic, watched
from tests.product.system.operator import Operator
from tests.testkit.stack import Stack
from tests.testkit.tenancy import size_of_run
from tests.testkit.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

# Topic -> (partitions, copies). 18 partitions; acceptance asks for 300.
IN_THE_SUITE = 18
SIXTHS = size_of_run("PENSTOCK_DRAIN_PARTITIONS", IN_THE_SUITE) // 6
# Of three kinds. An instance has 600 partitions at most: for 300 replicas on one broker of four most have three.
PAIRS, WIDES = (3, 2) if 6 * SIXTHS <= IN_THE_SUITE else (1, 4)
PARTITIONS = {"op-pair": (PAIRS * SIXTHS, 2), "op-wide": (WIDES * SIXTHS, 3), "op-solo": (SIXTHS, 1)}
WITHIN_S = 90.0 + SIXTHS
# Hundreds of partitions on a machine of two cores that does other things too: what counts is that it goes on.
PATIENCE = 1 if 6 * SIXTHS <= IN_THE_SUITE else 3
PAUSE_S_MAX = 10.0 * PATIENCE
# A broker that is killed is missed when its session ends, and its only copies when it is back.
KILLED_S_MAX = 20.0 * PATIENCE
AWAY_S_MAX = 3.0
# How many moves a broker takes part in at a time: few enough that a drain lasts until everybody was killed.
MOVES_AT_ONCE = 3


@pytest.fixture(scope="module")
def operator(stack: Stack) -> Operator:
    return Operator(stack)


@pytest.fixture(scope="module")
def cluster(operator: Operator) -> str:
    (result,) = operator.get("/operator/clusters")["items"]
    return str(result["id"])


@pytest.fixture(scope="module")
def topics(stack: Stack) -> Iterator[str]:
    """Creates topics of one, two and three replicas; returns the bootstrap servers."""
    bootstrap = stack.open_bootstrap()
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    wanted = [NewTopic(name, count, factor) for name, (count, factor) in PARTITIONS.items()]
    for made in admin.create_topics(wanted).values():
        try:
            made.result(30)
        except KafkaException as refused:
            # A second try finds what the first one did not get rid of.
            if refused.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    yield bootstrap
    # librdkafka's asks no second time who the controller is: this one may wait for a broker that was removed.
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    for gone in admin.delete_topics(list(PARTITIONS)).values():
        gone.result(30)


def seen(operator: Operator, cluster: str) -> Any:
    return operator.get(f"/operator/clusters/{cluster}")


def is_whole(found: Any) -> bool:
    counts = found["counts"]
    return counts is not None and not (counts["under_replicated"] or counts["offline"] or found["silent"])


def carried_out(operator: Operator, body: dict[str, Any]) -> Any:
    """Runs a rebalance from plan to end."""
    at = begun(operator, body)
    ended(operator, at)
    return operator.get(at)


def begun(operator: Operator, body: dict[str, Any]) -> str:
    row = operator.post("/operator/rebalances", body)
    at = f"/operator/rebalances/{row['id']}"
    operator.post(f"{at}/start")
    return at


def ended(operator: Operator, at: str) -> None:
    eventually(lambda: operator.get(at)["state"] == "done", within_s=WITHIN_S, what=f"{at} to be done")


def receiver_of(operator: Operator, at: str, drained: int) -> int:
    """Returns a broker that copies, or will copy, from the drained one."""
    moves = [
        reassignment
        for state in ("running", "waiting")
        for reassignment in operator.get(f"{at}/moves?state={state}")["items"]
    ]
    arriving = [
        set(reassignment["target"]) - set(reassignment["before"])
        for reassignment in moves
        if drained in reassignment["before"]
    ]
    return min((min(item) for item in arriving if item), default=0)


def killed_in_the_middle(stack: Stack, operator: Operator, at: str, drained: int) -> None:
    """Kills the drained broker when a third is done, and a receiving one at two thirds; with more partitions than in
    the suite also, half way, the controller and the agent.
    """

    def is_due(share: float) -> bool:
        progress = operator.get(at)["progress"]
        return bool(progress["done"] >= share * progress["total"])

    receiver = receiver_of(operator, at, drained)
    eventually(lambda: is_due(1 / 3), within_s=WITHIN_S, what="a third of the moves")
    broker_process(stack, drained).kill()
    if 6 * SIXTHS > IN_THE_SUITE:
        eventually(lambda: is_due(1 / 2), within_s=WITHIN_S, what="half of the moves")
        program_process(stack, "worker", "--beat").kill()
        program_process(stack, "agent", "--host").kill()
    eventually(lambda: is_due(2 / 3), within_s=WITHIN_S, what="two thirds of the moves")
    receiver = receiver_of(operator, at, drained) or receiver
    broker_process(stack, receiver).kill()
    if 6 * SIXTHS > IN_THE_SUITE:
        progress = operator.get(at)["progress"]
        assert progress["done"] < progress["total"], "all was done before"


def test_a_broker_joins_takes_its_share_and_goes_again_under_traffic_and_kills(
    stack: Stack, operator: Operator, cluster: str, topics: str
) -> None:
    """REP-32, REP-33, CKA-47: no client gets an error, and every acknowledged record is kept, although the drained
    broker and a receiving one are killed.
    """
    (host,) = operator.get("/operator/hosts")["items"]
    with traffic(topics, PARTITIONS) as sent:
        added = operator.post("/operator/brokers", {"cluster_id": cluster, "host_id": host["id"]})
        eventually(
            lambda: any(item["is_live"] and item["id"] == added["id"] for item in seen(operator, cluster)["brokers"]),
            within_s=WITHIN_S,
            what="the added broker to join",
        )
        levelled = carried_out(operator, {"kind": "balance", "cluster_id": cluster})
        assert levelled["progress"]["done"] == levelled["progress"]["total"] > 0
        shares = {item["number"]: item["replicas"] for item in seen(operator, cluster)["brokers"]}
        assert shares[added["number"]] >= SIXTHS
        print(f"{shares[added['number']]} replicas on the broker that is to go")
        assert sent.slowest_s < PAUSE_S_MAX
        removal = {"kind": "drain", "broker_id": added["id"], "remove_broker": True, "moves_at_once": MOVES_AT_ONCE}
        at = begun(operator, removal)
        killed_in_the_middle(stack, operator, at, added["number"])
        ended(operator, at)
        removed = operator.get(at)
        assert removed["shares"]["after"][str(added["number"])]["replicas"] == 2  # its own, till it stops
    assert not sent.errors, sent.errors[:3]
    assert len(sent.acknowledged) > 100
    assert sent.slowest_s < KILLED_S_MAX
    assert not sent.unread()
    result = seen(operator, cluster)
    assert added["number"] not in [item["number"] for item in result["brokers"]]
    assert not result["counts"]["moving"]
    eventually(lambda: is_whole(seen(operator, cluster)), within_s=WITHIN_S, what="the killed one to catch up")
    eventually(
        lambda: len(stack.broker_processes()) == stack.brokers,
        within_s=WITHIN_S,
        what="the removed broker's process to end",
    )


def addresses(bootstrap: str) -> list[str]:
    """Returns the instance's current addresses: a rebalance may have changed its ports."""
    result = AdminClient({"bootstrap.servers": bootstrap, **QUIET}).list_topics(timeout=30).brokers
    return [f"{item.host}:{item.port}" for item in result.values()]


def lives(operator: Operator) -> dict[int, int]:
    """Returns the registration epoch of each broker. Raises LookupError while one has none."""
    return {item["number"]: item["status"]["epoch"] for item in operator.get("/operator/brokers")["items"]}


def test_a_rolling_restart_waits_for_every_replica_and_no_client_sees_an_error(
    operator: Operator, cluster: str, topics: str
) -> None:
    """REP-34: each broker is away for three seconds at most, from its last answer to its next."""
    eventually(lambda: is_whole(seen(operator, cluster)), within_s=WITHIN_S, what="the cluster to be whole")
    # A broker that has just started may have no report yet.
    before = eventually(lambda: lives(operator), within_s=WITHIN_S, what="every broker's epoch to be told")
    with traffic(topics, PARTITIONS) as sent, watched(addresses(topics)) as away:
        row = operator.post("/operator/rolling_restarts", {"cluster_id": cluster})
        at = f"/operator/rolling_restarts/{row['id']}"
        eventually(lambda: operator.get(at)["state"] == "done", within_s=WITHIN_S, what="the rolling restart")
    assert not sent.errors, sent.errors[:3]
    assert sent.slowest_s < PAUSE_S_MAX
    assert max(away.values()) <= AWAY_S_MAX, away
    assert not sent.unread()
    assert is_whole(seen(operator, cluster))

    def all_are_others() -> bool:
        after = lives(operator)
        return all(after[number] != epoch for number, epoch in before.items())

    eventually(all_are_others, within_s=WITHIN_S, what="every broker to have registered anew")
