"""Our own calls on the wire, byte for byte, and the merge of brokers' descriptions of a user."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafka.protocol.api_header import ResponseClassRegistry

from brokers.dataplane import users
from brokers.dataplane.user_messages import AlterUsersRequest, AlterUsersResponse, DescribeUsersRequest
from instances.users.interfaces import NEVER, Presence, UserChange


def encoded(request: Any) -> bytes:
    request.with_header(correlation_id=7, client_id="c")
    return bytes(request.encode(header=True, framed=False))


HEADER = b"\x00\x00\x00\x00\x00\x07\x00\x01c"


def test_all_users_are_asked_for_with_null() -> None:
    assert encoded(DescribeUsersRequest(names=None, version=0)) == b"\x4e\x22" + HEADER + b"\xff\xff\xff\xff"
    named = encoded(DescribeUsersRequest(names=["al"], version=0))
    assert named == b"\x4e\x22" + HEADER + b"\x00\x00\x00\x01\x00\x02al"


def test_a_change_says_what_stays() -> None:
    request = AlterUsersRequest(
        validate_only=True, alterations=[users._alteration("ins-1", UserChange(name="al", disabled=True))], version=0
    )
    unchanged_expiry = b"\xff" * 7 + b"\xfe"
    assert encoded(request) == (
        b"\x4e\x23" + HEADER + b"\x01\x00\x00\x00\x01\x00\x02al\x00\x01\xff\x01" + unchanged_expiry + b"\x00" * 8
    )


def test_a_change_may_ask_for_what_is_not_there_and_for_no_expiry() -> None:
    made = users._alteration(
        "ins-1",
        UserChange(
            name="al", presence=Presence.FORBIDDEN, superuser=False, expires_at_ms=NEVER, removed_secrets=("s",)
        ),
    )
    assert (made.must_exist, made.superuser, made.disabled, made.expires_at_ms) == (2, 0, -1, -1)
    assert made.removed_secrets == ["s"]
    deleted = users._alteration("ins-1", UserChange(name="al", is_deleted=True))
    assert (deleted.is_deleted, deleted.must_exist) == (True, 1)


def test_the_answer_to_our_own_call_is_found_by_its_number() -> None:
    request = AlterUsersRequest(validate_only=False, alterations=[], version=0)
    encoded(request)
    kind = ResponseClassRegistry.get_response_class(request.header)
    answer = kind.decode(b"\x00\x00\x00\x07\x00\x00\x00\x01\x00\x02al\x00\x5b\xff\xff", header=True)
    assert isinstance(answer, AlterUsersResponse)
    (result,) = answer.results
    assert (result.name, result.error_code, result.error_message) == ("al", 91, None)


def described(name: str, *, used: int = -1, connections: int = 0, secrets: dict[str, int] | None = None) -> Any:
    return SimpleNamespace(
        name=name, superuser=False, disabled=False, expires_at_ms=-1, created_at_ms=5, last_used_at_ms=used,
        connections=connections,
        secrets=[
            SimpleNamespace(id=key, created_at_ms=5, last_used_at_ms=at, mechanisms=[2, 1])
            for key, at in (secrets or {}).items()
        ],
    )  # fmt: skip


def test_the_newest_use_counts_and_connections_are_added() -> None:
    (user,) = users.merge_responses(
        [
            [described("al", used=10, connections=2, secrets={"a": 10, "b": -1})],
            [described("al", used=30, connections=1, secrets={"a": -1, "b": 30})],
        ]
    )
    assert (user.last_used_at_ms, user.connections, user.expires_at_ms) == (30, 3, None)
    assert [(item.id, item.last_used_at_ms) for item in user.secrets] == [("a", 10), ("b", 30)]
    assert user.secrets[0].mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")


def test_a_user_that_one_broker_does_not_know_yet_is_there() -> None:
    found = users.merge_responses([[], [described("al"), described("bo", used=-1)]])
    assert [(user.name, user.last_used_at_ms) for user in found] == [("al", None), ("bo", None)]
