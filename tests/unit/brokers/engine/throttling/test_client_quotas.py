"""Request time and changes by the controller as client quotas: the levels, the measure, the bound (QUO-2, QUO-3,
QUO-17, QUO-21, QUO-40).
"""

from __future__ import annotations

from itertools import product

import pytest

from brokers.engine.handlers.zookeeper_change import part_of_mutation_limit
from brokers.engine.throttling import charging
from brokers.engine.throttling.charging import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    LIMITERS_PER_INSTANCE_MAX,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    Limiter,
    Quota,
    record_time,
    time_delay_ms,
)
from quotas.precedence import Entity, sharing_group
from quotas.rates import SampleSettings

NEW: tuple[Quota, ...] = (REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
LEVELS = {
    1: Entity(True, "u", True, "c"),
    2: Entity(True, "u", True, None),
    3: Entity(True, "u", False, None),
    4: Entity(True, None, True, "c"),
    5: Entity(True, None, True, None),
    6: Entity(True, None, False, None),
    7: Entity(False, None, True, "c"),
    8: Entity(False, None, True, None),
}
ANY_CLIENT = LEVELS[8]


def limiter_of(limits: dict[Entity, dict[str, float]], quota: Quota, **more: str) -> Limiter:
    limiter = ClientQuotas().limiter(limits, quota, more.get("user", "u"), more.get("client_id", "c"), 0)
    assert limiter is not None
    return limiter


@pytest.mark.parametrize("quota", NEW)
def test_the_first_of_the_eight_levels_that_is_set_holds(quota: Quota) -> None:
    for present in product((False, True), repeat=8):
        levels = [level for level, is_set in zip(LEVELS, present, strict=True) if is_set]
        limits = {LEVELS[level]: {quota: float(level)} for level in levels}
        limits.setdefault(LEVELS[1], {})["producer_byte_rate"] = 1.0
        limiter = ClientQuotas().limiter(limits, quota, "u", "c", 0)
        if not levels:
            assert limiter is None
            continue
        assert limiter is not None
        assert (limiter.limit_per_s, limiter.rule.level) == (float(levels[0]), levels[0])
        assert (limiter.rule.kind, limiter.rule.quota) == ("client_quota", quota)


@pytest.mark.parametrize("quota", NEW)
@pytest.mark.parametrize("level", LEVELS)
def test_a_group_shares_its_counter_by_the_level_that_holds(quota: Quota, level: int) -> None:
    quotas, limits = ClientQuotas(), {LEVELS[level]: {quota: 5.0}}
    limiters = {
        (user, client): quotas.limiter(limits, quota, user, client, 0) for user in ("u", "v") for client in ("c", "d")
    }

    for first, second in product(limiters, repeat=2):
        if limiters[first] is not None and limiters[second] is not None:
            assert (limiters[first] is limiters[second]) == (
                sharing_group(level, *first) == sharing_group(level, *second)
            )


def test_time_is_measured_in_percent_of_a_loop_and_waits_for_one_window_at_most() -> None:
    limiter = limiter_of({ANY_CLIENT: {REQUEST_PERCENTAGE: 10.0}}, REQUEST_PERCENTAGE)

    record_time(limiter, 1.0, 0)
    assert time_delay_ms(limiter, 0) == 0, "a second in ten is ten percent"
    record_time(limiter, 0.05, 0)
    assert time_delay_ms(limiter, 0) == 500
    record_time(limiter, 5.0, 0)
    assert time_delay_ms(limiter, 0) == 1_000
    assert time_delay_ms(limiter, 60_000) == 0


def test_a_percentage_of_zero_lets_wait_for_a_window() -> None:
    limiter = limiter_of({ANY_CLIENT: {REQUEST_PERCENTAGE: 0.0}}, REQUEST_PERCENTAGE)

    record_time(limiter, 1e-6, 0)

    assert time_delay_ms(limiter, 0) == 1_000


def test_windows_are_those_of_the_settings() -> None:
    quotas = ClientQuotas(window=SampleSettings(10, 30_000), controller_window=SampleSettings(2, 1_000))
    limits = {ANY_CLIENT: {REQUEST_PERCENTAGE: 1.0, CONTROLLER_MUTATION_RATE: 5.0}}
    times, changes = (quotas.limiter(limits, quota, "u", "c", 0) for quota in NEW)
    assert times is not None
    assert changes is not None
    assert changes.bucket is not None

    record_time(times, 100.0, 0)
    changes.bucket.charge(11, 0)

    assert time_delay_ms(times, 0) == 30_000
    assert changes.bucket.wait_ms(0) == 200


def test_a_changed_rate_keeps_what_is_owed_and_its_group() -> None:
    quotas = ClientQuotas()
    before = quotas.limiter({ANY_CLIENT: {CONTROLLER_MUTATION_RATE: 5.0}}, CONTROLLER_MUTATION_RATE, "u", "c", 0)
    assert before is not None
    assert before.bucket is not None
    before.bucket.charge(100, 0)

    after = quotas.limiter({ANY_CLIENT: {CONTROLLER_MUTATION_RATE: 45.0}}, CONTROLLER_MUTATION_RATE, "u", "c", 0)

    assert after is before
    assert before.bucket.wait_ms(0) == 1_000


@pytest.mark.parametrize("quota", NEW)
def test_invented_client_ids_end_up_in_one_counter_of_each_kind(quota: Quota, monkeypatch: pytest.MonkeyPatch) -> None:
    quotas, limits = ClientQuotas(), {ANY_CLIENT: {quota: 10.0}}

    limiters = [quotas.limiter(limits, quota, "u", str(number), 0) for number in range(LIMITERS_PER_INSTANCE_MAX + 3)]

    assert len(quotas) == LIMITERS_PER_INSTANCE_MAX + 1
    assert limiters[-1] is limiters[-2]
    assert quotas.drop_unused(charging.UNUSED_MS_MAX) == len(limiters) - 2


def test_a_quota_that_is_set_is_known_without_a_search() -> None:
    quotas, limits = ClientQuotas(), {ANY_CLIENT: {REQUEST_PERCENTAGE: 1.0}}

    assert quotas.is_set(limits, REQUEST_PERCENTAGE)
    assert not quotas.is_set(limits, CONTROLLER_MUTATION_RATE)
    assert not quotas.is_set({}, REQUEST_PERCENTAGE)


@pytest.mark.parametrize("brokers", [{1}, {1, 2}, {1, 2, 3}, set(range(1, 12))])
@pytest.mark.parametrize("controller", [1, 2, 99, -1])
def test_the_parts_of_all_brokers_are_the_limit_and_the_controller_has_most(brokers: set[int], controller: int) -> None:
    parts = {broker: part_of_mutation_limit(broker, controller, brokers) for broker in brokers}

    assert sum(parts.values()) == pytest.approx(1.0)
    shown = controller if controller in brokers else 1
    assert parts[shown] == max(parts.values()) >= 0.9
    assert part_of_mutation_limit(1, controller, ()) == 1.0


def test_a_default_of_the_broker_holds_for_each_client_id_to_which_no_level_applies() -> None:
    """The broker's default is level 9 (QUO-2, DEC-18): every combination of the other eight precedes it."""
    for present in product((False, True), repeat=8):
        levels = [level for level, is_set in zip(LEVELS, present, strict=True) if is_set]
        limits = {LEVELS[level]: {PRODUCER_BYTE_RATE: float(level)} for level in levels}
        quotas = ClientQuotas(client_id_defaults={PRODUCER_BYTE_RATE: 9.0})

        limiter = quotas.limiter(limits, PRODUCER_BYTE_RATE, "u", "c", 0)

        assert limiter is not None
        assert limiter.limit_per_s == (float(levels[0]) if levels else 9.0)
        assert limiter.rule.level == (levels[0] if levels else None)
        assert quotas.limiter(limits, CONSUMER_BYTE_RATE, "u", "c", 0) is None, "nothing is set for what it reads"
        assert quotas.is_set(limits, PRODUCER_BYTE_RATE)


def test_users_of_one_client_id_share_the_default_and_who_has_none_is_free() -> None:
    quotas = ClientQuotas(client_id_defaults={PRODUCER_BYTE_RATE: 9.0})

    first, same, other = (quotas.limiter({}, PRODUCER_BYTE_RATE, *who, 0) for who in ("uc", "vc", "ud"))

    assert first is same
    assert first is not other
    assert quotas.limiter({}, PRODUCER_BYTE_RATE, "u", "", 0) is None, "QUO-5"
