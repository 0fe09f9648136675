"""Limits of failed passwords and codes, counted by address and by account.

Passwords in the console, passwords in the operator panel, and codes of second factors are counted separately. There are
three limits, checked in this order, none of which reveals whether the account exists:

* of an address, for any accounts;
* of an account from one address;
* of an account from all addresses together. Addresses from which the account was recently signed in to are exempt: an
  attacker from many addresses can lock out the owner only from new places, where a password reset by e-mail helps.

An attempt is counted before the check and uncounted if it succeeds, so that concurrent attempts cannot bypass the
limit. Counters are in the cache. If that is lost, counting restarts.
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


class LoginScope(StrEnum):
    """Kind of sign-in. Each has counters of its own, so that a flood of one kind does not block the others."""

    CONSOLE = "console"
    OPERATOR = "operator"
    CODE = "code"


def rates(scope: LoginScope) -> dict[str, str]:
    """Returns the limits in the format of `counting`, in the order of checks."""
    account_limit = limits.SIGN_IN_FAILURES_PER_ACCOUNT_AND_HOUR_MAX
    if scope is LoginScope.CODE:
        account_limit = limits.CODE_FAILURES_PER_ACCOUNT_AND_HOUR_MAX
    window_s = limits.SIGN_IN_ACCOUNT_AND_ADDRESS_WINDOW_S
    return {
        "sign_in_address": f"{limits.SIGN_IN_FAILURES_PER_ADDRESS_AND_MINUTE_MAX}/m",
        "sign_in_account_and_address": f"{limits.SIGN_IN_FAILURES_PER_ACCOUNT_AND_ADDRESS_MAX}/{window_s}s",
        "sign_in_account": f"{account_limit}/h",
    }


def password_holder(
    request: HttpRequest, scope: LoginScope, email: str, password: str, *, may_enter: Callable[[User], bool]
) -> User | None:
    """Returns the user if the password is right and `may_enter` returns True.

    All other cases return None after one hashing and count as a failure. Raises `RateLimited` after too many failures,
    and `hashing.HashingBusy`.
    """
    attempt = Attempt(request, scope, email)
    attempt.begin()
    try:
        with hashing.for_operators(scope is LoginScope.OPERATOR):
            user = authenticate(request, username=attempt.email, password=password)
    except hashing.HashingBusy:
        attempt.uncount()
        raise
    if user is None or not may_enter(user):
        return None
    attempt.uncount()
    record_known_address(request, scope, attempt.email)
    return user


def record_known_address(request: HttpRequest, scope: LoginScope, email: str) -> None:
    """Exempts the client's address from the account's limit over all addresses, since the owner signed in from it."""
    known_s = limits.SIGN_IN_ADDRESS_KNOWN_DAYS * 86_400
    cache.set(Attempt(request, scope, email).known_address_key, True, known_s)


def count_address(request: HttpRequest, scope: LoginScope) -> counting.RateLimitUsage:
    """Counts an attempt from an address without a known account. Raises `RateLimited`."""
    key = f"{scope}\n{counting.network_of(request)}"
    usage = counting.count(request, "sign_in_address", rates(scope)["sign_in_address"], key)
    if usage is None:
        raise too_many_failures()
    return usage


def too_many_failures() -> RateLimited:
    detail = "Too many failed sign-ins. Wait a few minutes, or choose a new password by e-mail."
    return RateLimited(detail, retry_after_s=RETRY_AFTER_S)


def clear_failures(request: HttpRequest, scope: LoginScope, email: str) -> None:
    """Clears failures after a reset by e-mail, so that the owner can sign in immediately.

    Not for codes, since a mailbox is no second factor.
    """
    attempt = Attempt(request, scope, email)
    for action in ("sign_in_account_and_address", "sign_in_account"):
        counting.reset(request, action, rates(scope)[action], attempt.keys[action])
    record_known_address(request, scope, email)


class Attempt:
    """Attempt for one account from one address: `begin` counts it, `uncount` uncounts it after a success."""

    def __init__(self, request: HttpRequest, scope: LoginScope, email: str) -> None:
        self.request, self.scope = request, scope
        self.email = UserManager.normalize_email(email)
        network = counting.network_of(request)
        self.keys = {
            "sign_in_address": f"{scope}\n{network}",
            "sign_in_account_and_address": f"{scope}\n{network}\n{self.email}",
            "sign_in_account": f"{scope}\n\n{self.email}",
        }
        digest = hashlib.sha256(self.keys["sign_in_account_and_address"].encode()).hexdigest()
        self.known_address_key = f"sign_in_known:{digest}"
        self.usages: list[counting.RateLimitUsage] = []

    def begin(self) -> None:
        is_known = bool(cache.get(self.known_address_key))
        for action, rate in rates(self.scope).items():
            if is_known and action == "sign_in_account":
                continue
            usage = counting.count(self.request, action, rate, self.keys[action])
            if usage is None:
                raise too_many_failures()
            self.usages.append(usage)

    def uncount(self) -> None:
        for usage in self.usages:
            usage.rollback()
