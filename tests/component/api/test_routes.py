"""The table of routes: permissions of each, and the guarantees that tests cover."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from tenants import access
from tenants.api.endpoint import ANYBODY, SIGNED_IN, Endpoint
from tenants.choices import Role, Scope
from tests.component.archives import test_archives as of_archives
from tests.component.billing import test_api as of_billing
from tests.component.billing import test_budgets as of_budgets
from tests.component.billing import test_coupons as of_coupons
from tests.component.billing import test_details as of_details
from tests.component.billing import test_invoice_api as of_invoices
from tests.component.billing import test_invoice_replays as of_replays
from tests.component.billing import test_ledger_pages as of_ledger
from tests.component.instances import test_endpoints as of_instances
from tests.component.notifications import test_alert_rules as of_alert_rules
from tests.component.notifications import test_webhooks as of_webhooks
from tests.component.quotas import test_quota_api as of_quotas
from tests.component.tenants import test_endpoints as of_tenants
from tests.component.tenants import test_sso_endpoints as of_sso
from tests.testkit.api_cases import Api, Case, EndpointCases, assert_problem, make_member

PREFIX = "api/v1/"
CONVERTER = re.compile(r"<(?:\w+:)?(\w+)>")
UNKNOWN = "zzz-00000000"


@dataclass(frozen=True)
class Route:
    """One method of one address; `{name}` stands for a parameter."""

    method: str
    path: str
    message: Endpoint

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def place(self) -> str:
        return CONVERTER.sub(UNKNOWN, self.path)


def _patterns(resolver: URLResolver, before: str = "") -> Iterator[tuple[str, URLPattern]]:
    for pattern in resolver.url_patterns:
        path = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _patterns(pattern, path)
        else:
            yield path, pattern


def _routes() -> Iterator[Route]:
    for path, pattern in _patterns(get_resolver()):
        view: Any = getattr(pattern.callback, "cls", None)
        for method in ("get", "post", "put", "patch", "delete") if path.startswith(PREFIX) else ():
            if hasattr(view, method):
                yield Route(method.upper(), "/" + path.removeprefix(PREFIX), getattr(view, method).endpoint)


ROUTES = tuple(_routes())
OF_OPERATORS = tuple(route for route in ROUTES if route.message.scope == Scope.OPERATOR)
OF_TENANTS = tuple(route for route in ROUTES if route not in OF_OPERATORS)


def _cases() -> Iterator[Case]:
    for module in (
        of_alert_rules, of_archives, of_billing, of_budgets, of_coupons, of_details, of_invoices, of_ledger,
        of_replays, of_webhooks, of_instances, of_quotas, of_sso, of_tenants,
    ):  # fmt: skip
        for var in vars(module).values():
            if isinstance(var, type) and issubclass(var, EndpointCases):
                yield from var.cases


def _shape(path: str) -> str:
    """Returns an address with its parameters as names, without a query."""
    return re.sub(r"\{\w+\}", "{}", CONVERTER.sub("{}", path).partition("?")[0])


def test_every_route_of_tenants_is_called_without_scope_as_viewer_and_as_a_stranger() -> None:
    called = {(case.method, _shape(case.path)) for case in _cases()}
    scoped = [route for route in OF_TENANTS if route.message.scope not in (SIGNED_IN, ANYBODY)]
    assert [str(route) for route in scoped if (route.method, _shape(route.path)) not in called] == []


def test_a_token_is_made_for_what_some_route_asks_for_and_for_nothing_else() -> None:
    asked_for = {str(route.message.scope) for route in ROUTES} - {str(SIGNED_IN), str(ANYBODY)}
    assert asked_for == access.TOKEN_SCOPES


def test_routes_without_a_scope_have_no_parameter_in_their_path() -> None:
    free = [route for route in ROUTES if route.message.scope in (SIGNED_IN, ANYBODY)]
    assert [str(route) for route in free if "<" in route.path] == []


@pytest.mark.django_db
def test_only_operators_learn_what_an_operators_route_answers() -> None:
    """For others the answer is the same, whether the resource exists or not."""
    owner, operator, looker = make_member(), make_member(), make_member()
    for member in (operator, looker):
        member.user.is_staff = True
        member.user.is_superuser = member is operator
        member.user.save()
    tokens = [Api.of(owner), Api.of(operator, access.ROLE_SCOPES[Role.OWNER]), Api.of(looker, [Scope.OPERATOR])]
    session = Api(user=owner.user)
    for route in OF_OPERATORS:
        assert_problem(Api().call(route.method, route.place), 401, "unauthenticated")
        for caller in (*tokens, session):
            assert_problem(caller.call(route.method, route.place), 403, "permission_denied")


@pytest.mark.django_db
def test_a_write_to_what_has_no_version_is_not_carried_out_under_an_if_match() -> None:
    """A request with an If-Match must not change anything else than that version."""
    member = make_member()
    member.user.is_staff = member.user.is_superuser = True
    member.user.save()
    caller = Api.of(member)
    for route in ROUTES:
        if route.method != "GET" and not route.message.requires_if_match:
            for named in ('"0123456789abcdef"', ""):
                assert_problem(caller.call(route.method, route.place, If_Match=named), 412, "precondition_failed")
            answer = caller.call(route.method, route.place, If_Match="*")
            assert answer.status_code in (204, 400, 401, 403, 404), str(route)
