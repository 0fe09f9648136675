"""Cursor pages: reading all pages returns every row once, also during changes."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.api.pages import decode_token, encode_token, page_of_items
from tenants.choices import Role
from tenants.errors import DomainError
from tenants.limits import PAGE_SIZE_MAX
from tenants.models import Member
from tests.testkit.api_cases import Api, assert_problem, make_member, make_user

NAMES = st.sets(st.text(string.ascii_letters + "_.-", min_size=1, max_size=6), max_size=40)


@pytest.fixture()
def owner(db: None) -> Member:
    return make_member()


def read_all(api: Api, path: str, page_size: int) -> list[dict[str, Any]]:
    """Follows next_page_token to the end."""
    items: list[dict[str, Any]] = []
    token = ""
    joint = "&" if "?" in path else "?"
    while True:
        page = api.get(f"{path}{joint}page_size={page_size}{token}").json()
        assert len(page["items"]) <= page_size
        items += page["items"]
        if page["next_page_token"] is None:
            return items
        assert len(page["items"]) == page_size
        token = f"&page_token={page['next_page_token']}"


@given(names=NAMES, page_size=st.integers(1, 10))
def test_pages_of_items_hold_everything_once_and_in_order(names: set[str], page_size: int) -> None:
    seen: list[str] = []
    token = None
    while True:
        page, token = page_of_items(names, key=str, page_size=page_size, page_token=token, binding="b")
        seen += page
        if token is None:
            break
    assert seen == sorted(names)


@given(names=NAMES, added=NAMES, removed=NAMES, page_size=st.integers(1, 10))
def test_an_item_present_throughout_is_seen_once_even_when_the_list_changes(
    names: set[str], added: set[str], removed: set[str], page_size: int
) -> None:
    first, token = page_of_items(names, key=str, page_size=page_size, page_token=None, binding="b")
    changed = (names | added) - removed
    seen = list(first)
    while token is not None:
        page, token = page_of_items(changed, key=str, page_size=page_size, page_token=token, binding="b")
        seen += page
    assert len(seen) == len(set(seen))
    assert (names - removed) <= set(seen)


@pytest.mark.parametrize("page_size", [1, 2, 3, 7, 50])
def test_pages_of_rows_hold_everything_once_even_with_equal_sort_keys(owner: Member, page_size: int) -> None:
    members = [Member.objects.create(tenant=owner.tenant, user=make_user(), role=Role.VIEWER) for _ in range(7)]
    Member.objects.filter(tenant=owner.tenant).update(created_at=owner.created_at)
    ids = [item["id"] for item in read_all(Api.of(owner), "/members", page_size)]
    assert ids == sorted(member.pk for member in [owner, *members])


def test_descending_pages_go_on_behind_the_last_item_when_newer_ones_arrive(owner: Member) -> None:
    api = Api.of(owner)
    for number in range(4):
        api.post("/tokens", {"name": f"t{number}", "scopes": ["members:read"]})
    page = api.get("/tokens?page_size=2").json()
    api.post("/tokens", {"name": "newest", "scopes": ["members:read"]})
    rest = api.get(f"/tokens?page_size=9&page_token={page['next_page_token']}").json()
    assert [item["name"] for item in page["items"] + rest["items"]] == ["t3", "t2", "t1", "t0", "test"]


def test_a_token_belongs_to_one_list_with_one_set_of_filters(owner: Member) -> None:
    api = Api.of(owner)
    token = api.get("/audit?page_size=1").json()["next_page_token"]
    assert api.get(f"/audit?page_size=7&page_token={token}").status_code == 200
    for other in ("/members?", "/audit?action=token.created&", "/tokens?"):
        assert_problem(api.get(f"{other}page_token={token}"), 400, "invalid_page_token")


@pytest.mark.parametrize("token", ["x", "", "a.b.c", "e30:1:2", "x" * 5000, "%00"])
def test_a_forged_token_is_400(owner: Member, token: str) -> None:
    assert_problem(Api.of(owner).get(f"/members?page_token={token}"), 400)


@pytest.mark.parametrize("size", ["0", "-1", str(PAGE_SIZE_MAX + 1), "many", "1.5", ""])
def test_a_page_size_out_of_bounds_is_400_and_named(owner: Member, size: str) -> None:
    problem = assert_problem(Api.of(owner).get(f"/members?page_size={size}"), 400)
    assert problem["errors"][0]["parameter"] == "page_size"


@given(keys=st.lists(st.integers() | st.text(max_size=10) | st.datetimes(), min_size=1, max_size=3))
def test_a_token_gives_back_its_keys(keys: list[Any]) -> None:
    assert decode_token(encode_token(keys, "here"), "here", len(keys)) == keys
    with pytest.raises(DomainError):
        decode_token(encode_token(keys, "here"), "there", len(keys))
