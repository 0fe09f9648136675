"""Plans taken off sale: they stay with the instances that have them, and are not sold to others."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.test import Client
from django.urls import reverse

from billing import selectors, services
from billing.models import Plan
from instances.services.sizes import terms_for
from tenants.errors import Invalid
from tests.testkit.api_cases import make_member
from tests.testkit.instances import make_instance

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def plans() -> None:
    services.ensure_default_plans()
    Plan.objects.filter(code="brook").update(on_sale=False)


def test_a_holder_of_the_plan_may_have_more_of_it() -> None:
    assert terms_for("brook", bandwidth_mb_s=None, storage_gb=None, current_plan="brook").code == "brook"


@pytest.mark.parametrize("held", [None, "stream"])
def test_nobody_else_is_sold_it(held: str | None) -> None:
    with pytest.raises(Invalid):
        terms_for("brook", bandwidth_mb_s=None, storage_gb=None, current_plan=held)
    assert terms_for(None, bandwidth_mb_s=1, storage_gb=1, current_plan="brook").code == "stream"


def test_its_instances_are_shown_what_they_cost_and_can_be_resized(client: Client) -> None:
    owner = make_member()
    instance = make_instance(owner.tenant)
    client.force_login(owner.user)

    price = selectors.quote_for(Plan.objects.get(code="brook"), currency="EUR", bandwidth_mb_s=5, storage_gb=20)
    assert price is not None
    assert price.per_hour > Decimal(0)
    page = client.get(reverse("page-instance-resize", args=[instance.pk]))
    assert list(page.context["form"].plans) == ["brook", "stream", "river", "delta"]
    assert page.context["current"] == price
    asked = {"plan": "brook", "bandwidth_mb_s": "6", "storage_gb": "20"}
    assert client.get(reverse("page-price"), asked).status_code == 200
    client.force_login(make_member().user)
    assert client.get(reverse("page-price"), asked).context["quote"] is None
