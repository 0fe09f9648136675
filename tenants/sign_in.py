"""Trying a password or a code: what fails is counted by address and by account, apart for passwords at the console,
passwords at the operator panel, and codes of second factors.

Three limits, in this order, none of which says whether the account exists:

* of an address, for whatever accounts;
* of an account from one address;
* of an account from all addresses together. Addresses from which the account was signed in to lately are not bound by
  it: who attacks an account from everywhere keeps its owner out only of places the owner has never been, and there a
  new password by e-mail opens the way.

A try is counted before the password is looked at and given back when it was right, so tries at once are no way around.
What was counted is in the cache. Where that is lost, counting begins anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from enum import StrEnum

from django.contrib.auth import authenticate
from django.core.cache import cache
from django.http import HttpRequest

from tenants import counting, hashing, limits
from tenants.errors import RateLimited
from tenants.models import User, UserManager

RETRY_AFTER_S = 60


class Entrance(StrEnum):
    """Where a password is tried, or a code. A flood at one does not close the other."""

    CONSOLE = "console"
    OPERATOR = "operator"
    CODE = "code"


def rates(entrance: Entrance) -> dict[str, str]:
    """The limits as `counting` reads them, in the order in which they are asked."""
    of_account = limits.SIGN_IN_FAILURES_PER_ACCOUNT_AND_HOUR_MAX
    if entrance is Entrance.CODE:
        of_account = limits.CODE_FAILURES_PER_ACCOUNT_AND_HOUR_MAX
    window_s = limits.SIGN_IN_ACCOUNT_AND_ADDRESS_WINDOW_S
    return {
        "sign_in_address": f"{limits.SIGN_IN_FAILURES_PER_ADDRESS_AND_MINUTE_MAX}/m",
        "sign_in_account_and_address": f"{limits.SIGN_IN_FAILURES_PER_ACCOUNT_AND_ADDRESS_MAX}/{window_s}s",
        "sign_in_account": f"{of_account}/h",
    }


def password_holder(
    request: HttpRequest, entrance: Entrance, email: str, password: str, *, may_enter: Callable[[User], bool]
) -> User | None:
    """Whose account this is, if the password is right and `may_enter` agrees. Every other case is the same None after
    one hashing, and counts as a failure.

    Raises `RateLimited` where too many have failed, and `hashing.Busy`.
    """
    attempt = Attempt(request, entrance, email)
    attempt.begin()
    try:
        with hashing.for_operators(entrance is Entrance.OPERATOR):
            user = authenticate(request, username=attempt.email, password=password)
    except hashing.Busy:
        attempt.give_back()
        raise
    if user is None or not may_enter(user):
        return None
    attempt.give_back()
    note_known_address(request, entrance, attempt.email)
    return user


def note_known_address(request: HttpRequest, entrance: Entrance, email: str) -> None:
    """The owner was here: what others do elsewhere does not count against this address."""
    known_s = limits.SIGN_IN_ADDRESS_KNOWN_DAYS * 86_400
    cache.set(Attempt(request, entrance, email).known_key, True, known_s)


def count_address(request: HttpRequest, entrance: Entrance) -> counting.RateLimitUsage:
    """One try from an address where nobody says yet whose account it is. Raises `RateLimited`."""
    key = f"{entrance}\n{counting.network_of(request)}"
    usage = counting.count(request, "sign_in_address", rates(entrance)["sign_in_address"], key)
    if usage is None:
        raise too_many()
    return usage


def too_many() -> RateLimited:
    detail = "Too many failed sign-ins. Wait a few minutes, or choose a new password by e-mail."
    return RateLimited(detail, retry_after_s=RETRY_AFTER_S)


def forget_failures(request: HttpRequest, entrance: Entrance, email: str) -> None:
    """After a new password by e-mail: its owner signs in from here at once. Never for codes, of which a mailbox is no
    proof.
    """
    attempt = Attempt(request, entrance, email)
    for action in ("sign_in_account_and_address", "sign_in_account"):
        counting.forget(request, action, rates(entrance)[action], attempt.keys[action])
    note_known_address(request, entrance, email)


class Attempt:
    """One try at one account from one address: `begin`, and `give_back` if it was right."""

    def __init__(self, request: HttpRequest, entrance: Entrance, email: str) -> None:
        self.request, self.entrance = request, entrance
        self.email = UserManager.normalize_email(email)
        network = counting.network_of(request)
        self.keys = {
            "sign_in_address": f"{entrance}\n{network}",
            "sign_in_account_and_address": f"{entrance}\n{network}\n{self.email}",
            "sign_in_account": f"{entrance}\n\n{self.email}",
        }
        digest = hashlib.sha256(self.keys["sign_in_account_and_address"].encode()).hexdigest()
        self.known_key = f"sign_in_known:{digest}"
        self.usages: list[counting.RateLimitUsage] = []

    def begin(self) -> None:
        is_known = bool(cache.get(self.known_key))
        for action, rate in rates(self.entrance).items():
            if is_known and action == "sign_in_account":
                continue
            usage = counting.count(self.request, action, rate, self.keys[action])
            if usage is None:
                raise too_many()
            self.usages.append(usage)

    def give_back(self) -> None:
        for usage in self.usages:
            usage.rollback()
