"""Lists of the fleet take as many queries for many rows as for few, in the operator panel and over REST."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.db import connection
from django.db.models import Model
from django.db.models.signals import post_init
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from brokers.choices import DataLoss, RebalanceKind
from brokers.limits import NEEDS_MAX
from brokers.models import Broker, Cluster, PartitionReassignment, Rebalance
from brokers.placement import capacity
from tenants.operator import OperatorAdmin
from tests.testkit.api_cases import Api, make_tenant
from tests.testkit.large_fleet import LargeFleet, make_large_fleet, panel_addresses, rest_addresses

pytestmark = pytest.mark.django_db

FEW, MORE = 2, 7
# Of each list there are more rows than it shows.
CLUSTERS, INSTANCES = 27, 60
LISTS = {
    "brokers_cluster": "Cluster",
    "brokers_host": "Host",
    "brokers_broker": "Broker",
    "brokers_placement": "Placement",
    "brokers_portlease": "PortLease",
    "brokers_rebalance": "Rebalance",
    "brokers_rollingrestart": "RollingRestart",
    "brokers_fleetoperation": "FleetOperation",
    "instances_instance": "Instance",
    "instances_operation": "Operation",
}
# Lists that grow with instances.
LONG_LISTS = ("brokers_placement", "brokers_portlease", "instances_instance", "instances_operation")


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


@pytest.fixture()
def loaded() -> Iterator[Counter[str]]:
    """Rows that were made of the database's, by model."""
    counts: Counter[str] = Counter()

    def count(sender: type[Model], **_: object) -> None:
        counts[sender.__name__] += 1

    post_init.connect(count)
    yield counts
    post_init.disconnect(count)


def test_lists_of_the_panel_read_the_rows_that_they_show(panel: Client, loaded: Counter[str]) -> None:
    make_large_fleet([make_tenant()], clusters=CLUSTERS, instances=INSTANCES)
    shown = OperatorAdmin.list_per_page
    for name, model in LISTS.items():
        at = reverse(f"admin:{name}_changelist")
        assert panel.get(at).status_code == 200
        loaded.clear()
        assert panel.get(at).status_code == 200
        assert loaded[model] == shown, (name, loaded)
        # Beside the rows, the clusters by which a list may be narrowed.
        assert all(count <= shown + CLUSTERS for count in loaded.values()), loaded


def test_long_lists_of_the_panel_are_in_an_order_that_an_index_has(panel: Client) -> None:
    """An order by names of other rows would have all rows sorted for each page."""
    make_large_fleet([make_tenant()], clusters=2, instances=OperatorAdmin.list_per_page + 1)
    for name in LONG_LISTS:
        with CaptureQueriesContext(connection) as captured:
            assert panel.get(reverse(f"admin:{name}_changelist")).status_code == 200
        ending = f"LIMIT {OperatorAdmin.list_per_page}"
        (page,) = (query["sql"] for query in captured if query["sql"].endswith(ending))
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_sort = off; SET LOCAL enable_seqscan = off")
            cursor.execute(f"EXPLAIN {page}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
        # An incremental sort is one of the rows of a cluster, or of an instance.
        assert not re.search(r"(^|-> +)Sort +\(", plan, re.MULTILINE), plan


def test_the_first_page_asks_whom_the_brokers_that_it_shows_hit(panel: Client) -> None:
    make_large_fleet([make_tenant()], clusters=NEEDS_MAX // 3 + 2, instances=4)
    Broker.objects.update(observed_at=timezone.now() - timedelta(hours=1))
    with CaptureQueriesContext(connection) as captured:
        page = panel.get(reverse("admin:index")).content.decode()
    asked = [query["sql"] for query in captured if "brokers_portlease" in query["sql"]]
    assert asked
    assert {len(re.findall(r"'brk-", sql)) for sql in asked} == {NEEDS_MAX}
    more = Broker.objects.count() - NEEDS_MAX
    assert page.count("does not answer") == NEEDS_MAX
    counted = re.search(r"And (\d+) more\.", page)
    assert counted is not None
    assert int(counted[1]) >= more


def test_placement_takes_no_more_queries_for_a_larger_fleet() -> None:
    add_to_fleet(1, FEW)
    few = _queries_of_placement()
    add_to_fleet(2, MORE)
    assert _queries_of_placement() == few


def _queries_of_placement() -> int:
    clusters = list(Cluster.objects.all())
    with CaptureQueriesContext(connection) as captured:
        rooms = capacity.headrooms(clusters)
    assert [len(room.brokers) for room in rooms] == [3] * len(clusters)
    return len(captured)
