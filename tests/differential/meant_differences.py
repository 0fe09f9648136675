"""Intended differences from Apache Kafka 3.9.1, each with its reason.

A difference names its script and labels (shell patterns), and replaces the recorded answer before ours is compared with
it. A test removes stale ones: each must change a recorded answer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from brokers.engine.partitions.topic_bounds import BOUNDS
from brokers.engine.partitions.topic_config import ConfigSource
from brokers.engine.protocol.apis import ADVERTISED_TENANT
from tests.differential.difference import AS_LISTED, NOTHING_DROPPED, ONE_ERROR_CODE, Difference
from tests.differential.meant_addresses import ADDRESSES
from tests.differential.meant_authenticating import AUTHENTICATING
from tests.differential.meant_coordinating import COORDINATING
from tests.differential.play import CLOSED


def expected(script: str, label: str, recorded: Any) -> Any:
    """Returns the answer that our broker should give: the recorded one, or an intended difference."""
    return applied(DIFFERENCES, script, label, recorded)


def applied(differences: Iterable[Difference], script: str, label: str, recorded: Any) -> Any:
    answer = copy.deepcopy(recorded)
    for difference in differences:
        if difference.concerns(script, label):
            answer = difference.ours(answer)
    return answer


def _advertised(answer: Any) -> Any:
    if "api_keys" not in answer or len(answer["api_keys"]) < 2:
        return answer
    theirs = {entry.get("api_key", 0): entry for entry in answer["api_keys"]}
    answer["api_keys"] = []
    answer.pop("finalized_features_epoch", None)  # nothing is gated by features
    for api_key, (first, last) in ADVERTISED_TENANT.items():
        their = theirs[api_key]
        assert their.get("min_version", 0) <= first, api_key
        assert last <= their.get("max_version", 0), api_key
        versions = {"api_key": int(api_key), "min_version": first, "max_version": last}
        answer["api_keys"].append({name: value for name, value in versions.items() if value})
    return answer


def _whole_batches(answer: Any) -> Any:
    for topic in answer.get("responses", []):
        for partition in topic["partitions"]:
            partition["records"] = [entry for entry in partition["records"] if "cut_bytes" not in entry]
    return answer


def _partition_error(code: int) -> Callable[[Any], Any]:
    """The first record set of a produce is refused with this code, as the shape of its batch is."""

    def ours(answer: Any) -> Any:
        if answer == "no answer":
            topic = {"partition_responses": [{}]}
        else:
            topic = answer["responses"][0]
        partition = topic["partition_responses"][0]
        partition.pop("log_start_offset", None)
        partition |= {"error_code": code, "base_offset": -1}
        return answer

    return ours


def _first(field: str, **changes: Any) -> Callable[[Any], Any]:
    """Changes to the first entry of a list."""

    def ours(answer: Any) -> Any:
        answer[field][0] |= changes
        return answer

    return ours


def _first_deleted(shown: Any) -> Any:
    shown["answer"]["responses"][0]["topic_id"] = "id"
    return shown


def _constant(answer: Any) -> Callable[[Any], Any]:
    return lambda _: answer


def _null_records(script: str, label: str, topic: str) -> Difference:
    refused = {"error_code": 87, "base_offset": -1}
    return Difference(
        script,
        label,
        "a record set of null is never answered there; a client would wait for ever",
        _constant({"responses": [{"name": topic, "partition_responses": [refused]}]}),
    )


def _without_records(answer: Any) -> Any:
    answer["answer"]["responses"][0]["partitions"][0]["aborted_transactions"] = None
    answer["records"] = []
    return answer


def _listing_refused(answer: Any) -> Any:
    answer["topics"][0]["partitions"][0]["error_code"] = 42
    return answer


def _sessionless(answer: Any) -> Any:
    answer.pop("session_id", None)
    return answer


def _produced_twice(answer: Any) -> Any:
    partitions = answer["responses"][0]["partition_responses"]
    partitions.append({**partitions[0], "base_offset": 1})
    return answer


def _produced_topic_twice(answer: Any) -> Any:
    (topic,) = answer["responses"]
    first, second = sorted(topic["partition_responses"], key=lambda partition: partition["index"])
    first["base_offset"] = 2  # both record sets of the question before were appended
    answer["responses"] = [{**topic, "partition_responses": [partition]} for partition in (first, second)]
    return answer


def _deleted_twice(answer: Any) -> Any:
    answer["topics"][0]["partitions"].insert(0, {"partition_index": 1, "low_watermark": 1})
    return answer


def _deleted_topic_twice(answer: Any) -> Any:
    (topic,) = answer["topics"]
    answer["topics"] = [{**topic, "partitions": [partition]} for partition in topic["partitions"]]
    return answer


def _without_volumes(answer: Any) -> Any:
    for result in answer["results"]:
        del result["total_bytes"], result["usable_bytes"]
    return answer


def _bounded(key: str) -> Callable[[Any], Any]:
    """Returns a function that replaces a value beyond the operator's bound by the bound."""
    bound = BOUNDS[key]

    def ours(answer: Any) -> Any:
        own = int(answer[key][0]) if key in answer else bound.default
        if own < bound.default if bound.is_minimum else own > bound.default:
            answer[key] = [str(bound.default), int(ConfigSource.STATIC_BROKER)]
        return answer

    return ours


