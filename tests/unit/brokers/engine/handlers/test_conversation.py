"""Properties of a whole connection: advertised and unknown calls, authentication, allow-lists, leaks (WIRE-10,
WIRE-14…19, CKA-7, CKA-11, CKA-12, CKA-17).
"""

from __future__ import annotations

from struct import pack

import pytest

from brokers.engine.handlers.api_table import API_TABLE, FAST_CODEC_HANDLERS
from brokers.engine.protocol.apis import ADVERTISED_INTERNAL, ADVERTISED_TENANT, APIS, ApiKey
from brokers.engine.protocol.codec import encode_response
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fields import message_class
from brokers.engine.protocol.messages.metadata import MetadataRequest
from brokers.engine.protocol.messages.sasl import ApiVersionsRequest, SaslHandshakeRequest
from tests.testkit.in_process import SECRET
from tests.testkit.records import batch, fetch, produce
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.conftest import MINE, THEIRS, House

SASL = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
SOFTWARE = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")


@pytest.mark.parametrize("api_key", ADVERTISED_INTERNAL)
def test_every_advertised_call_has_a_codec_and_a_handler(api_key: ApiKey) -> None:
    assert ADVERTISED_INTERNAL[api_key][1] <= APIS[api_key].version_max
    assert message_class(api_key, "response")
    assert api_key in SASL or (API_TABLE[api_key].handle is not None) != (api_key in FAST_CODEC_HANDLERS)


def test_nothing_is_handled_that_is_not_advertised() -> None:
    assert API_TABLE.keys() == ADVERTISED_INTERNAL.keys()
    assert all(api.key == key for key, api in API_TABLE.items())


@pytest.mark.parametrize("version", range(5))
async def test_every_api_versions_version_lists_what_is_served(house: House, version: int) -> None:
    answer = await house.mine.call(ApiKey.API_VERSIONS, version, SOFTWARE)

    assert {line.api_key: (line.min_version, line.max_version) for line in answer.api_keys} == ADVERTISED_TENANT


async def test_a_future_api_versions_is_answered_in_version_0_and_the_talk_goes_on(house: House) -> None:
    """WIRE-15, WIRE-17, VEC-8."""
    await house.mine.send_raw(bytes.fromhex("0000000e") + pack(">hhih", 18, 99, 7, -1) + b"\0???")

    assert await house.mine.receive_frame() == bytes.fromhex("00000007002300000001001200000004")
    assert (await house.mine.call(ApiKey.API_VERSIONS, 3, SOFTWARE)).error_code == 0


async def test_a_software_name_that_is_none_is_refused(house: House) -> None:
    request = ApiVersionsRequest(client_software_name="-", client_software_version="1")

    answer = await house.mine.call(ApiKey.API_VERSIONS, 3, request)

    assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize("call", [(0, 2), (1, 3), (11, 5), (4, 0), (56, 2), (9999, 0), (3, 13), (17, 1), (-1, 0)])
async def test_a_call_that_is_not_served_ends_the_connection(house: House, call: tuple[int, int]) -> None:
    await house.mine.send_raw(pack(">ihhih", 10, *call, 1, -1))

    assert await house.mine.is_closed()


async def test_the_cluster_sees_internal_names_and_an_instances_login_its_own(house: House) -> None:
    await house.topic()
    everything = MetadataRequest(topics=None)

    cluster = await (await house.broker.internal_client("penstock")).call(ApiKey.METADATA, 12, everything)
    owner = await (await house.broker.internal_client(MINE)).call(ApiKey.METADATA, 12, everything)

    assert f"{MINE}.orders" in [topic.name for topic in cluster.topics]
    assert [topic.name for topic in owner.topics] == ["orders"]
    assert [broker.port for broker in owner.brokers] == [house.broker.config.internal_port]


@pytest.mark.parametrize(
    ("username", "secret"), [(MINE, "wrong"), ("ins-nobody", SECRET), ("", SECRET), ("root", SECRET)]
)
async def test_a_wrong_login_is_refused_and_the_connection_ends(house: House, username: str, secret: str) -> None:
    client = await house.broker.client(house.broker.config.internal_port)

    answer = await client.log_in(username, secret)

    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await client.is_closed()


async def test_an_unknown_mechanism_is_answered_with_the_known_ones(house: House) -> None:
    client = await house.broker.client(house.broker.config.internal_port)

    answer = await client.call(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="GSSAPI"))

    assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])


async def test_old_clients_send_the_token_as_a_bare_frame(house: House) -> None:
    """WIRE-18: SaslHandshake v0."""
    client = await house.broker.client(house.broker.config.internal_port)
    await client.call(ApiKey.SASL_HANDSHAKE, 0, SaslHandshakeRequest(mechanism="PLAIN"))
    token = f"\0{MINE}\0{SECRET}".encode()

    await client.send_raw(pack(">i", len(token)) + token)

    assert await client.receive_frame() == b""
    assert (await client.call(ApiKey.METADATA, 12, MetadataRequest(topics=None))).topics == []


async def test_before_the_login_nothing_else_is_answered(house: House) -> None:
    client = await house.broker.client(house.broker.config.internal_port)

    assert (await client.call(ApiKey.API_VERSIONS, 3, SOFTWARE)).error_code == 0
    await client.send(ApiKey.METADATA, 12, MetadataRequest(topics=None))

    assert await client.is_closed()


async def test_an_allow_list_counts_for_the_next_request_of_open_connections(house: House) -> None:
    await house.topic()
    await house.allow(produce_ips=("10.0.0.0/8",))

    assert (await produce(house.mine, "orders", batch(b"a"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (await fetch(house.mine, "orders")).error_code == 0


async def test_lists_that_shut_out_everybody_here_leave_the_topic_to_the_control_plane(house: House) -> None:
    """The console acts as the instance over the internal listener, from an address that is not in the owner's lists: it
    has to see the topic, or the lists could not be changed again. A client on the tenant's port sees nothing.
    """
    await house.topic()
    owner = await house.broker.internal_client(MINE)
    await house.allow(produce_ips=("10.0.0.0/8",), consume_ips=("10.0.0.0/8",))

    async def seen_by(client: WireClient) -> list[str | None]:
        answer = await client.call(ApiKey.METADATA, 12, MetadataRequest(topics=None))
        return [topic.name for topic in answer.topics]

    assert await seen_by(house.mine) == []
    assert await seen_by(owner) == ["orders"]


async def test_no_answer_names_an_instance(house: House) -> None:
    """No response on a tenant port has the id of another instance or the internal prefix (CKA-17)."""
    await house.topic()
    await house.broker.create_topic(house.theirs, "secret")
    client = house.mine
    for api_key, request in {
        ApiKey.API_VERSIONS: (3, SOFTWARE),
        ApiKey.METADATA: (12, MetadataRequest(topics=None, include_topic_authorized_operations=True)),
    }.items():
        version, message = request
        answer = await client.call(api_key, version, message)
        frame = encode_response(api_key, version, answer)
        assert MINE.encode() not in frame
        assert THEIRS.encode() not in frame
        assert b"secret" not in frame
