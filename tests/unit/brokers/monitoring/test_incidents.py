"""Sentences about the instances affected by an incident: the first by name, and the number of others."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from brokers.limits import AFFECTED_NAMED_MAX
from brokers.monitoring import incidents
from brokers.monitoring.incidents import Affected, AffectedInstance, Owners

NAMES = st.text("abcdefgh", min_size=1, max_size=4)
ROWS = st.lists(
    st.tuples(st.integers(0, 500).map(lambda n: f"ins-{n:08d}"), NAMES, st.sampled_from(["t1", "t2", "t3"])),
    max_size=60,
    unique_by=lambda row: row[0],
).map(lambda rows: [(pk, name, tenant, f"Tenant {tenant}") for pk, name, tenant in rows])


@given(ROWS, st.sets(st.integers(0, 500).map(lambda n: f"ins-{n:08d}")))
def test_the_first_by_name_are_named_and_all_are_counted(rows: list[tuple[str, str, str, str]], ids: set[str]) -> None:
    affected = incidents.affected_of_owners(rows, Owners(tuple(ids), False, False))
    own = [row for row in rows if row[0] in ids]
    assert affected.instances == len(own)
    assert affected.tenants == len({row[2] for row in own})
    names = sorted((tenant, name) for _pk, name, _tenant_id, tenant in own)
    assert [(instance.tenant, instance.instance) for instance in affected.named_instances] == names[:AFFECTED_NAMED_MAX]


@given(ROWS)
def test_the_sentence_says_how_many_are_not_named(rows: list[tuple[str, str, str, str]]) -> None:
    affected = incidents.affected_of_owners(rows, Owners(tuple(row[0] for row in rows), False, False))
    text = incidents.describe(affected)
    more = re.search(r" and ([\d,]+) more\.$", text)
    assert (int(more[1]) if more else 0) == max(0, len(rows) - AFFECTED_NAMED_MAX)
    assert text.count("Tenant ") == len({instance.tenant for instance in affected.named_instances})


def test_instances_stand_behind_their_tenants() -> None:
    named_instances = (
        AffectedInstance("Acme", "billing"),
        AffectedInstance("Acme", "orders"),
        AffectedInstance("Beta", "logs"),
    )
    affected = Affected(named_instances=named_instances, instances=3, tenants=2)
    assert incidents.describe(affected) == "Instances it hits: 3, of tenants: 2. Acme (billing, orders); Beta (logs)."
    assert incidents.describe(Affected(named_instances=(), instances=0, tenants=0)) == "It hits no instance."
    partial = Affected(named_instances=named_instances, instances=3, tenants=2, is_more=True)
    assert incidents.describe(partial).endswith("Beta (logs). Not all partitions were looked at.")


def test_topics_of_the_cluster_itself_are_said_to_concern_any_instance() -> None:
    affected = Affected(named_instances=(), instances=0, tenants=0, has_internal=True)
    assert incidents.describe(affected).startswith("It hits no topic of an instance. The cluster's own topics")
