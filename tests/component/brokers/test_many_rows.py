"""Lists of the fleet take as many queries for many rows as for few, in the operator panel and over REST."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from brokers.choices import DataLoss, RebalanceKind
from brokers.models import Cluster, PartitionReassignment, Rebalance
from brokers.placement import capacity
from tests.testkit.api_cases import Api, make_tenant
from tests.testkit.large_fleet import LargeFleet, make_large_fleet, panel_addresses, rest_addresses

pytestmark = pytest.mark.django_db

FEW, MORE = 2, 7


def add_to_fleet(number: int, clusters: int) -> LargeFleet:
    """Adds clusters with hosts, instances and rebalances; the rebalances have lost data, which their pages name."""
    fleet = make_large_fleet([make_tenant()], clusters=clusters, instances=2 * clusters, name=f"part-{number}")
    Rebalance.objects.update(kind=RebalanceKind.LOSS)
    PartitionReassignment.objects.update(loses=DataLoss.SOME.value)
    return fleet


def queries(ask: Callable[[str], None], addresses: Iterable[str]) -> dict[str, int]:
    """Returns the number of queries of each page, once what it caches is cached."""
    result = {}
    for address in addresses:
        ask(address)
        with CaptureQueriesContext(connection) as captured:
            ask(address)
        result[address] = len(captured)
    return result


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


def assert_no_growth(ask: Callable[[str], None], addresses_of: Callable[[LargeFleet], Iterable[str]]) -> None:
    fleet = add_to_fleet(1, FEW)
    addresses = list(addresses_of(fleet))
    before = queries(ask, addresses)
    add_to_fleet(2, MORE)
    after = queries(ask, addresses)
    grown = {address: (before[address], count) for address, count in after.items() if count > before[address]}
    assert not grown


def test_pages_of_the_panel_take_no_more_queries_for_a_larger_fleet(panel: Client) -> None:
    def ask(address: str) -> None:
        answer = panel.get(address)
        assert answer.status_code == 200, address
        assert answer.content

    assert_no_growth(ask, panel_addresses)


def test_lists_of_the_api_take_no_more_queries_for_a_larger_fleet(operator: Api) -> None:
    def ask(address: str) -> None:
        answer = operator.get(address)
        assert answer.status_code == 200, answer.content

    assert_no_growth(ask, rest_addresses)


def test_placement_takes_no_more_queries_for_a_larger_fleet() -> None:
    add_to_fleet(1, FEW)
    few = _queries_of_placement()
    add_to_fleet(2, MORE)
    assert _queries_of_placement() == few


def _queries_of_placement() -> int:
    clusters = list(Cluster.objects.all())
    with CaptureQueriesContext(connection) as captured:
        rooms = capacity.rooms(clusters)
    assert [len(room.brokers) for room in rooms] == [3] * len(clusters)
    return len(captured)