def _listed_empty(topic: dict[str, Any]) -> Callable[[Any], Any]:
    return lambda answer: {**answer, "responses": [topic]}


def _with_brokers(answer: Any) -> Any:
    broker = {"node_id": "broker", "host": "host", "port": "port"}
    return {"brokers": [broker], "cluster_id": "cluster", "controller_id": "broker", **answer}


def _names_beside_ids(answer: Any) -> Any:
    answer = _with_brokers(answer)
    led = {"leader_id": "broker", "leader_epoch": 0, "replica_nodes": ["broker"], "isr_nodes": ["broker"]}
    answer["topics"][1:] = [{"name": "diff.metadata.other", "topic_id": "id", "partitions": [led]}]
    return answer


NO_SESSIONS = (
    "fetch sessions are not given out, which the protocol allows: full answers, session id 0, error 70 otherwise"
)
REST_ANSWERED = "one entry that cannot be asked so does not take the rest of the answer with it"

FULL_FETCHES = (
    "open",
    "open for nothing",
    "open and replace",
    "replaced by a full fetch",
    "open with an unknown session",
    "open with a negative session",
    "open with an unknown id",
)
INCREMENTAL_FETCHES = (
    "advanced*",
    "nothing asked*",
    "the same data again",
    "a partition added that is not",
    "still *",
    "forgotten",
    "out of range",
    "back in range",
    "a wrong epoch",
    "the right epoch after a wrong one",
    "an epoch again",
    "all forgotten",
    "an unknown id stays",
)
DISKS_ARE_THE_OPERATORS = "a tenant shares the brokers' disks: how large and how full they are is the operator's"
BY_NAME_WITH_ID = "a topic deleted by name is answered with its id too"
BRIEF_DELETION = "a deleted topic is forgotten before the answer goes out, so its id is as unknown as any"

