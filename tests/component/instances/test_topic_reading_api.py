"""Schemas, filters by path and masks over REST: what they show, to whom, and what is refused."""

from __future__ import annotations

import io
import json
import time
from typing import Any
from urllib.parse import quote

import fastavro
import pytest

from instances import services
from instances.messages import limits
from instances.messages.interfaces import Record
from instances.messages.schemas import limits as schema_limits
from instances.models import Instance
from instances.topic_models import TopicMask, TopicSchema
from instances.topics import inherited
from tenants import access
from tenants.choices import Role, Scope
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fake_data_plane import FakeDataPlane
from tests.testkit.fake_messages import BEGAN_MS, FakeMessages
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db

ORDER = {
    "type": "record", "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "card", "type": "string"}, {"name": "total", "type": "double"}],
}  # fmt: skip
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; string card = 2; } message Refund { int64 id = 1; }'
SECRET = "4000-1234"


@pytest.fixture
def instance(owner: Member, data_plane: FakeDataPlane) -> Instance:
    result = make_running(owner.tenant)
    data_plane.add(result.pk, "orders")
    return result


@pytest.fixture
def at(instance: Instance, kept_messages: FakeMessages) -> str:
    kept_messages.records[instance.pk, "orders"] = []
    return f"/instances/{instance.pk}/topics/orders"


@pytest.fixture
def masked(api: Api, at: str) -> str:
    """The topic with the card of its values, a header and whole keys masked."""
    masks = [
        {"part": "value", "path": ".card"}, {"part": "header", "path": ".auth"}, {"part": "key", "path": "."},
    ]  # fmt: skip
    answer = api.put(f"{at}/masks", {"masks": masks})
    assert answer.status_code == 200, answer.content
    return at


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def avro(order_id: int = 5, card: str = SECRET, total: float = 1.5) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), {"id": order_id, "card": card, "total": total})
    return out.getvalue()


def schema(**changes: Any) -> dict[str, Any]:
    return {"part": "value", "format": "avro", "schema": json.dumps(ORDER), "schema_id": 7, **changes}


def values(answer: Any) -> list[Any]:
    assert answer.status_code == 200, answer.content
    return [message["value"] for message in answer.json()["messages"]]


def developer(owner: Member) -> Api:
    return Api(user=make_member(Role.DEVELOPER, owner.tenant).user)


def test_values_of_avro_and_protobuf_are_shown_by_the_schemas_of_the_topic(
    api: Api, at: str, instance: Instance, kept_messages: FakeMessages
) -> None:
    protobuf = b"\x08\x05\x12\x02hi"
    kept_messages.add(
        instance.pk, "orders", framed(7, avro()), framed(8, b"\0" + protobuf), framed(8, b"\x02\x02\x08\x09")
    )
    assert [value["format"] for value in values(api.get(f"{at}/messages?start=oldest"))] == ["hex"] * 3
    assert api.post(f"{at}/schemas", schema()).status_code == 201
    answer = api.post(f"{at}/schemas", schema(format="protobuf", schema=PROTO, schema_id=8))
    assert answer.status_code == 201
    assert answer.json()["schema"] == PROTO
    shown = values(api.get(f"{at}/messages?start=oldest"))
    assert [(value["format"], value["schema_id"]) for value in shown] == [("avro", 7), ("protobuf", 8), ("protobuf", 8)]
    assert [json.loads(value["data"]) for value in shown] == [
        {"id": 5, "card": SECRET, "total": 1.5}, {"id": 5, "card": "hi"}, {"id": 9},
    ]  # fmt: skip
    only_avro = values(api.get(f"{at}/messages?start=oldest&decode=avro"))
    assert [(value["format"], value["problem"]) for value in only_avro] == [
        ("avro", None), ("hex", "no_schema"), ("hex", "no_schema"),
    ]  # fmt: skip
    assert values(api.get(f"{at}/messages?start=oldest&limit=1&decode=hex"))[0]["data"] == framed(7, avro()).hex()
    listed = api.get(f"{at}/schemas").json()["items"]
    assert sorted((row["format"], row["schema_id"]) for row in listed) == [("avro", 7), ("protobuf", 8)]
    for row in listed:
        assert api.delete(f"{at}/schemas/{row['id']}").status_code == 204
    assert [value["format"] for value in values(api.get(f"{at}/messages?start=oldest"))] == ["hex"] * 3
    entries = AuditEntry.objects.filter(action__startswith="topic_schema").order_by("time")
    assert [entry.action for entry in entries] == [
        "topic_schema.added", "topic_schema.added", "topic_schema.deleted", "topic_schema.deleted",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"schema": "{"}, "/schema"), ({"schema": '"missing"'}, "/schema"), ({"schema": "x" * 65_537}, "/schema"),
        ({"format": "protobuf"}, "/schema"), ({"format": "protobuf", "schema": "message A {" * 40}, "/schema"),
        ({"format": "protobuf", "schema": PROTO, "message": "Missing"}, "/schema"), ({"message": "Order"}, "/message"),
        ({"framing": "plain"}, "/schema_id"), ({"part": "header"}, "/part"), ({"format": "thrift"}, "/format"),
        ({"schema_id": -1}, "/schema_id"), ({"schema_id": 2**31}, "/schema_id"),
    ],
)  # fmt: skip
def test_a_wrong_schema_is_named_by_its_place(changes: dict[str, Any], pointer: str, api: Api, at: str) -> None:
    problem = assert_problem(api.post(f"{at}/schemas", schema(**changes)), 400)
    assert [error["pointer"] for error in problem["errors"]] == [pointer]
    assert not TopicSchema.objects.exists()


