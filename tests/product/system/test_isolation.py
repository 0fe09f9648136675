"""Two tenants with a topic `orders` each: nothing of one is visible or reachable by the other (CKA-10, 17, 20)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import message_class
from brokers.engine.protocol.headers import decode_response_header
from tests.interop.clients import ConfluentKafka
from tests.product.system.attacks import requests, versions
from tests.product.system.wire import Wire
from tests.testkit.stack import Stack
from tests.testkit.tenancy import Caller, addresses, another_tenant, demo_tenant
from tests.testkit.waiting import eventually

pytestmark = pytest.mark.system

TOPIC = "orders"
SECRET_TOPIC = "unreleased-product"
MARK = b"only-for-the-owner"
# A coordinator follows from the caller's own group id, a producer id from a counter; the others name no existing topic.
SETTLED_WITHIN_S = 20
NAMES_NO_TOPIC = {ApiKey.CREATE_TOPICS, ApiKey.API_VERSIONS, ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID}


@dataclass(frozen=True, kw_only=True)
class Side:
    """One tenant with an instance that has `orders` and a few records."""

    caller: Caller
    instance: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.instance["id"])

    @property
    def bootstrap(self) -> str:
        return ",".join(addresses(self.instance))


@pytest.fixture(scope="module")
def sides(stack: Stack) -> Iterator[tuple[Side, Side]]:
    """The attacker and the victim."""
    made = []
    for caller, name, mark in ((demo_tenant(stack), "attacker", b"mine"), (another_tenant(stack), "victim", MARK)):
        side = Side(caller=caller, instance=caller.instance(name, auto_create_topics=False))
        caller.topic(side.id, TOPIC, 2)
        ConfluentKafka().produce(
            side.bootstrap, TOPIC, [(n % 2, b"k%d" % n, mark + b"%d" % n) for n in range(10)], "none"
        )
        made.append(side)
    made[1].caller.topic(made[1].id, SECRET_TOPIC)
    yield made[0], made[1]
    for side in made:
        side.caller.call("DELETE", f"/instances/{side.id}")


def metadata_of(side: Side) -> Any:
    cls = message_class(ApiKey.METADATA, "request")
    with Wire(addresses(side.instance)[0]) as wire:
        return wire.call(ApiKey.METADATA, 12, cls(topics=None))


def test_the_same_topic_name_holds_each_tenants_own_records(sides: tuple[Side, Side]) -> None:
    attacker, victim = sides
    read = ConfluentKafka().consume(attacker.bootstrap, TOPIC, 2, 10)
    assert sorted(value for log in read.values() for _, value in log) == sorted(b"mine%d" % n for n in range(10))
    assert ConfluentKafka().list_topics(attacker.bootstrap) == {TOPIC}
    assert ConfluentKafka().list_topics(victim.bootstrap) == {TOPIC, SECRET_TOPIC}


def test_no_call_of_any_version_reaches_the_other_instance(sides: tuple[Side, Side]) -> None:
    attacker, victim = sides
    before = metadata_of(victim)
    topic_ids = [topic.topic_id for topic in before.topics]
    names = [
        SECRET_TOPIC,
        f"{victim.id}.{SECRET_TOPIC}",
        f"{victim.id}.{TOPIC}",
        "__usage",
        "__audit",
        "__consumer_offsets",
        victim.id,
    ]
    forbidden = [MARK, victim.id.encode(), attacker.id.encode(), *topic_ids]
    tried = 0
    for api_key, version in versions():
        for request in requests(api_key, version, names, topic_ids):
            for address in addresses(attacker.instance):
                with Wire(address) as wire:
                    answer = wire.call_raw(api_key, version, request)
                assert answer is not None, f"{api_key.name} v{version} closed the connection: {request}"
                echoed = codec.encode_request(api_key, version, request)
                for secret in forbidden:
                    # What the attacker sent may come back; what it did not send must not.
                    assert secret not in answer or secret in echoed, f"{api_key.name} v{version} told {secret!r}"
                tried += 1
    assert tried > 500
    assert metadata_of(victim).topics == before.topics
    read = ConfluentKafka().consume(victim.bootstrap, TOPIC, 2, 10)
    assert sum(len(log) for log in read.values()) == 10


def test_a_foreign_topic_and_one_that_never_existed_give_the_same_answer(sides: tuple[Side, Side]) -> None:
    attacker, _ = sides
    everywhere = addresses(attacker.instance)
    for api_key, version in versions():
        if api_key in NAMES_NO_TOPIC:
            continue
        if api_key is ApiKey.METADATA and version < 4:
            continue  # these versions create the topic when the instance allows it

        def is_alike(api_key: ApiKey = api_key, version: int = version) -> bool:
            # The name also stands for groups and transactional ids, whose coordinator may be any of the brokers.
            foreign, invented = (
                sorted(_answer_about(name, address, api_key, version) for address in everywhere)
                for name in (SECRET_TOPIC, SECRET_TOPIC[::-1])
            )
            assert foreign == invented
            return True

        # A coordinator that moves between two calls answers otherwise for a moment; what tells of topics, always.
        eventually(is_alike, within_s=SETTLED_WITHIN_S, what=f"the same answer to {api_key.name} v{version}")


def _answer_about(name: str, address: str, api_key: ApiKey, version: int) -> bytes:
    request = next(requests(api_key, version, [name], []))
    if api_key is ApiKey.METADATA:
        request.allow_auto_topic_creation = False
    return _masked(address, api_key, version, request, name)


def _masked(address: str, api_key: ApiKey, version: int, request: Any, name: str) -> bytes:
    with Wire(address) as wire:
        answer = wire.call_raw(api_key, version, request)
    assert answer is not None
    return answer.replace(name.encode(), b"?")


def test_a_call_that_only_brokers_make_is_not_served_on_a_tenants_port(sides: tuple[Side, Side]) -> None:
    attacker, _ = sides
    for api_key, version in ((ApiKey.WRITE_TXN_MARKERS, 0), (ApiKey.SASL_HANDSHAKE, 1), (ApiKey.ALTER_PARTITION, 0)):
        with Wire(addresses(attacker.instance)[0]) as wire:
            assert wire.call_raw(api_key, version, message_class(api_key, "request")()) is None


def test_a_fetch_as_a_replica_is_refused(sides: tuple[Side, Side]) -> None:
    attacker, _ = sides
    fetch = next(iter(requests(ApiKey.FETCH, 11, [TOPIC], [])))
    fetch.replica_id = 1
    with Wire(addresses(attacker.instance)[0]) as wire:
        frame = wire.call_raw(ApiKey.FETCH, 11, fetch)
    if frame is None:
        return
    _, offset = decode_response_header(ApiKey.FETCH, 11, frame, 0, len(frame))
    answer = codec.decode_response(ApiKey.FETCH, 11, frame, offset)
    codes = {answer.error_code} | {p.error_code for topic in answer.responses for p in topic.partitions}
    assert codes - {0}, "a tenant's connection was taken for a replica"


def test_every_address_given_to_a_tenant_is_its_own(sides: tuple[Side, Side]) -> None:
    for side in sides:
        message = {
            f"{b.host}:{b.port}"
            for b in AdminClient({"bootstrap.servers": side.bootstrap}).list_topics().brokers.values()
        }
        assert message <= set(addresses(side.instance))


def test_the_other_tenants_instance_is_unknown_to_rest(sides: tuple[Side, Side]) -> None:
    attacker, victim = sides
    for method, path, body in (
        ("GET", "", None),
        ("PATCH", "", {"name": "stolen"}),
        ("DELETE", "", None),
        ("GET", "/topics", None),
        ("POST", "/topics", {"name": "planted", "partitions": 1}),
        ("DELETE", f"/topics/{TOPIC}", None),
        ("GET", "/usage", None),
        ("GET", "/quotas", None),
        ("GET", "/throughput", None),
        ("GET", "/storage", None),
        ("GET", "/storage/topics", None),
    ):
        status, problem = attacker.caller.call(method, f"/instances/{victim.id}{path}", body)
        unknown_status, unknown = attacker.caller.call(method, f"/instances/ins-zzzzzzzz{path}", body)
        assert status == unknown_status == 404, (method, path, problem, unknown)
        assert problem["code"] == unknown["code"]


def test_kcat_sees_only_its_own(sides: tuple[Side, Side]) -> None:
    if shutil.which("kcat") is None:
        pytest.skip("the program kcat (a Debian package) is not installed")
    attacker, victim = sides
    listed = subprocess.run(
        ["kcat", "-b", attacker.bootstrap, "-L"], capture_output=True, timeout=30, check=True
    ).stdout
    assert SECRET_TOPIC.encode() not in listed
    assert victim.id.encode() not in listed