DIFFERENCES: tuple[Difference, ...] = (
    *AUTHENTICATING,
    *COORDINATING,
    Difference("connection", "*software*", "only what is served is advertised", _advertised),
    Difference("connection", "the connection survives", "only what is served is advertised", _advertised),
    Difference(
        "connection", "17 *tagged fields*", "stepping over a field takes time, so they are few", lambda _: CLOSED
    ),
    Difference("fetch", "*limit *", "a fetch is cut between batches, never inside one", _whole_batches),
    *(_null_records("produce", f"v{version}: null records", f"diff.produce.v{version}") for version in range(3, 12)),
    *(_null_records("old_formats", f"v{version}: null records", f"diff.old.v{version}") for version in range(3)),
    Difference("old_formats", "v?: format ?, codec [57]", ONE_ERROR_CODE, _partition_error(87)),
    Difference("old_formats", "v?: format ?, gzip that does not inflate", ONE_ERROR_CODE, _partition_error(2)),
    Difference("old_formats", "v?: format 1, lz4 with the other checksum", ONE_ERROR_CODE, _partition_error(2)),
    Difference("old_formats", "v?: format 1, a time before all time", ONE_ERROR_CODE, _partition_error(32)),
    Difference(
        "old_formats",
        "fetch v[49]: a topic of zstd*",
        "whatever is refused has the same empty records",
        _without_records,
    ),
    Difference("old_formats", "offsets v0: a negative number of them", ONE_ERROR_CODE, _listing_refused),
    Difference("produce", "*: codec [57]", ONE_ERROR_CODE, _partition_error(87)),
    Difference("produce", "*: gzip that does not inflate", ONE_ERROR_CODE, _partition_error(2)),
    Difference("produce", "v[789]: zstd that does not inflate", ONE_ERROR_CODE, _partition_error(2)),
    Difference("produce", "v1?: zstd that does not inflate", ONE_ERROR_CODE, _partition_error(2)),
    Difference("topics", "create *: assigned, negative index", ONE_ERROR_CODE, _first("topics", error_code=39)),
    Difference("configs", "alter *: an unknown operation", ONE_ERROR_CODE, _first("responses", error_code=42)),
    *ADDRESSES,
    Difference("quotas", "describe *: match type *", ONE_ERROR_CODE, _constant({"error_code": 42, "entries": None})),
    Difference("quotas", "describe *: exactly nothing", ONE_ERROR_CODE, _constant({"error_code": 42, "entries": None})),
    Difference(
        "topics",
        "delete v6: a gone id",
        BRIEF_DELETION,
        _constant({"responses": [{"name": None, "topic_id": "id", "error_code": 100}]}),
    ),
    Difference(
        "topics",
        "delete v6: a topic by id",
        BRIEF_DELETION,
        _constant({"responses": [{"name": None, "topic_id": "id", "error_code": 100}]}),
    ),
    Difference(
        "topics",
        "delete v6: a topic",
        BY_NAME_WITH_ID,
        _first("responses", topic_id="id"),
    ),
    *(
        Difference("mutation_quotas", f"delete v6: {label}", BY_NAME_WITH_ID, _first_deleted)
        for label in ("within", "beyond", "afterwards")
    ),
    *(Difference("fetch_sessions", f"v*: {label}", NO_SESSIONS, _sessionless) for label in FULL_FETCHES),
    *(
        Difference("fetch_sessions", f"v*: {label}", NO_SESSIONS, _constant({"error_code": 70}))
        for label in INCREMENTAL_FETCHES
    ),
    Difference("produce", "*: a partition twice", NOTHING_DROPPED, _produced_twice),
    Difference("produce", "*: a topic twice", NOTHING_DROPPED, _produced_topic_twice),
    *(
        Difference(
            "produce",
            f"v{version}: a topic without partitions",
            AS_LISTED,
            _listed_empty({"name": f"diff.produce.v{version}"}),
        )
        for version in range(3, 12)
    ),
    Difference("fetch", "v[4-9]: no partitions", AS_LISTED, _listed_empty({"topic": "diff.fetch"})),
    Difference("fetch", "v1[0-2]: no partitions", AS_LISTED, _listed_empty({"topic": "diff.fetch"})),
    Difference("fetch", "v1[3-7]: no partitions", AS_LISTED, _listed_empty({"topic_id": "id"})),
    *(
        Difference("metadata", f"v1[01]: {label}", REST_ANSWERED, _with_brokers)
        for label in ("a topic by id", "an unknown id", "an id twice", "a known and an unknown id", "id and name")
    ),
    Difference("metadata", "v1[012]: neither id nor name", REST_ANSWERED, _with_brokers),
    Difference("metadata", "v12: neither id nor name", ONE_ERROR_CODE, _first("topics", error_code=42)),
    Difference("metadata", "v1[012]: by id and by name mixed", REST_ANSWERED, _names_beside_ids),
    Difference("delete_records", "*: a partition twice", NOTHING_DROPPED, _deleted_twice),
    Difference("delete_records", "*: a topic twice", NOTHING_DROPPED, _deleted_topic_twice),
    *(
        Difference(
            "delete_records",
            f"v{version}: no partitions",
            AS_LISTED,
            _constant({"topics": [{"name": f"diff.delete.v{version}"}]}),
        )
        for version in range(3)
    ),
    Difference("log_dirs", "v4: *", DISKS_ARE_THE_OPERATORS, _without_volumes),
    *(
        Difference(
            "alter_configs",
            f"v{version}: a topic twice",
            "a resource named twice is never answered there; a client would wait for ever",
            _constant(
                {
                    "responses": [
                        {"error_code": 42, "resource_type": 2, "resource_name": f"diff.alter.v{version}"},
                        {"error_code": 42, "resource_type": 2, "resource_name": f"diff.alter.v{version}"},
                    ]
                }
            ),
        )
        for version in range(3)
    ),
    *(
        Difference(
            "config_values",
            f"{key}=*",
            "tenants share the disks: beyond the operator's bound the bound is in force, and said to be",
            _bounded(key),
        )
        for key in BOUNDS
    ),
    Difference(
        "config_values",
        "min.cleanable.dirty.ratio='NaN'",
        "no log is ever as dirty as not a number: the topic would never be compacted",
        _constant({"error": 40}),
    ),
    *(
        Difference("acls", f"create_acls v?: {what}", ONE_ERROR_CODE, _constant({"results": [{"error_code": 42}]}))
        for what in ("* any", "a pattern type of match", "a principal without a type")
    ),
    Difference(
        "rights",
        "offset_for_leader_epoch v?: everything, but for ALL on TOPIC",
        "users of an instance are no brokers: CLUSTER_ACTION, which is everybody's without a rule, shows no topic",
        _constant([29]),
    ),
)
