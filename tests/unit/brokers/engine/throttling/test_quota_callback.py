"""Client limits from a quota callback of the operator (QUO-76): valid answers, and misbehaving callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from brokers.engine.errors import SettingsWrong
from brokers.engine.throttling import quota_callback
from brokers.engine.throttling.accounting import AccountingRegistry
from brokers.engine.throttling.charging import PRODUCER_BYTE_RATE, Limiter
from brokers.engine.throttling.quota_callback import (
    FAULTS_MAX,
    GROUP,
    SUSPENDED_MS,
    ClientQuotaCallback,
    CustomLimit,
    SafeCallback,
    load,
)
from quotas.precedence import Entity

ANY_CLIENT = Entity(False, None, True, None)
STORED = {ANY_CLIENT: {PRODUCER_BYTE_RATE: 7.0}}
INSTANCE = "ins-aaaaaaaa"


class ByTeam:
    """A callback for users named team.name; each team has one limit per instance, other users the stored quotas."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.limits: dict[str, float | None] = {"batch": float(settings.get("team.batch", 100)), "web": None}

    def quota_tags(self, quota: str, instance_id: str, user: str, client_id: str) -> Mapping[str, str] | None:
        return {"team": user.split(".")[0]} if "." in user else None

    def quota_limit(self, quota: str, instance_id: str, tags: Mapping[str, str]) -> float | None:
        return self.limits[tags["team"]]


class Hostile(ByTeam):
    """A callback that misbehaves in a way that depends on the user."""

    def quota_tags(self, quota: str, instance_id: str, user: str, client_id: str) -> Mapping[str, str] | None:
        if user == "long":
            return {"team": "x" * 100_000}
        return {"team": user} if user != "raises" else {}["nobody"]  # type: ignore[no-any-return]

    def quota_limit(self, quota: str, instance_id: str, tags: Mapping[str, str]) -> float | None:
        answers = {"negative": -1.0, "infinite": float("inf"), "no_number": "fast", "no_float": object()}
        return answers[tags["team"]]  # type: ignore[return-value]


class Clock:
    now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


def limiter(callback: ClientQuotaCallback | None, user: str, client_id: str = "c") -> Limiter | None:
    safe = None if callback is None else SafeCallback(callback, Clock())
    quotas = AccountingRegistry(callback=safe).get_or_create(INSTANCE).client_quotas
    return quotas.limiter(STORED, PRODUCER_BYTE_RATE, user, client_id, 0)


class Tagged(ByTeam):
    """A callback with the tags that the test sets."""

    tags: Mapping[str, str]

    def quota_tags(self, quota: str, instance_id: str, user: str, client_id: str) -> Mapping[str, str] | None:
        return self.tags

    def quota_limit(self, quota: str, instance_id: str, tags: Mapping[str, str]) -> float | None:
        return 1.0


def test_a_client_cannot_name_itself_into_the_group_of_other_tags() -> None:
    callback = Tagged({})
    safe, groups = SafeCallback(callback, Clock()), set()
    for tags in ({"a": "x", "b": "y"}, {"a": "x\0b\0y"}, {"a": "x1:b1:y"}, {"a": "", "b": "x"}, {"a": "x", "b": ""}):
        callback.tags = tags
        answer = safe.decide_limit(INSTANCE, PRODUCER_BYTE_RATE, "user", "client")
        assert answer is not None
        groups.add(answer.group)
    assert len(groups) == 5


def test_clients_with_the_same_tags_share_the_limit_of_the_tags() -> None:
    registry = AccountingRegistry(callback=SafeCallback(ByTeam({"team.batch": "50"}), Clock()))
    quotas = registry.get_or_create(INSTANCE).client_quotas

    first, second = (quotas.limiter(STORED, PRODUCER_BYTE_RATE, f"batch.{name}", name, 0) for name in ("a", "b"))

    assert first is second
    assert first is not None
    assert (first.limit_per_s, first.rule.level, first.rule.entity) == (50.0, None, None)
    assert (
        registry.get_or_create("ins-bbbbbbbb").client_quotas.limiter(STORED, PRODUCER_BYTE_RATE, "batch.a", "a", 0)
        is not first
    )


def test_no_limit_is_no_limit_and_no_tags_are_what_is_set() -> None:
    assert limiter(ByTeam({}), "web.a") is None
    plain = limiter(ByTeam({}), "plain")
    assert plain is not None
    assert (plain.limit_per_s, plain.rule.level) == (7.0, 8)


@pytest.mark.parametrize("user", ["raises", "negative", "infinite", "no_number", "no_float", "long"])
def test_a_failing_callback_leaves_the_set_client_quotas_in_force(user: str) -> None:
    client_limiter = limiter(Hostile({}), user)

    assert client_limiter is not None
    assert (client_limiter.limit_per_s, client_limiter.rule.level) == (7.0, 8)


def test_one_that_fails_again_and_again_is_left_alone_for_a_while() -> None:
    asked: list[str] = []

    class Failing(ByTeam):
        def quota_tags(self, quota: str, instance_id: str, user: str, client_id: str) -> Mapping[str, str] | None:
            asked.append(user)
            raise OSError("no memory left")

    clock = Clock()
    callback = SafeCallback(Failing({}), clock)
    for _ in range(FAULTS_MAX + 5):
        assert callback.decide_limit(INSTANCE, PRODUCER_BYTE_RATE, "u", "c") is None
    assert len(asked) == FAULTS_MAX

    clock.now_ms += SUSPENDED_MS
    callback.decide_limit(INSTANCE, PRODUCER_BYTE_RATE, "u", "c")
    assert len(asked) == FAULTS_MAX + 1


def test_one_that_is_slow_again_and_again_is_left_alone_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_callback, "ANSWER_S_MAX", -1.0)
    callback = SafeCallback(ByTeam({}), Clock())

    answers = [callback.decide_limit(INSTANCE, PRODUCER_BYTE_RATE, "batch.a", "c") for _ in range(FAULTS_MAX + 1)]

    assert answers == [CustomLimit(100.0, "4:team5:batch")] * FAULTS_MAX + [None]


def test_it_is_found_among_the_entry_points_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = EntryPoints([EntryPoint("by-team", f"{__name__}:ByTeam", GROUP)])
    monkeypatch.setattr(quota_callback, "entry_points", lambda **wanted: installed.select(**wanted))

    callback = load("by-team", {"team.batch": "3"}, Clock())

    assert callback.decide_limit(INSTANCE, PRODUCER_BYTE_RATE, "batch.a", "c") == CustomLimit(3.0, "4:team5:batch")
    with pytest.raises(SettingsWrong, match="no package has 'other'"):
        load("other", {}, Clock())
    with pytest.raises(SettingsWrong, match="cannot be used"):
        load("by-team", {"team.batch": "fast"}, Clock())
