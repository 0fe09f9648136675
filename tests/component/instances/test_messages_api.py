"""Messages over REST: pages and tokens, audit rows, and refusals. Brokers are in memory."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest

from instances.messages import limits
from instances.messages.interfaces import DAMAGED, Record, Unreadable
from instances.models import Instance
from instances.topic_models import TopicMask
from tenants.choices import Role, Scope
from tenants.errors import Invalid, OutcomeUnknown, QuotaExceeded, Unavailable
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fake_messages import FakeMessages
from tests.testkit.instances import make_instance

pytestmark = pytest.mark.django_db


@pytest.fixture
def instance(owner: Member) -> Instance:
    return make_instance(owner.tenant)


@pytest.fixture
def at(instance: Instance, kept_messages: FakeMessages) -> str:
    """Returns the address of the messages of a topic that has twelve."""
    kept_messages.add(instance.pk, "orders", *(json.dumps({"total": n}).encode() for n in range(12)))
    return f"/instances/{instance.pk}/topics/orders/messages"


def values(answer: Any) -> list[Any]:
    assert answer.status_code == 200, answer.content
    return [json.loads(message["value"]["data"])["total"] for message in answer.json()["messages"]]


def audited(action: str) -> list[dict[str, Any]]:
    return [entry.after for entry in AuditEntry.objects.filter(action=action).order_by("time")]


def test_pages_follow_each_other_to_the_end_in_both_directions(api: Api, at: str) -> None:
    for start, expected in (
        ("newest", list(range(11, -1, -1))),
        ("oldest", list(range(12))),
        ("offset:7", [7, 8, 9, 10, 11]),
    ):
        found: list[int] = []
        token = None
        for _ in range(10):
            answer = api.get(f"{at}?start={start}&limit=5" + (f"&page_token={token}" if token else ""))
            found += values(answer)
            token = answer.json()["next_page_token"]
            if token is None:
                break
        assert found == list(expected)


def test_a_token_belongs_to_its_topic_start_and_filters(
    api: Api, at: str, instance: Instance, kept_messages: FakeMessages
) -> None:
    kept_messages.add(instance.pk, "other", b"1")
    token = api.get(f"{at}?limit=5").json()["next_page_token"]
    assert len(values(api.get(f"{at}?limit=3&decode=text&page_token={token}"))) == 3
    for other in (
        f"{at}?start=oldest", f"{at}?contains=x", f"{at}?partition=0",
        f"/instances/{instance.pk}/topics/other/messages?limit=5",
    ):  # fmt: skip
        assert_problem(api.get(f"{other}&page_token={token}"), 400, "invalid_page_token")


def test_the_audit_log_says_who_read_what_and_no_contents(api: Api, at: str, instance: Instance) -> None:
    api.get(f"{at}?start=offset:2&contains=total&key_contains=k&limit=3")
    entry = AuditEntry.objects.get(action="messages.read")
    assert (entry.target_type, entry.target_id) == ("topic", f"{instance.pk}/orders")
    assert entry.after == {
        "start": "offset:2", "partition": None, "filtered": True, "continued": False, "masked": False,
        "count": 3,
    }  # fmt: skip
    api.post(at, {"messages": [{"key": "card", "value": "4000-1234", "headers": [{"key": "who", "value": "me"}]}]})
    assert audited("messages.sent") == [{"count": 1, "bytes": 13}]
    everything = json.dumps(list(AuditEntry.objects.values("before", "after", "context", "target_id")))
    assert not any(secret in everything for secret in ("4000", "card", "total", "who"))


def test_filters_look_into_keys_and_values_as_they_are_stored(
    api: Api, at: str, instance: Instance, kept_messages: FakeMessages
) -> None:
    kept_messages.add(instance.pk, "orders", b'{"total": 99}', key="größe".encode())
    assert values(api.get(f"{at}?contains=%3A%2011")) == [11]
    assert values(api.get(f"{at}?contains=größe")) == [99]
    assert values(api.get(f"{at}?key_contains=öß")) == [99]
    assert values(api.get(f"{at}?key_contains=öß&contains=11")) == []
    answer = api.get(f"{at}?contains=nothing").json()
    assert (answer["messages"], answer["scanned"], answer["reached"]) == ([], 13, {"0": 0})


def test_filters_by_expression_and_header_are_found_together(
    api: Api, at: str, instance: Instance, kept_messages: FakeMessages
) -> None:
    record = kept_messages.add(instance.pk, "orders", b'{"total": 99, "half": "\\ud800"}', key=b"o-7")[-1]
    record.headers = [(b"trace-id", b"7f3a"), (b"bin", b"\xff\x00"), (b"none", None)]
    for query in ("matches=9%7B2%7D", "matches=%5Eo-%5B0-9%5D$", "key_matches=o", "header_contains=trace-id:%207f",
                  "header_contains=none", "contains=99&matches=total&header_contains=bin&key_matches=7$&jq=.total",
                  "jq=.half%20%7C%20test(%22.%22)%20or%20true"):  # fmt: skip
        assert values(api.get(f"{at}?{query}"))[:1] == [99], query
    for query in ("matches=%5E9", "key_matches=total", "header_contains=7f3b", "matches=99&header_contains=x"):
        assert values(api.get(f"{at}?{query}")) == [], query


def test_a_page_is_downloaded_in_each_form_and_its_link_leads_on(
    api: Api, at: str, instance: Instance, kept_messages: FakeMessages
) -> None:
    kept_messages.add(instance.pk, "orders", b'{"total": "=1"}', None, b"-1")
    lines: list[str] = []
    path = f"{at}/file?start=oldest&limit=10"
    while path:
        answer = api.get(path)
        assert answer["Content-Type"] == "application/x-ndjson"
        assert answer["Content-Disposition"] == 'attachment; filename="orders.jsonl"'
        lines += answer.content.decode().splitlines()
        path = answer.headers.get("Link", "").removeprefix("</api/v1").removesuffix('>; rel="next"')
    assert [json.loads(line)["offset"] for line in lines] == list(range(15))
    assert json.loads(lines[0]) == api.get(f"{at}?start=oldest&limit=1").json()["messages"][0]
    table = api.get(f"{at}/file?start=offset:14&form=csv").getvalue().decode().splitlines()
    assert (len(table), table[1].split(",")[5]) == (2, "'-1")
    with zipfile.ZipFile(
        io.BytesIO(api.get(f"{at}/file?start=offset:12&form=zip", Accept="application/zip").content)
    ) as file:
        assert file.namelist() == ["messages.jsonl", "0-12.bin", "0-14.bin"]
    assert api.get(f"{at}/file?start=offset:14&form=value", Accept="*/*").content == b"-1"
    assert_problem(api.get(f"{at}/file?start=offset:13&form=value"), 404, "not_found")
    assert_problem(api.get(f"{at}/file?form=xlsx"), 400)
    assert [entry.get("file") for entry in audited("messages.read")][-1] == "value"


def test_a_zip_ends_before_the_value_that_makes_it_too_large(
    api: Api, at: str, instance: Instance, kept_messages: FakeMessages
) -> None:
    kept_messages.records[instance.pk, "orders"] = []
    kept_messages.add(instance.pk, "orders", b"x" * 3_000_000)
    api.get(f"{at}/file?form=zip")
    api.get(f"{at}?limit=2")
    for request, size_bytes in zip(kept_messages.requests, (3_000_000, limits.SHOWN_BYTES_MAX + 1), strict=True):
        assert request.shown_bytes(kept_messages.records[instance.pk, "orders"][0]) == size_bytes


def test_values_as_stored_are_refused_where_they_are_masked(
    api: Api, at: str, instance: Instance, owner: Member, kept_messages: FakeMessages
) -> None:
    TopicMask.objects.create(instance=instance, topic="orders", part="value", path=".total")
    developer = Api(user=make_member(Role.DEVELOPER, owner.tenant).user)
    for form in ("zip", "value"):
        assert_problem(developer.get(f"{at}/file?form={form}"), 403, "permission_denied")
        assert api.get(f"{at}/file?form={form}").status_code == 200
    assert len(kept_messages.requests) == 2
    for form in ("csv", "jsonl"):
        text = developer.get(f"{at}/file?form={form}").getvalue().decode()
        assert text.count("•••") == 12


def test_a_message_is_shown_with_all_that_it_has(
    api: Api, at: str, instance: Instance, kept_messages: FakeMessages
) -> None:
    kept_messages.records[instance.pk, "orders"] = [
        Record(
            partition=0, offset=0, timestamp_ms=1_790_000_000_123, is_append_time=True, key=None, value=b"\xff\x00",
            headers=[(b"h", None), (b"h", b""), (b"\xfe", b"\xff")], header_count=3,
        ),
        Record(partition=0, offset=1, timestamp_ms=-1, is_append_time=False, key=b"", value=None),
        Record(partition=0, offset=2, timestamp_ms=2**63 - 1, is_append_time=False, key=b"x" * 70_000, value=b"1",
               marker=None),
        Record(partition=0, offset=3, timestamp_ms=5, is_append_time=False, key=None, value=None, marker="abort"),
    ]  # fmt: skip
    first, second, third, marker = api.get(f"{at}?start=oldest").json()["messages"]
    assert (first["timestamp"], first["timestamp_type"]) == ("2026-09-21T14:13:20.123Z", "log_append")
    whole = {"truncated": False, "schema_id": None, "problem": None, "masked": False}
    assert first["key"] == {"format": "null", "data": None, "bytes": 0, **whole}
    assert first["value"] == {"format": "hex", "data": "ff00", "bytes": 2, **whole}
    assert [header["key"] for header in first["headers"]] == ["h", "h", "\\xfe"]
    assert [header["value"]["data"] for header in first["headers"]] == [None, "", "ff"]
    assert (second["timestamp"], second["timestamp_ms"], second["value"]["format"]) == (None, -1, "null")
    assert (third["timestamp"], third["key"]["bytes"], third["key"]["truncated"]) == (None, 70_000, True)
    assert len(third["key"]["data"]) == limits.SHOWN_BYTES_MAX
    assert marker["marker"] == "abort"
    alone = api.get(f"{at}?start=offset:2&limit=1").json()["messages"][0]
    assert (len(alone["key"]["data"]), alone["key"]["truncated"]) == (70_000, False)


def test_partitions_without_leader_and_batches_that_cannot_be_read_are_named(
    api: Api, at: str, kept_messages: FakeMessages
) -> None:
    kept_messages.unavailable = (3,)
    kept_messages.unreadable = (Unreadable(partition=1, offset=5, last_offset=9, reason=DAMAGED),)
    answer = api.get(at).json()
    assert answer["unavailable_partitions"] == [3]
    assert answer["unreadable"] == [{"partition": 1, "offset": 5, "last_offset": 9, "reason": "damaged"}]
    kept_messages.trouble = Unavailable("No broker leads partition 3.", code="partition_without_leader")
    assert_problem(api.get(at), 503, "partition_without_leader")


@pytest.mark.parametrize(
    "query",
    ["start=latest", "start=offset:x", "start=time:2026-01-31", "limit=0", "limit=501", "partition=-1", "decode=thrift",
     "contains=", f"contains={'x' * 201}", "jq=",
     "matches=(", "key_matches=a%7B1,9999%7D", "matches=", f"matches={'x' * 201}", "header_contains=",
     f"header_contains={'x' * 201}", "matches=(%3F=a)",
     "jq=def%20f:%20f;%20f", "jq=range(1e18)", "jq=test(%22(%22)", f"jq={'x' * 501}",
     "page_token=x", f"page_token={'x' * 3000}", "limit=5&limit=6"],
)  # fmt: skip
def test_a_wrong_query_is_refused_and_reads_nothing(query: str, api: Api, at: str, kept_messages: FakeMessages) -> None:
    assert_problem(api.get(f"{at}?{query}"), 400)
    assert kept_messages.requests == []
    assert audited("messages.read") == []


def test_messages_are_stored_in_order_in_the_formats_named(
    api: Api, at: str, instance: Instance, kept_messages: FakeMessages
) -> None:
    sent = [
        {"key": "a", "value": "ü"}, {"key": "00ff", "key_format": "hex", "value": "AAE=", "value_format": "base64"},
        {"value": '{"a": 1}', "value_format": "json", "timestamp": "2026-01-31T12:00:00.250Z"}, {"key": "gone"},
        {"key": "", "value": "", "headers": [{"key": "h", "value": None}, {"key": "h", "value": "1"}]},
    ]  # fmt: skip
    answer = api.post(at, {"messages": sent})
    assert answer.status_code == 201, answer.content
    assert answer.json() == {"results": [{"partition": 0, "offset": n, "error": None} for n in range(12, 17)]}
    kept = kept_messages.records[instance.pk, "orders"][12:]
    assert [(record.key, record.value) for record in kept] == [
        (b"a", "ü".encode()), (b"\x00\xff", b"\x00\x01"), (None, b'{"a": 1}'), (b"gone", None), (b"", b""),
    ]  # fmt: skip
    assert kept[2].timestamp_ms == 1_769_860_800_250
    assert list(kept[4].headers) == [(b"h", None), (b"h", b"1")]


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        ({"value": "{", "value_format": "json"}, "/messages/0/value"),
        ({"key": "x", "key_format": "hex"}, "/messages/0/key"),
        ({"value": 5}, "/messages/0/value"), ({"partition": -1}, "/messages/0/partition"),
        ({"timestamp": "1969-12-31T23:59:59Z"}, "/messages/0/timestamp"), ({"values": "x"}, "/messages/0/values"),
        ({"headers": [{"key": "h"}]}, "/messages/0/headers/0/value"), ({"key": "k" * 65_537}, "/messages/0/key"),
        ({"value_format": "avro"}, "/messages/0/value_format"),
    ],
)  # fmt: skip
def test_a_wrong_message_is_named_by_its_place_and_nothing_is_sent(
    message: dict[str, Any], pointer: str, api: Api, at: str, instance: Instance, kept_messages: FakeMessages
) -> None:
    problem = assert_problem(api.post(at, {"messages": [message]}), 400)
    assert [error["pointer"] for error in problem["errors"]] == [pointer]
    assert len(kept_messages.records[instance.pk, "orders"]) == 12


def test_the_number_and_the_bytes_of_messages_sent_at_once_are_limited(api: Api, at: str) -> None:
    assert_problem(api.post(at, {"messages": []}), 400)
    assert_problem(api.post(at, {"messages": [{"value": "x"}] * 101}), 400)
    assert api.post(at, {"messages": [{"value": "x" * 900_000}]}).status_code == 201
    assert api.post(at, {"messages": [{"value": "x" * 1_100_000}]}).status_code == 413


def test_a_message_that_is_refused_alone_has_its_error_and_the_others_their_offsets(
    api: Api, at: str, kept_messages: FakeMessages
) -> None:
    kept_messages.refused = Invalid("Too large.", code="message_too_large")
    answer = api.post(at, {"messages": [{"value": "a"}, {"value": "b"}]})
    assert answer.status_code == 201
    assert [(entry["offset"], (entry["error"] or {}).get("code")) for entry in answer.json()["results"]] == [
        (12, None), (None, "message_too_large"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("trouble", "status", "entries"),
    [
        (QuotaExceeded("The storage is full."), 403, []),
        (OutcomeUnknown(), 503, ["unknown"]),
        (Unavailable("x"), 503, []),
    ],
)
def test_a_refused_send_leaves_no_row_and_one_in_doubt_does(
    trouble: Any, status: int, entries: list[str], api: Api, at: str, kept_messages: FakeMessages
) -> None:
    kept_messages.trouble = trouble
    assert_problem(api.post(at, {"messages": [{"value": "a"}]}), status)
    assert [entry["outcome"] for entry in audited("messages.sent")] == entries


def test_an_idempotency_key_sends_once(api: Api, at: str, instance: Instance, kept_messages: FakeMessages) -> None:
    answers = [api.post(at, {"messages": [{"value": "a"}]}, Idempotency_Key="once").json() for _ in range(2)]
    assert answers[0] == answers[1]
    assert len(kept_messages.records[instance.pk, "orders"]) == 13


def test_roles_that_only_look_or_pay_read_no_messages(at: str, owner: Member) -> None:
    for role, status in ((Role.VIEWER, 403), (Role.FINANCE, 403), (Role.DEVELOPER, 200), (Role.ADMIN, 200)):
        member = make_member(role, owner.tenant)
        assert Api(user=member.user).get(at).status_code == status
    assert_problem(Api.of(owner, [Scope.MESSAGES_READ]).post(at, {"messages": [{}]}), 403, "permission_denied")
    assert_problem(Api.of(owner, [Scope.MESSAGES_WRITE]).get(at), 403, "permission_denied")
