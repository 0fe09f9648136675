"""Names of decoded messages are mapped as their fields declare; what names another instance is dropped."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.fields import Direction, FieldSpec, Names, int32, message_class, struct, text
from brokers.engine.protocol.layout import slots_of
from brokers.engine.protocol.mapping import (
    NAME_CHARACTERS_MAX,
    NO_NODE,
    ForeignName,
    MessageMapping,
    NodeAddress,
    StructMapping,
    ToTenant,
    ToUpstream,
    UndeclaredField,
    _struct_mapping,
    mapping_of,
)
from brokers.engine.protocol.messages import groups, metadata, topics
from brokers.engine.upstream.versions import REVIEWED
from tests.unit.brokers.engine.protocol.strategies import messages

PREFIX, OTHER = "ins-aaaaaaaa.", "ins-bbbbbbbb."
NODES = {1: NodeAddress("gateway", 19_001), 2: NodeAddress("gateway", 19_002)}
TO_UPSTREAM = ToUpstream(PREFIX)
TO_TENANT = ToTenant(PREFIX, "cluster", NODES)
PREFIXED = (Names.TOPIC, Names.GROUP, Names.TRANSACTIONAL_ID, Names.COORDINATOR_KEY)


def messages_of_all(direction: Direction) -> st.SearchStrategy[tuple[int, int, Any]]:
    calls = [(int(key), version) for key, (low, high) in REVIEWED.items() for version in range(low, high + 1)]
    return st.sampled_from(calls).flatmap(
        lambda call: messages(message_class(call[0], direction), call[1]).map(lambda message: (*call, message))
    )


def named(message: Any, version: int) -> list[tuple[Names, Any]]:
    """Returns all names in a message, in their order; lists one by one."""
    found: list[tuple[Names, Any]] = []
    for slot in slots_of(type(message), version):
        value = getattr(message, slot.name)
        if not slot.is_present or value is None:
            continue
        is_list = slot.spec.kind == "array"
        item: FieldSpec = slot.spec.inner if is_list else slot.spec
        for each in value if is_list else [value]:
            if item.kind == "nested":
                found += named(each, version)
            elif item.names is not None:
                found.append((item.names, each))
    return found


@given(messages_of_all("request"))
def test_mapping_a_request_and_back_changes_no_name(sample: tuple[int, int, Any]) -> None:
    api_key, version, message = sample
    before = [name for name in named(message, version) if name[0] in PREFIXED]
    mapping = mapping_of(api_key, "request", version)
    mapping.apply(message, TO_UPSTREAM)
    upstream = [name for name in named(message, version) if name[0] in PREFIXED]
    assert upstream == [(names, PREFIX + value) for names, value in before]
    mapping.apply(message, TO_TENANT)
    assert [name for name in named(message, version) if name[0] in PREFIXED] == before


@given(messages_of_all("response"))
def test_mapping_a_response_from_and_to_the_upstream_changes_no_name(sample: tuple[int, int, Any]) -> None:
    api_key, version, message = sample
    before = [name for name in named(message, version) if name[0] in PREFIXED]
    mapping = mapping_of(api_key, "response", version)
    mapping.apply(message, TO_UPSTREAM)
    mapping.apply(message, TO_TENANT)
    assert [name for name in named(message, version) if name[0] in PREFIXED] == before


@given(messages_of_all("response"))
def test_a_response_with_another_instances_names_yields_none_of_them(sample: tuple[int, int, Any]) -> None:
    api_key, version, message = sample
    mapping = mapping_of(api_key, "response", version)
    mapping.apply(message, ToUpstream(OTHER))
    mapping.apply(message, TO_TENANT)
    left = named(message, version)
    assert not [value for names, value in left if names in PREFIXED]
    assert {value for names, value in left if names is Names.NODE} <= {NO_NODE, *NODES}


@given(messages_of_all("response"))
def test_mapping_in_pieces_gives_the_same_message(sample: tuple[int, int, Any]) -> None:
    api_key, version, message = sample
    whole = deepcopy(message)
    mapping = mapping_of(api_key, "response", version)
    mapping.apply(message, TO_TENANT)
    assert list(mapping.in_pieces(whole, TO_TENANT)) == []
    assert whole == message


def test_addresses_are_those_of_the_gateway_and_unknown_nodes_have_none() -> None:
    response = metadata.MetadataResponse(
        brokers=[
            metadata.MetadataResponseBroker(node_id=1, host="10.0.0.1", port=9_092, rack="zone-1"),
            metadata.MetadataResponseBroker(node_id=7, host="10.0.0.7", port=9_092),
        ],
        controller_id=7,
        cluster_id="theirs",
        topics=[
            metadata.MetadataResponseTopic(
                name=PREFIX + "orders",
                partitions=[
                    metadata.MetadataResponsePartition(
                        leader_id=2, replica_nodes=[7, 2], isr_nodes=[2], offline_replicas=[7]
                    )
                ],
            )
        ],
    )
    mapping_of(ApiKey.METADATA, "response", 11).apply(response, TO_TENANT)
    assert [(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers] == [
        (1, "gateway", 19_001, ""),
        (NO_NODE, "", NO_NODE, None),
    ]
    assert (response.controller_id, response.cluster_id) == (NO_NODE, "cluster")
    (partition,) = response.topics[0].partitions
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == (
        2, [2], [2], [],
    )  # fmt: skip


def test_a_coordinator_has_the_address_of_its_gateway() -> None:
    response = groups.FindCoordinatorResponse(node_id=2, host="10.0.0.2", port=9_092)
    mapping_of(ApiKey.FIND_COORDINATOR, "response", 3).apply(response, TO_TENANT)
    assert (response.node_id, response.host, response.port) == (2, "gateway", 19_002)


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (f"Topic '{PREFIX}orders' already exists.", "Topic 'orders' already exists."),
        (f"Topic '{OTHER}orders' already exists.", ""),
        ("Invalid value -2 for retention.ms", "Invalid value -2 for retention.ms"),
    ],
)
def test_messages_for_people_show_names_of_the_instance_only(reason: str, shown: str) -> None:
    result = topics.CreatableTopicResult(name=PREFIX + "orders", error_message=reason)
    mapping_of(ApiKey.CREATE_TOPICS, "response", 7).apply(topics.CreateTopicsResponse(topics=[result]), TO_TENANT)
    assert (result.name, result.error_message) == ("orders", shown)


def test_a_name_that_would_not_fit_with_the_prefix_is_malformed() -> None:
    request = groups.HeartbeatRequest(group_id="g" * (NAME_CHARACTERS_MAX + 1))
    with pytest.raises(MalformedRequest, match="a group has over"):
        mapping_of(ApiKey.HEARTBEAT, "request", 4).apply(request, TO_UPSTREAM)


def test_a_message_that_is_anothers_as_a_whole_is_refused() -> None:
    request = groups.HeartbeatRequest(group_id=OTHER + "g")
    with pytest.raises(ForeignName):
        mapping_of(ApiKey.HEARTBEAT, "request", 4).apply(request, TO_TENANT)


def test_a_field_that_may_name_something_and_does_not_say_so_stops_the_gateway() -> None:
    @struct
    class WithoutName:
        title: str = text()

    @struct
    class WithoutNode:
        leader_id: int = int32()

    @struct
    class OfAnUnmappedKind:
        user: str = text(names=Names.USER)

    for cls in (WithoutName, WithoutNode, OfAnUnmappedKind):
        with pytest.raises(UndeclaredField, match=cls.__name__):
            _struct_mapping(cls, 0)


def test_calls_that_nobody_has_looked_at_have_no_mapping() -> None:
    for api_key in (ApiKey.DESCRIBE_ACLS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_CLUSTER):
        with pytest.raises(UndeclaredField):
            mapping_of(api_key, "response", 0)


def test_a_message_without_names_is_left_alone() -> None:
    response = groups.HeartbeatResponse(error_code=3)
    mapping = mapping_of(ApiKey.HEARTBEAT, "response", 4)
    assert mapping == MessageMapping((), StructMapping(()))
    mapping.apply(response, TO_TENANT)
    assert response == groups.HeartbeatResponse(error_code=3)