def test_a_schema_is_once_for_its_values_and_their_number_is_limited(
    api: Api, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert api.post(f"{at}/schemas", schema()).status_code == 201
    assert_problem(api.post(f"{at}/schemas", schema(schema='"long"')), 409, "already_exists")
    monkeypatch.setattr(schema_limits, "SCHEMAS_PER_TOPIC_MAX", 2)
    assert api.post(f"{at}/schemas", schema(schema_id=8)).status_code == 201
    assert_problem(api.post(f"{at}/schemas", schema(schema_id=9)), 403, "quota_exceeded")
    assert_problem(api.post(f"{at}.none/schemas", schema()), 404, "not_found")


def test_another_tenants_schemas_and_masks_are_not_there(api: Api, masked: str) -> None:
    added = api.post(f"{masked}/schemas", schema()).json()["id"]
    stranger = Api.of(make_member())
    for method, path in (("GET", "schemas"), ("POST", "schemas"), ("DELETE", f"schemas/{added}"), ("GET", "masks"),
                         ("PUT", "masks")):  # fmt: skip
        body = {"masks": []} if path == "masks" else schema()
        assert_problem(stranger.call(method, f"{masked}/{path}", body if method != "GET" else None), 404, "not_found")
    assert_problem(api.delete(f"{masked}/schemas/sch-00000000"), 404, "not_found")
    assert TopicMask.objects.count() == 3


def test_a_filter_by_path_finds_json_avro_and_keys(
    api: Api, at: str, instance: Instance, kept_messages: FakeMessages
) -> None:
    api.post(f"{at}/schemas", schema())
    first = b'{"total": 12, "items": [{"sku": "A-1"}]}'
    others = (b'{"total": 3}', b"text", None, framed(7, avro(total=99.5)), b"\xff\xff")
    kept_messages.add(instance.pk, "orders", first, *others)

    def found(program: str) -> list[int]:
        answer = api.get(f"{at}/messages?start=oldest&jq={quote(program)}")
        assert answer.status_code == 200, answer.content
        return [message["offset"] for message in answer.json()["messages"]]

    assert found(".total > 10") == [0, 4]
    assert found('.items[].sku | startswith("A-")') == [0]
    assert found('. == "text"') == [2]
    assert found(". == null") == [3, 5]
    assert found('$key == "k" and $offset < 2') == [0, 1]
    assert found(f'.card == "{SECRET}"') == [4]
    problem = assert_problem(api.get(f"{at}/messages?jq={quote('.a | range(9)')}"), 400)
    assert problem["errors"][0]["parameter"] == "jq"
    token = api.get(f"{at}/messages?limit=1&jq=.total").json()["next_page_token"]
    assert_problem(api.get(f"{at}/messages?jq=.other&page_token={token}"), 400, "invalid_page_token")


def test_a_page_of_the_costliest_messages_and_filter_asks_to_end_on_time(
    api: Api, at: str, instance: Instance, kept_messages: FakeMessages
) -> None:
    """Each message alone costs little; the reader of pages has to look at the clock after each (`is_costly`)."""
    deep = json.dumps([list(range(20_000))] * 5).encode()
    kept_messages.add(instance.pk, "orders", *([deep] * 10))
    begun_s = time.process_time()
    api.get(f"{at}/messages?start=oldest&jq={quote('.[] == .[] | ' + ' | '.join(['.[]'] * 20))}")
    assert time.process_time() - begun_s < 2
    assert kept_messages.requests[-1].is_costly


def everything(answer: Any) -> str:
    assert answer.status_code == 200, answer.content
    return str(answer.content.decode())


def test_no_way_of_reading_shows_a_masked_field_to_a_role_that_may_not_see_it(
    api: Api, masked: str, owner: Member, instance: Instance, kept_messages: FakeMessages
) -> None:
    api.post(f"{masked}/schemas", schema())
    kept_messages.records[instance.pk, "orders"] = [
        Record(partition=0, offset=at, timestamp_ms=BEGAN_MS, is_append_time=False, key=SECRET.encode(), value=value,
               headers=[(b"auth", SECRET.encode()), (b"trace", b"7f3a")], header_count=2)
        for at, value in enumerate([
            json.dumps({"card": SECRET, "n": 1}).encode(), framed(7, avro()), f"card {SECRET}".encode(),
            b"\xff" + SECRET.encode(), f'{{"card": "{SECRET}"'.encode(), framed(9, avro()), None,
        ])
    ]  # fmt: skip
    hidden = (SECRET, SECRET.encode().hex(), "NDAwMC0xMjM0", "QwMDAtMTIzN", "0MDAwLTEyMz")
    reader = developer(owner)
    for decode in ("auto", "text", "json", "hex", "base64", "avro", "protobuf"):
        for query in ("start=oldest", "start=newest", "start=offset:1&limit=1"):
            text = everything(reader.get(f"{masked}/messages?{query}&decode={decode}"))
            assert not [word for word in hidden if word in text], decode
            assert "7f3a" in text or decode in ("hex", "base64")
    programs = (
        '.card | contains("4")', "$key | length > 3", '$headers.auth | contains("4")', '.card | test("^4")',
        f'. == "card {SECRET}"',
    )  # fmt: skip
    for query in (f"contains={SECRET}", f"key_contains={SECRET}", *(f"jq={quote(program)}" for program in programs)):
        assert reader.get(f"{masked}/messages?start=oldest&{query}").json()["messages"] == [], query
    assert SECRET in everything(api.get(f"{masked}/messages?start=oldest"))
    assert len(api.get(f"{masked}/messages?start=oldest&contains={SECRET}").json()["messages"]) == 7
    kept = [entry.after["masked"] for entry in AuditEntry.objects.filter(action="messages.read").order_by("time")]
    assert (kept[0], kept[-1]) == (True, False)


def test_the_bytes_of_a_filter_are_searched_only_for_a_reader_from_whom_nothing_is_hidden(
    api: Api, masked: str, owner: Member, kept_messages: FakeMessages
) -> None:
    """The bytes decide on the time a page takes and on how far it comes."""
    query = f"contains={SECRET}&key_contains=k&header_contains=trace:%207&matches=a%2Bb"
    for reader in (api, developer(owner)):
        assert reader.get(f"{masked}/messages?{query}").status_code == 200
    assert [list(request.literals) for request in kept_messages.requests] == [
        [(SECRET.encode(),), (b"k",), (b"trace",), (b"a",)], []
    ]  # fmt: skip


def test_the_texts_of_a_path_are_searched_only_where_no_schema_decodes_the_values(
    api: Api, at: str, instance: Instance, kept_messages: FakeMessages
) -> None:
    """Avro has no names of fields in its bytes."""
    kept_messages.add(instance.pk, "orders", framed(7, avro()), json.dumps({"card": SECRET}).encode())
    query = f"{at}/messages?start=oldest&jq={quote(f'.card == {json.dumps(SECRET)}')}"
    assert [value["format"] for value in values(api.get(query))] == ["json"]
    assert api.post(f"{at}/schemas", schema()).status_code == 201
    assert [value["format"] for value in values(api.get(query))] == ["avro", "json"]
    texts = [[alternatives[0] for alternatives in request.literals] for request in kept_messages.requests]
    assert texts == [[SECRET.encode(), b"card"], []]


def test_a_token_without_unmask_reads_masked_even_an_owners(
    masked: str, owner: Member, instance: Instance, kept_messages: FakeMessages
) -> None:
    kept_messages.add(instance.pk, "orders", json.dumps({"card": SECRET}).encode())
    assert SECRET not in everything(Api.of(owner, [Scope.MESSAGES_READ]).get(f"{masked}/messages"))
    assert SECRET in everything(Api.of(owner, [Scope.MESSAGES_READ, Scope.MESSAGES_UNMASK]).get(f"{masked}/messages"))


def test_a_reader_who_may_not_see_a_field_cannot_lift_its_mask(
    api: Api, masked: str, owner: Member, instance: Instance, kept_messages: FakeMessages
) -> None:
    """Not by other masks, a schema that names the field otherwise, or a topic that is deleted and made again."""
    api.post(f"{masked}/schemas", schema())
    kept_messages.add(instance.pk, "orders", framed(7, avro()))
    dev = developer(owner)
    assert_problem(dev.put(f"{masked}/masks", {"masks": []}), 403, "permission_denied")
    renamed = json.dumps(ORDER).replace('"card"', '"open"')
    assert_problem(dev.post(f"{masked}/schemas", schema(schema=renamed, schema_id=8)), 403, "permission_denied")
    added = TopicSchema.objects.get().pk
    assert_problem(dev.delete(f"{masked}/schemas/{added}"), 403, "permission_denied")
    assert dev.delete(f"{masked}?for_good=true").status_code == 204
    assert not TopicSchema.objects.exists()
    assert TopicMask.objects.count() == 3
    assert_problem(api.put(f"{masked}/masks", {"masks": [{"part": "value", "path": ".x"}]}), 404, "not_found")
    assert api.put(f"{masked}/masks", {"masks": []}).json() == {"masks": []}


def test_a_clone_has_the_masks_and_schemas_of_its_topic(
    api: Api, masked: str, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.post(f"{masked}/schemas", schema())
    assert api.post(f"{masked}/clone", {"name": "copy"}).status_code == 201
    rows = {
        topic: [(mask.part, mask.path) for mask in services.masks_of(instance, topic)] for topic in ("orders", "copy")
    }
    assert rows["copy"] == rows["orders"] and len(rows["copy"]) == 3
    assert [row.schema_id for row in services.schemas_of(instance, "copy")] == [7]
    assert_problem(api.post(f"{masked}/clone", {"name": "copy"}), 409)
    monkeypatch.setattr(inherited, "MASKS_PER_INSTANCE_MAX", 8)
    assert_problem(api.post(f"{masked}/clone", {"name": "third"}), 403, "quota_exceeded")
    assert TopicMask.objects.count() == 6
    assert api.get(f"/instances/{instance.pk}/topics/third").status_code == 404


def test_masks_are_audited_with_their_paths_and_set_once(api: Api, masked: str) -> None:
    given = {"masks": [{"part": "value", "path": '.items[].["price"]'}, {"part": "value", "path": ".items[].price"}]}
    assert api.put(f"{masked}/masks", given).json() == {"masks": [{"part": "value", "path": ".items[].price"}]}
    api.put(f"{masked}/masks", given)
    first, second = AuditEntry.objects.filter(action="topic_masks.changed").order_by("time")
    assert (first.before, first.after) == ({"masks": []}, {"masks": ["header .auth", "key .", "value .card"]})
    assert second.after == {"masks": ["value .items[].price"]}
    assert (second.target_type, second.target_id) == (
        "topic",
        masked.removeprefix("/instances/").replace("/topics", ""),
    )


@pytest.mark.parametrize("path", ["card", "..", "$.card", ".a b", ".a" * 21, "." + "a" * 250, ".[x]"])
def test_an_invalid_path_masks_nothing(path: str, api: Api, at: str) -> None:
    assert_problem(api.put(f"{at}/masks", {"masks": [{"part": "value", "path": path}]}), 400)
    assert not TopicMask.objects.exists()


def test_the_number_of_masks_is_limited(api: Api, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [{"part": "value", "path": f".f{n}"} for n in range(limits.MASKS_PER_TOPIC_MAX + 1)]
    assert_problem(api.put(f"{at}/masks", {"masks": many}), 400)
    assert api.put(f"{at}/masks", {"masks": many[1:]}).status_code == 200
    monkeypatch.setattr(limits, "MASKS_PER_INSTANCE_MAX", 10)
    assert_problem(api.put(f"{at}/masks", {"masks": many[:11]}), 403, "quota_exceeded")
    assert TopicMask.objects.count() == limits.MASKS_PER_TOPIC_MAX


def test_an_archive_of_a_masked_topic_takes_unmask(api: Api, masked: str, owner: Member, instance: Instance) -> None:
    acting_scopes = access.ROLE_SCOPES[Role.DEVELOPER]
    assert Scope.ARCHIVES_WRITE in acting_scopes
    body = {"instance_id": instance.pk, "topic": "orders", "url": "s3://bucket/prefix"}
    problem = assert_problem(developer(owner).post("/archives", body), 403, "permission_denied")
    assert "messages:unmask" in problem["detail"]


def test_schemas_go_with_a_topic_that_is_deleted_for_good(api: Api, at: str, instance: Instance) -> None:
    api.post(f"{at}/schemas", schema())
    assert api.delete(at).status_code == 204
    assert len(services.schemas_of(instance, "orders")) == 1
    assert api.delete(f"/instances/{instance.pk}/deleted-topics/orders").status_code == 204
    assert services.schemas_of(instance, "orders") == []
