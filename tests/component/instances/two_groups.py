"""An instance with two groups, the starting point of several tests."""

from __future__ import annotations

from instances.groups.offset_plans import ResetMode, ResetTarget
from instances.models import Instance
from tenants.models import Tenant
from tests.testkit.fake_data_plane import FakeDataPlane
from tests.testkit.fake_groups import FakeGroups, member
from tests.testkit.fleet import make_running

TARGETS = {mode.value: ResetTarget(mode=mode) for mode in (ResetMode.EARLIEST, ResetMode.LATEST)}


def with_groups(tenant: Tenant, groups: FakeGroups, data_plane: FakeDataPlane) -> Instance:
    """Creates topics `orders` (3 partitions) and `clicks`, a group `etl` without members and `live` with two."""
    running = make_running(tenant)
    data_plane.add(running.pk, "orders", 3)
    data_plane.add(running.pk, "clicks", 1)
    groups.logs = {("orders", 0): (10, 100), ("orders", 1): (0, 50), ("orders", 2): (0, 0), ("clicks", 0): (0, 9)}
    groups.add(running.pk, "etl", {("orders", 0): 40, ("orders", 1): 50, ("clicks", 0): 3})
    groups.add(
        running.pk, "live", {("orders", 0): 90},
        member("a", ("orders", 0), ("orders", 1)), member("b", ("orders", 2), instance_id="b-1"),
    )  # fmt: skip
    return running
