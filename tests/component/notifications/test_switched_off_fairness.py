"""Fairness of webhooks switched off in each of its parts: the test that guards it must fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from notifications import queues
from notifications.models import WebhookEndpoint
from notifications.webhooks import choosing
from tests.component.notifications import test_fair_queues

SwitchOff = Callable[[pytest.MonkeyPatch], None]


def by_age(endpoints: Iterable[WebhookEndpoint], _tenants: Iterable[str]) -> Iterator[WebhookEndpoint]:
    """Returns the endpoints in their order, whatever their tenants."""
    return iter(list(endpoints))


def endpoints_by_age(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(choosing, "round_robin", by_age)


def slow_ones_take_any_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(choosing, "is_slow", lambda endpoint: False)


def tenants_keep_their_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queues, "in_service_order", lambda queue, tenants: sorted(tenants))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("switch_off", "check"),
    [
        (
            slow_ones_take_any_place,
            lambda: test_fair_queues.test_a_neighbours_delivery_is_among_the_next_whatever_waits_for_others(16, 1, 20),
        ),
        (
            tenants_keep_their_order,
            test_fair_queues.test_tenants_take_turns_and_one_that_makes_its_endpoints_anew_comes_last,
        ),
        (
            endpoints_by_age,
            test_fair_queues.test_tenants_take_turns_and_one_that_makes_its_endpoints_anew_comes_last,
        ),
    ],
    ids=["slow", "turns", "age"],
)
def test_a_check_of_webhooks_fails_without_the_fairness_that_it_guards(
    switch_off: SwitchOff, check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_off(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        check()
