"""The maximum number of rules of an instance, nested and all for one user: no turn of the event loop is long."""

from __future__ import annotations

import gc
from time import process_time
from types import SimpleNamespace
from typing import Any, Final

from brokers.contract.acls import (
    ENTRIES_MAX,
    AclDocument,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from brokers.contract.documents import InstanceDocument
from brokers.engine.access.acls import AclIndexes
from brokers.engine.access.authorizer import peer_address
from brokers.engine.access.principals import Principal
from brokers.engine.cluster.image import ClusterImage, ImageDelta, PartitionImage, TopicImage
from brokers.engine.cluster.instance_documents import InstanceDocuments
from brokers.engine.handlers.api_table import API_TABLE
from brokers.engine.handlers.context import RequestContext, TenantMetadataView
from brokers.engine.handlers.topics.metadata import metadata
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.metadata import MetadataRequest

MINE: Final = "ins-aaaaaaaa"
TOPICS: Final = 10_000
NESTED_MAX: Final = 200
# The goal is 10 ms; a machine with other work takes longer.
TURN_S_MAX: Final = 0.05


def name_of(number: int) -> str:
    """Returns a name that begins with many nested prefixes, and sorts just behind a longer one."""
    return f"{chr(97 + number % 5) * (1 + number % NESTED_MAX)}-{number}"


def rules() -> dict[str, AclDocument]:
    documents = {}
    for number in range(ENTRIES_MAX):
        prefix = chr(97 + number % 5) * (1 + number // 5 % NESTED_MAX)
        pattern = ResourcePattern(ResourceType.TOPIC, prefix, PatternType.PREFIXED)
        permission = Permission.DENY if number % 7 == 0 else Permission.ALLOW
        entry = AclEntry("User:alice", "*", list(AclOperation)[number % 11], permission)
        documents[pattern.node_name] = AclDocument(pattern=pattern, entries=frozenset({entry}))
    assert len(documents) == ENTRIES_MAX
    return documents


def image() -> ClusterImage:
    topics = {}
    for number in range(TOPICS):
        user_name = name_of(number)
        internal = f"{MINE}.{user_name}"
        partitions = (PartitionImage(0, (1,), leader=1, isr=(1,), version=0),)
        topics[internal] = TopicImage(internal, user_name, MINE, number.to_bytes(16, "big"), partitions, {})
    document = InstanceDocument(generation=1, produce_bps=1, consume_bps=1, capacity_bytes=1)
    acls = InstanceDocuments({MINE: rules()})
    return ClusterImage("c").with_changes(ImageDelta(topics=dict(topics), instances={MINE: document}, acls=acls))


def turns_of(answer: Any) -> tuple[Any, list[float]]:
    """Returns the response, and the duration of each turn of the event loop."""
    turns_s = []
    while True:
        began_s = process_time()
        try:
            answer.send(None)
        except StopIteration as end:
            return end.value, [*turns_s, process_time() - began_s]
        turns_s.append(process_time() - began_s)


def test_metadata_of_ten_thousand_topics_is_decided_in_short_turns() -> None:
    present = image()
    services: Any = SimpleNamespace(
        metadata=SimpleNamespace(current=SimpleNamespace(image=present)),
        access=SimpleNamespace(acl_indexes=AclIndexes()),
    )
    view = TenantMetadataView(object(), present, Principal("alice", MINE))
    call = RequestContext(services, view, API_TABLE[ApiKey.METADATA], 12, "", peer_address("127.0.0.1"))
    began_s = process_time()
    view.rights(services.access.acl_indexes, call.address)
    indexed_s = process_time() - began_s
    request = MetadataRequest(topics=None, include_topic_authorized_operations=True)

    gc.collect()
    gc.disable()  # a collection of this process must not count as part of a turn
    try:
        began_s = process_time()
        answer = metadata(call, request)
        first_s = process_time() - began_s
        response, turns_s = turns_of(answer)
    finally:
        gc.enable()

    shown = len(response.topics)
    longest_s = max(first_s, *turns_s)
    print(f"indexed in {indexed_s * 1e3:.1f} ms, {shown} shown, {len(turns_s)} turns, longest {longest_s * 1e3:.1f} ms")
    assert 0 < shown < TOPICS
    assert len(turns_s) >= TOPICS // 1_000
    assert max(indexed_s, longest_s) < TURN_S_MAX
