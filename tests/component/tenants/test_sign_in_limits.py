"""Guessed passwords: failures count by address and by account, and no stranger can lock an account."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from tenants import hashing, limits, services
from tenants.models import User
from tests.testkit.api_cases import PASSWORD, make_member, make_user

pytestmark = pytest.mark.django_db
OPERATORS_PASSWORD = "long enough for ops"
REFUSED = "Too many failed login attempts"


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture()
def user() -> User:
    return make_member().user


@pytest.fixture()
def operator() -> User:
    return services.create_operator(email="ops@example.com", password=OPERATORS_PASSWORD)[0]


def sign_in(email: str, password: str, address: str) -> Any:
    return Client(REMOTE_ADDR=address).post(reverse("account_login"), {"login": email, "password": password})


def enter_panel(email: str, password: str, address: str) -> Any:
    return Client(REMOTE_ADDR=address).post(reverse("admin:login"), {"username": email, "password": password})


def is_in(answer: Any) -> bool:
    assert answer.status_code in (200, 302), answer.content
    return bool(answer.status_code == 302)


def address(number: int) -> str:
    return f"198.51.{number // 250}.{number % 250 + 1}"


def test_guesses_at_an_account_from_one_address_are_limited_and_the_right_password_works_elsewhere(
    user: User,
) -> None:
    for _ in range(limits.SIGN_IN_FAILURES_PER_ACCOUNT_AND_ADDRESS_MAX):
        assert not is_in(sign_in(user.email, "a guess", "192.0.2.1"))
    refused = sign_in(user.email.upper(), PASSWORD, "192.0.2.1")
    assert REFUSED in refused.content.decode()
    assert is_in(sign_in(user.email, PASSWORD, "192.0.2.2"))


def test_guesses_of_an_address_are_limited_over_all_accounts() -> None:
    for number in range(limits.SIGN_IN_FAILURES_PER_ADDRESS_AND_MINUTE_MAX):
        assert not is_in(sign_in(f"nobody-{number}@example.com", "a guess", "192.0.2.1"))
    assert REFUSED in sign_in(make_user().email, PASSWORD, "192.0.2.1").content.decode()


def test_an_ipv6_network_is_one_address(user: User) -> None:
    for number in range(limits.SIGN_IN_FAILURES_PER_ACCOUNT_AND_ADDRESS_MAX):
        assert not is_in(sign_in(user.email, "a guess", f"2001:db8:0:1::{number + 1:x}"))
    assert REFUSED in sign_in(user.email, PASSWORD, "2001:db8:0:1:ffff::9").content.decode()
    assert is_in(sign_in(user.email, PASSWORD, "2001:db8:0:2::1"))


def test_an_account_attacked_from_everywhere_stays_open_where_its_owner_was_before(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SIGN_IN_FAILURES_PER_ACCOUNT_AND_HOUR_MAX", 12)
    assert is_in(sign_in(user.email, PASSWORD, "192.0.2.1"))
    for number in range(12):
        assert not is_in(sign_in(user.email, "a guess", address(number)))
    assert REFUSED in sign_in(user.email, PASSWORD, address(100)).content.decode(), "guessing has no end"
    assert is_in(sign_in(user.email, PASSWORD, "192.0.2.1")), "the owner is locked out by somebody else"


def test_successful_sign_ins_are_not_counted(user: User) -> None:
    for _ in range(2 * limits.SIGN_IN_FAILURES_PER_ADDRESS_AND_MINUTE_MAX):
        assert is_in(sign_in(user.email, PASSWORD, "192.0.2.1"))


def test_a_flood_at_tenants_accounts_keeps_no_operator_out_nor_the_reverse(user: User, operator: User) -> None:
    for number in range(limits.SIGN_IN_FAILURES_PER_ADDRESS_AND_MINUTE_MAX):
        sign_in(f"nobody-{number}@example.com", "a guess", "192.0.2.1")
    assert REFUSED in sign_in(user.email, PASSWORD, "192.0.2.1").content.decode()
    assert is_in(enter_panel(operator.email, OPERATORS_PASSWORD, "192.0.2.1"))
    for number in range(limits.SIGN_IN_FAILURES_PER_ADDRESS_AND_MINUTE_MAX):
        enter_panel(f"nobody-{number}@example.com", "a guess", "192.0.2.2")
    assert REFUSED in enter_panel(operator.email, OPERATORS_PASSWORD, "192.0.2.2").content.decode()
    assert is_in(sign_in(user.email, PASSWORD, "192.0.2.2"))


def test_a_tenants_right_password_at_the_panel_is_a_failure_like_any_other(user: User) -> None:
    answers = [
        enter_panel(user.email, PASSWORD, "192.0.2.1").content.decode()
        for _ in range(limits.SIGN_IN_FAILURES_PER_ACCOUNT_AND_ADDRESS_MAX + 1)
    ]
    assert [REFUSED in answer for answer in answers] == [False] * (len(answers) - 1) + [True]


@pytest.mark.parametrize("entrance", [sign_in, enter_panel])
def test_every_try_costs_one_hashing_whether_the_account_exists_or_not(
    entrance: Any, user: User, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.contrib.auth.hashers import MD5PasswordHasher

    hashed: list[str] = []
    before = MD5PasswordHasher.encode

    def encode(self: MD5PasswordHasher, password: str, salt: str) -> str:
        hashed.append(password)
        return before(self, password, salt)

    monkeypatch.setattr(MD5PasswordHasher, "encode", encode)
    locked = make_user(is_active=False)
    counts = []
    for number, email in enumerate((user.email, "nobody@example.com", locked.email, operator.email)):
        hashed.clear()
        assert not is_in(entrance(email, "a guess", address(number)))
        counts.append(len(hashed))
    assert counts == [1, 1, 1, 1]


def test_a_page_that_waits_in_vain_for_its_turn_says_when_to_come_again(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object, **__: object) -> None:
        raise hashing.HashingBusy

    monkeypatch.setattr("tenants.sign_in.authenticate", busy)
    for _ in range(2 * limits.SIGN_IN_FAILURES_PER_ADDRESS_AND_MINUTE_MAX):  # nor is it counted
        answer = sign_in(user.email, PASSWORD, "192.0.2.1")
        assert (answer.status_code, answer["Retry-After"]) == (503, str(hashing.RETRY_AFTER_S))
    assert "One moment" in answer.content.decode()
    monkeypatch.undo()
    assert is_in(sign_in(user.email, PASSWORD, "192.0.2.1"))
