"""Intended differences of three brokers from three of Apache Kafka 3.9.1, each with its reason."""

from __future__ import annotations

from typing import Any

from tests.differential.difference import ONE_ERROR_CODE, Difference
from tests.differential.meant_coordinating import REPORTED_IN_EACH, REPORTED_IN_EACH_AS_WELL
from tests.differential.meant_differences import applied

AT_ONCE = "an assignment that cannot be is refused at once, instead of made as far as it goes (observed-3.9.1)"
LEADERS_ANSWER = "followers answer only consumers with a rack: the others' share of the bandwidth is at the leaders"
COMMITTED_BY_THE_ISR = "what everybody in sync has is committed, also where they are fewer than a topic wants (DEC-11)"
DECIDED = "an outcome that is decided is told at once, not once every partition has its marker (TXN-10)"
WRONG_BROKER_FIRST = "who asks the wrong broker is told so, whatever else is wrong"
ANY_BROKER = "every broker carries out what its operator asks for, the controller or not (decision 64)"

RATES_ARE_SETTINGS = (
    "rates of throttled replicas can be changed: they are not shown as read-only, nor without a default"
)
HONOURED = "a key that brokers do not go by is refused, instead of kept and shown without its value"


def expected(script: str, label: str, recorded: Any) -> Any:
    """Returns the answer that our brokers should give: the recorded one, or an intended difference."""
    return applied(DIFFERENCES, script, label, recorded)


def _reported_in_each(_: Any) -> Any:
    return {"topics": [{"name": "trio.elsewhere", "partitions": [{"committed_offset": -1, "error_code": 16}]}]}


def _not_made(answer: Any) -> Any:
    return {"topics": [{"name": answer["topics"][0]["name"], "error_code": 39}]}


def _elected_anyway(answer: Any) -> Any:
    answer["replica_election_results"][0]["partition_result"] = [{"error_code": 84}]
    return answer


def _asked_a_follower(answer: Any) -> Any:
    """Answers as a broker without a replica: the partition is led elsewhere."""
    topic = answer["responses"][0]
    refused = {"error_code": 6, "high_watermark": -1, "aborted_transactions": None, "records": []}
    topic["partitions"] = [refused]
    return answer


def _asked_a_follower_that_says_who_leads(answer: Any) -> Any:
    answer = _asked_a_follower(answer)
    answer["responses"][0]["partitions"][0]["current_leader"] = {"leader_id": "B", "leader_epoch": "second"}
    return answer | {"node_endpoints": [{"node_id": "B", "host": "host", "port": "port"}]}


def _written_to_too_few(answer: Any) -> Any:
    answer["responses"][0]["partition_responses"][0]["error_code"] = 20
    return answer


def _committed(answer: Any) -> Any:
    partition = answer["responses"][0]["partitions"][0]
    partition |= {"high_watermark": 18, "last_stable_offset": 18}
    partition["records"] = [f"{offset}+2 first" for offset in range(0, 18, 2)]
    return answer


def _committed_end(answer: Any) -> Any:
    answer["topics"][0]["partitions"][0]["offset"] = 18
    return answer


def _unknown_election(answer: Any) -> Any:
    answer["error_code"] = 42
    answer["replica_election_results"][0]["partition_result"] = [{"error_code": 42}]
    return answer


def _as_settings(answer: Any) -> Any:
    """The lines of rates, of the one broker and of all."""
    for whose, lines in answer.items():
        for name, line in lines.items():
            if name.endswith(".replication.throttled.rate"):
                line[1] = False
                line[4] += [[name, str(2**63 - 1), 5]] if whose == "A" else []
    return answer


def _refused(answer: Any) -> Any:
    return [[42, *line[1:]] for line in answer]


DIFFERENCES: tuple[Difference, ...] = (
    *(
        Difference("creation", f"create v*: {what}", AT_ONCE, _not_made)
        for what in ("a broker there is none of", "a negative broker", "a partition twice", "no broker")
    ),
    *(
        Difference("fencing", f"A: fetch v{version}, {epoch}", LEADERS_ANSWER, ours)
        for version, ours in (
            (11, _asked_a_follower),
            (12, _asked_a_follower),
            (13, _asked_a_follower),
            (17, _asked_a_follower_that_says_who_leads),
        )
        for epoch in ("no epoch", "the second", "minus two")
    ),
    Difference("min_isr", "too few after the append", COMMITTED_BY_THE_ISR, _written_to_too_few),
    Difference("min_isr", "too few: read", COMMITTED_BY_THE_ISR, _committed),
    Difference("min_isr", "too few: end", COMMITTED_BY_THE_ISR, _committed_end),
    Difference("elections", "v?: at another broker", ANY_BROKER, _elected_anyway),
    Difference("elections", "v?: a kind of election *", ONE_ERROR_CODE, _unknown_election),
    Difference(
        "reassignments",
        "at another broker",
        ANY_BROKER,
        lambda _: {"responses": [{"name": "trio.moves", "partitions": [{}]}]},
    ),
    Difference("prepared", "commit: end v?, abort", DECIDED, lambda _: {"error_code": 48}),
    Difference("prepared", "abort: end v?, commit", DECIDED, lambda _: {"error_code": 48}),
    Difference("elsewhere", "init v?, time-out 0", WRONG_BROKER_FIRST, lambda answer: {**answer, "error_code": 16}),
    Difference(
        "elsewhere",
        "fetch v1",
        REPORTED_IN_EACH,
        _reported_in_each,
    ),
    *(
        Difference(
            "elsewhere",
            f"fetch v{version}",
            REPORTED_IN_EACH_AS_WELL,
            lambda answer: answer | _reported_in_each(answer),
        )
        for version in (2, 3)
    ),
    Difference("broker_configs", "*, then", RATES_ARE_SETTINGS, _as_settings),
    Difference("broker_configs", "an unknown key*, only checked", HONOURED, _refused),
    Difference("reassignments", "list: at another broker", ANY_BROKER, lambda _: {}),
)
