"""Two tabs with two tenants in one session: a form acts on the tenant of its page, whatever the other tab chose."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.test import Client

from instances.models import Instance
from tenants import services
from tenants.actors import member_actor
from tenants.models import ApiToken, Invitation, Member, Tenant

BUY = {
    "name": "orders", "plan": "brook", "bandwidth_mb_s": "5", "storage_gb": "20", "cluster_type": "shared",
}  # fmt: skip
TOKEN = {"name": "deploy", "scopes": ["topics:read"], "days": "30"}
FORMS = (
    ("/instances/new/", BUY),
    ("/members/", {"email": "guest@example.com", "role": "viewer"}),
    ("/tokens/", TOKEN),
    ("/settings/", {"part": "tenant", "name": "Renamed"}),
)


@pytest.fixture
def second(owner: Member) -> Tenant:
    return services.create_own_tenant(user=owner.user, name="Second").tenant


def made_in() -> set[str]:
    """Returns the tenants that have any object that the forms created."""
    rows = [model.objects.values_list("tenant", flat=True) for model in (Instance, Invitation, ApiToken)]
    return {tenant for result in rows for tenant in result} | {row.pk for row in Tenant.objects.filter(name="Renamed")}


@pytest.mark.parametrize(("address", "values"), FORMS, ids=[address for address, _ in FORMS])
def test_a_form_acts_on_the_tenant_of_its_page(
    ida: Client, owner: Member, second: Tenant, reconciled: list[str], address: str, values: dict[str, str]
) -> None:
    page = ida.get(address).content.decode()
    result = re.search(r'name="in_tenant" value="([^"]+)"', page)
    assert result is not None
    assert result[1] == owner.tenant_id
    ida.post("/tenant/", {"tenant": second.pk})
    answer = ida.post(address, {**values, "in_tenant": result[1]}, follow=True)
    assert answer.status_code in (200, 422)
    assert made_in() == {owner.tenant_id}


def test_a_form_of_a_tenant_that_one_has_left_does_nothing(
    join: Callable[[str], Member], browse: Callable[[Member], Client], reconciled: list[str]
) -> None:
    member = join("admin")
    tab = browse(member)
    services.remove_member(acting=member_actor(member), member=member)
    before = made_in()
    answer = tab.post("/instances/new/", {**BUY, "in_tenant": member.tenant_id})
    assert answer.status_code == 404
    assert made_in() == before


def test_a_strangers_tenant_in_a_form_is_not_found(ida: Client, stranger: Member, owner: Member) -> None:
    assert ida.post("/tokens/", {**TOKEN, "in_tenant": stranger.tenant_id}).status_code == 404
    assert ida.post("/tokens/", {**TOKEN, "in_tenant": "ten-\x00"}).status_code == 404
    assert not ApiToken.objects.exists()
