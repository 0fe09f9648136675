"""Live messages over REST: what a stream sends, where it goes on, who may open one, and how many."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from instances.messages import limiters, limits
from instances.models import Instance
from instances.topic_models import TopicMask
from tenants import sessions
from tenants.choices import Role, Scope
from tenants.errors import NotFound, Unavailable
from tenants.models import ApiToken, AuditEntry, Member, Tenant, User
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fake_messages import FakeMessages
from tests.testkit.instances import make_instance

pytestmark = pytest.mark.django_db


@pytest.fixture
def instance(owner: Member) -> Instance:
    return make_instance(owner.tenant)


@pytest.fixture
def at(instance: Instance, kept_messages: FakeMessages) -> str:
    kept_messages.add(instance.pk, "orders", b"before")
    return f"/instances/{instance.pk}/topics/orders/messages/stream"


@pytest.fixture(autouse=True)
def _all_places_are_given_back() -> Iterator[None]:
    before = len(limiters.stream_limiter)
    yield
    assert len(limiters.stream_limiter) == before


def step(answer: Any) -> list[tuple[str, str, Any]]:
    """Name, id and data of the events of the next step, as a browser reads them."""
    raw, _ = answer.live.body.step()
    found = []
    for block in raw.decode().split("\n\n"):
        fields = [line.partition(": ")[::2] for line in block.split("\n") if line and not line.startswith(":")]
        data = "\n".join(value for name, value in fields if name == "data")
        named = dict(fields)
        if named:
            found.append((named.get("event", "message"), named.get("id", ""), json.loads(data) if data else None))
    return found


def values(events: list[tuple[str, str, Any]]) -> list[str]:
    return [data["value"]["data"] for name, _, data in events if name == "message" and data is not None]


def test_a_stream_sends_what_comes_after_it_began(
    api: Api, at: str, instance: Instance, kept_messages: FakeMessages
) -> None:
    answer = api.get(at)
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
    ((_, first_id, nothing),) = step(answer)
    assert first_id and nothing is None
    assert step(answer) == []
    kept_messages.add(instance.pk, "orders", b"one", b"two", None)
    events = step(answer)
    assert values(events) == ["one", "two", None]
    assert [bool(event_id) for _, event_id, _ in events] == [False, False, True]
    assert step(answer) == []
    assert events[0][2]["offset"] == 1
    answer.live.body.close()
    assert step(answer) == []
    entry = AuditEntry.objects.get(action="messages.streamed")
    assert entry.after == {"start": "stream", "partition": None, "filtered": False, "continued": False}
    assert not AuditEntry.objects.filter(action="messages.read").exists()


def test_a_stream_goes_on_behind_the_last_event_of_the_one_before(
    api: Api, at: str, instance: Instance, kept_messages: FakeMessages
) -> None:
    first = api.get(at)
    ((_, begun_id, _),) = step(first)
    kept_messages.add(instance.pk, "orders", b"one", b"two")
    last_id = step(first)[-1][1]
    first.live.body.close()
    kept_messages.add(instance.pk, "orders", b"three")
    for event_id, expected in ((last_id, ["three"]), (begun_id, ["one", "two", "three"])):
        again = api.get(at, Last_Event_ID=event_id)
        step(again)
        assert values(step(again)) == expected
        again.live.body.close()
    assert_problem(api.get(at, Last_Event_ID="forged"), 400, "invalid_page_token")
    assert_problem(api.get(f"{at}?contains=x", Last_Event_ID=last_id), 400, "invalid_page_token")


def test_a_stream_is_filtered_and_masked_as_pages_are_and_masks_hold_at_once(
    api: Api, at: str, instance: Instance, owner: Member, kept_messages: FakeMessages
) -> None:
    developer = Api(user=make_member(Role.DEVELOPER, owner.tenant).user)
    answer = developer.get(f"{at}?jq=.n%20%3E%201")
    step(answer)
    kept_messages.add(instance.pk, "orders", b'{"n": 1, "card": "4000"}', b'{"n": 2, "card": "4000"}')
    assert values(step(answer)) == ['{"n": 2, "card": "4000"}']
    TopicMask.objects.create(instance=instance, topic="orders", part="value", path=".card")
    kept_messages.add(instance.pk, "orders", b'{"n": 3, "card": "4000"}')
    assert values(step(answer)) == ['{"n": 3, "card": "•••"}']
    answer.live.body.close()
    looking = developer.get(f"{at}?contains=4000")
    step(looking)
    kept_messages.add(instance.pk, "orders", b'{"n": 4, "card": "4000"}')
    assert step(looking) == []
    looking.live.body.close()


def test_a_passing_trouble_is_sent_once_and_a_final_one_ends_the_stream(
    api: Api, at: str, kept_messages: FakeMessages
) -> None:
    answer = api.get(at)
    step(answer)
    kept_messages.trouble = Unavailable("Wait.", code="throttled")
    assert step(answer) == [("trouble", "", {"code": "throttled", "detail": "Wait."})]
    assert step(answer) == []
    kept_messages.trouble = None
    assert step(answer) == []
    kept_messages.trouble = NotFound("There is no topic.")
    raw, wait_s = answer.live.body.step()
    assert b"not_found" in raw
    assert wait_s is None
    answer.live.body.close()


def test_a_stream_ends_after_a_while_and_beats_meanwhile(api: Api, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = api.get(at)
    live = answer.live.body
    step(answer)
    live._now_s = lambda: live._last_sent_s + limits.STREAM_HEARTBEAT_S
    assert live.step()[0].startswith(b":")
    live._now_s = lambda: live._last_sent_s
    live._stream.now_s = lambda: live._stream.deadline_s
    assert live.step() == (b"", None)
    answer.live.body.close()


def test_streams_of_an_instance_and_of_a_tenant_are_limited_and_others_have_theirs(
    api: Api, at: str, owner: Member, kept_messages: FakeMessages
) -> None:
    other = make_instance(owner.tenant, name="other")
    third = make_instance(owner.tenant, name="third")
    stranger = make_member()
    theirs = make_instance(stranger.tenant)
    for instance in (other, third, theirs):
        kept_messages.add(instance.pk, "orders", b"x")
    opened = [api.get(at) for _ in range(limits.STREAMS_PER_INSTANCE_MAX)]
    assert_problem(api.get(at), 503, "too_many_streams")
    left = limits.STREAMS_PER_TENANT_MAX - limits.STREAMS_PER_INSTANCE_MAX
    opened += [api.get(f"/instances/{other.pk}/topics/orders/messages/stream") for _ in range(left)]
    assert_problem(api.get(f"/instances/{third.pk}/topics/orders/messages/stream"), 503, "too_many_streams")
    opened.append(Api.of(stranger).get(f"/instances/{theirs.pk}/topics/orders/messages/stream"))
    assert [answer.status_code for answer in opened] == [200] * len(opened)
    opened.pop(0).live.body.close()
    opened.append(api.get(at))
    assert opened[-1].status_code == 200
    for answer in opened:
        answer.live.body.close()
        answer.live.body.close()  # a second time changes nothing


def test_a_refused_stream_takes_no_place(api: Api, at: str, owner: Member, kept_messages: FakeMessages) -> None:
    viewer = make_member(Role.VIEWER, owner.tenant)
    for _ in range(limits.STREAMS_PER_INSTANCE_MAX + 1):
        assert_problem(Api(user=viewer.user).get(at), 403, "permission_denied")
        assert_problem(Api.of(owner, [Scope.MESSAGES_WRITE]).get(at), 403, "permission_denied")
        assert_problem(api.get(at.replace("orders", "nothing")), 404, "not_found")
        assert_problem(Api.of(make_member()).get(at), 404, "not_found")
        assert_problem(api.get(f"{at}?jq=range(9)"), 400)
        assert_problem(api.get(f"{at}?start=oldest"), 400)
    assert api.call("HEAD", at).status_code == 200


def test_an_instance_that_is_suspended_ends_its_streams(
    api: Api, at: str, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = api.get(at)
    step(answer)
    Instance.objects.filter(pk=instance.pk).update(phase="deleting")
    raw, wait_s = answer.live.body.step()
    assert b"instance_not_reachable" in raw
    assert wait_s is None
    answer.live.body.close()


def test_a_server_that_knows_no_live_responses_sends_what_is_there_at_once(
    api: Api, at: str, instance: Instance, kept_messages: FakeMessages
) -> None:
    answer = api.get(at)
    kept_messages.add(instance.pk, "orders", b"one")
    head, first = answer.streaming_content
    assert head.startswith(b"retry: ")
    assert b"one" in first
    answer.live.body.close()


@pytest.mark.parametrize("loss", ["revoked", "expired", "removed", "disabled", "viewer"])
def test_a_stream_ends_when_its_reader_may_read_no_longer(
    loss: str, at: str, instance: Instance, owner: Member, kept_messages: FakeMessages
) -> None:
    member = make_member(Role.DEVELOPER, owner.tenant)
    answer = Api.of(member).get(at)
    step(answer)
    kept_messages.add(instance.pk, "orders", b"before")
    assert values(step(answer)) == ["before"]
    tokens = ApiToken.objects.filter(member=member)
    if loss == "revoked":
        tokens.update(revoked_at=timezone.now())
    elif loss == "expired":
        tokens.update(expires_at=timezone.now() - timedelta(seconds=1))
    elif loss == "removed":
        Member.objects.filter(pk=member.pk).update(removed_at=timezone.now())
    elif loss == "disabled":
        User.objects.filter(pk=member.user_id).update(is_active=False)
    else:
        Member.objects.filter(pk=member.pk).update(role=Role.VIEWER)
    kept_messages.add(instance.pk, "orders", b"secret")
    raw, wait_s = answer.live.body.step()
    assert wait_s is None
    assert b"secret" not in raw
    assert (b"permission_denied" if loss == "viewer" else b"unauthenticated") in raw
    answer.live.body.close()


def test_a_member_who_becomes_one_without_unmask_gets_masked_fields_at_once(
    at: str, instance: Instance, owner: Member, kept_messages: FakeMessages
) -> None:
    TopicMask.objects.create(instance=instance, topic="orders", part="value", path=".card")
    admin = make_member(Role.ADMIN, owner.tenant)
    answer = Api(user=admin.user).get(at)
    step(answer)
    for role, shown in ((Role.ADMIN, '{"card": "4000"}'), (Role.DEVELOPER, '{"card": "•••"}')):
        Member.objects.filter(pk=admin.pk).update(role=role)
        kept_messages.add(instance.pk, "orders", b'{"card": "4000"}')
        assert values(step(answer)) == [shown]
    answer.live.body.close()


@pytest.mark.parametrize(
    "required, code", [("requires_sso", "sso_needed"), ("requires_second_factor", "second_factor_needed")]
)
def test_a_stream_ends_when_its_tenant_requires_what_its_session_does_not_have(
    required: str, code: str, at: str, instance: Instance, owner: Member, kept_messages: FakeMessages
) -> None:
    member = make_member(Role.DEVELOPER, owner.tenant)
    by_session, by_token = Api(user=member.user).get(at), Api.of(member).get(at)
    for answer in (by_session, by_token):
        step(answer)
    Tenant.objects.filter(pk=owner.tenant_id).update(**{required: True})
    kept_messages.add(instance.pk, "orders", b"secret")
    raw, wait_s = by_session.live.body.step()
    assert wait_s is None and b"secret" not in raw and code.encode() in raw
    assert values(step(by_token)) == ["secret"], "tokens are exempt"
    for answer in (by_session, by_token):
        answer.live.body.close()


@pytest.mark.parametrize("kind", ["single sign-on", "second factor"])
def test_a_stream_goes_on_when_its_tenant_requires_what_its_session_has(
    kind: str, at: str, instance: Instance, owner: Member, kept_messages: FakeMessages
) -> None:
    member = make_member(Role.DEVELOPER, owner.tenant)
    api = Api(user=member.user)
    session = api.client.session
    if kind == "second factor":
        session[sessions.SECOND_FACTOR_OF] = member.user_id
    else:
        session[sessions.SSO_TENANT], session[sessions.SSO_UNTIL_S] = owner.tenant_id, int(time.time()) + 3_600
    session.save()
    answer = api.get(at)
    step(answer)
    Tenant.objects.filter(pk=owner.tenant_id).update(requires_sso=kind != "second factor", requires_second_factor=True)
    kept_messages.add(instance.pk, "orders", b"more")
    assert values(step(answer)) == ["more"]
    answer.live.body.close()
