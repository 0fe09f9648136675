"""Changes over the console are charged to the person, as writes over the API are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client, override_settings

from instances.models import Instance
from tenants import limits
from tenants.models import Invitation, Member
from tests.testkit.api_cases import Api, assert_problem

pytestmark = pytest.mark.django_db

PATHS = (
    "/members/", "/tokens/", "/settings/", "/settings/sso/", "/settings/sso/domains/prove/", "/security/sessions/end/",
    "/budgets/", "/invoices/details/", "/webhooks/", "/alert-rules/", "/archives/", "/instances/{id}/users/",
    "/instances/{id}/settings/", "/instances/{id}/topics/",
)  # fmt: skip
# Form with which no token is made.
NAMELESS = {"name": ""}


@pytest.mark.parametrize("path", PATHS)
def test_a_change_beyond_the_rate_of_a_person_gets_a_page_that_says_so(
    path: str, ida: Client, instance: Instance, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "API_WRITES_PER_MINUTE_MAX", 1)
    path = path.format(id=instance.pk)
    with override_settings(REDIS_URL=redis_url):
        assert ida.post("/tokens/", NAMELESS).status_code == 422
        refused = ida.post(path, NAMELESS)
    assert refused.status_code == 429 and 0 < int(refused["Retry-After"]) <= 60
    words = refused.content.decode()
    assert "Too many changes in a minute. Wait before the next one." in words and "Nothing was changed." in words


def test_reading_pages_goes_on_after_too_many_changes_and_other_people_are_not_charged(
    ida: Client, join: Callable[[str], Member], browse: Callable[[Member], Client], redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    admin = browse(join("admin"))
    monkeypatch.setattr(limits, "API_WRITES_PER_MINUTE_MAX", 2)
    invited = {"role": "viewer"}
    with override_settings(REDIS_URL=redis_url):
        statuses = [
            ida.post("/members/", {**invited, "email": f"mail{number}@halvorsen.example"}).status_code
            for number in range(4)
        ]
        assert statuses == [200, 200, 429, 429]
        assert ida.get("/members/").status_code == 200
        assert admin.post("/tokens/", NAMELESS).status_code == 422
    assert Invitation.objects.filter(accepted_at=None).count() == 2


def test_changes_over_the_console_and_over_the_api_in_one_session_share_a_rate(
    owner: Member, ida: Client, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "API_WRITES_PER_MINUTE_MAX", 1)
    with override_settings(REDIS_URL=redis_url):
        assert ida.post("/tokens/", NAMELESS).status_code == 422
        assert_problem(Api(user=owner.user).post("/tokens", {}), 429, "rate_limited")
