"""Pages of routes: create, change, delete, and the confirmation before a route is open to everybody."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from instances import interfaces, services
from instances.models import Instance, Operation, Route
from instances.routes.kinds import CIDRS_MAX, ROUTES_MAX
from instances.views import route_certificates
from tenants.models import AuditEntry, Member
from tests.component.console.test_acts import text_of
from tests.testkit.fleet import plugged

NEW = {"name": "office", "security": "sasl_tls", "allow_list": "192.0.2.0/24\n198.51.100.7", "connections_max": "500"}


@pytest.fixture(autouse=True)
def on_loopback() -> Iterator[None]:
    with plugged(interfaces.exposure, lambda: False):
        yield


@pytest.fixture
def beyond_loopback(on_loopback: None) -> Iterator[None]:
    with plugged(interfaces.exposure, lambda: True):
        yield


def at(instance: Instance, name: str = "", page: str = "page-route") -> str:
    return reverse(page, args=[instance.pk, name]) if name else reverse("page-routes", args=[instance.pk])


def only_route(instance: Instance) -> Route:
    (route,) = instance.routes.all()
    return route


@pytest.fixture
def second(instance: Instance) -> Route:
    """A TLS route beside the first one, both with addresses."""
    first = only_route(instance)
    first.endpoints = instance.endpoints
    first.save()
    endpoints = {"1": "kafka.example:19101", "2": "kafka.example:19102"}
    return Route.objects.create(instance=instance, name="outside", security="tls", endpoints=endpoints)


def test_the_list_says_of_each_route_what_it_is(ida: Client, instance: Instance, second: Route) -> None:
    second.allow_list, second.proxies, second.connections_max = ["10.0.0.0/8"], ["10.0.0.1", "10.0.0.2"], 1_200
    second.save()
    shown = text_of(ida.get(at(instance)))
    for words in (
        "default", "Username and password, not encrypted", "SASL_PLAINTEXT", 'data-copy="127.0.0.1:19001,',
        "outside", "Encrypted, without users", 'data-copy="kafka.example:19101,kafka.example:19102"', "1 entry",
        "1,200", "19101, 19102", "the instance's address",
    ):  # fmt: skip
        assert words in shown, words


def test_the_certificate_of_the_authority_is_offered_where_a_route_needs_it(
    ida: Client, instance: Instance, second: Route
) -> None:
    link = 'href="/api/v1/ca.pem" download="penstock-ca.pem"'
    assert link in text_of(ida.get(at(instance)))
    assert link in text_of(ida.get(at(instance, "outside")))
    second.delete()
    assert link not in text_of(ida.get(at(instance)))


def test_a_route_is_opened_and_its_progress_shown(ida: Client, instance: Instance) -> None:
    response = ida.post(at(instance), NEW)
    assert response["Location"] == at(instance, "office")
    made = instance.routes.get(name="office")
    assert (made.security, made.allow_list, made.connections_max) == (
        "sasl_tls", ["192.0.2.0/24", "198.51.100.7"], 500,
    )  # fmt: skip
    operation = Operation.objects.get(instance=instance, type="instance.routes")
    shown = text_of(ida.get(response["Location"]))
    assert f"operations/{operation.pk}/?back=routes" in shown
    assert "Fixed as soon as it is reserved." in shown
    assert AuditEntry.objects.filter(action="route.created", tenant=instance.tenant).count() == 1


def test_when_it_is_open_the_steps_lead_back_to_the_routes(ida: Client, instance: Instance) -> None:
    ida.post(at(instance), NEW)
    operation = Operation.objects.get(instance=instance, type="instance.routes")
    place = reverse("page-steps", args=[instance.pk, operation.pk])
    assert "data-go" not in text_of(ida.get(f"{place}?back=routes"))
    operation.state, operation.finished_at = "succeeded", operation.created_at
    operation.save()
    assert f'data-go="{at(instance)}"' in text_of(ida.get(f"{place}?back=routes"))
    assert "data-go" not in text_of(ida.get(f"{place}?back=https://elsewhere.example/"))
    assert "?back=routes" not in text_of(ida.get(at(instance)))


def test_a_failed_change_is_said_with_its_step(ida: Client, instance: Instance) -> None:
    ida.post(at(instance), NEW)
    operation = Operation.objects.get(instance=instance, type="instance.routes")
    operation.state, operation.finished_at = "failed", operation.created_at
    operation.steps[1] |= {"state": "failed"}
    operation.save()
    shown = text_of(ida.get(at(instance)))
    assert 'class="broken"' in shown


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"name": "default"}, "name", "Another route of this instance has this name."),
        ({"name": "Office"}, "name", "Use a to z"),
        ({"allow_list": "10.0.0.1/8"}, "allow_list", "has host bits set"),
        ({"proxies": "proxy.example"}, "proxies", "does not appear to be"),
        ({"connections_max": "0"}, "connections_max", "greater than or equal to 1"),
        ({"advertised_host": "kafka.example:9092"}, "advertised_host", "A port is not part of it."),
        ({"security": "none"}, "security", "Select a valid choice"),
    ],
)
def test_a_wrong_value_is_reported_beside_its_field_and_changes_nothing(
    ida: Client, instance: Instance, change: dict[str, str], field: str, words: str
) -> None:
    response = ida.post(at(instance), NEW | change)
    assert response.status_code == 422
    assert words in text_of(response)
    assert re.search(rf'name="{field}"[^>]*aria-invalid="true"', text_of(response))
    assert only_route(instance).name == "default"


@pytest.mark.parametrize("field", ["allow_list", "proxies"])
def test_a_list_is_as_long_as_it_may_be_and_no_longer(ida: Client, instance: Instance, field: str) -> None:
    longest = [f"2001:db8:ffff:ffff:ffff:ffff:ffff:{number:x}/128" for number in range(CIDRS_MAX)]
    refused = ida.post(at(instance), NEW | {field: "\n".join([*longest, "::1"])})
    assert (refused.status_code, "at most 512 entries" in text_of(refused)) == (422, True)
    assert (
        ida.post(at(instance), NEW | {"allow_list": "\r\n".join(longest), "proxies": "\r\n".join(longest)}).status_code
        == 302
    )
    assert len(getattr(instance.routes.get(name="office"), field)) == CIDRS_MAX
    assert ida.get(at(instance, "office")).status_code == 200


def test_a_route_without_security_is_confirmed_beyond_loopback(
    ida: Client, instance: Instance, beyond_loopback: None
) -> None:
    assert 'name="confirm_plaintext"' in text_of(ida.get(at(instance)))
    wanted = NEW | {"security": "plaintext"}
    refused = ida.post(at(instance), wanted)
    assert refused.status_code == 422
    assert "Confirm it below, or choose another security." in text_of(refused)
    assert only_route(instance).name == "default"
    assert ida.post(at(instance), wanted | {"confirm_plaintext": "on"}).status_code == 302
    assert "confirm_plaintext" not in text_of(ida.get(at(instance, "office")))
    changed = wanted | {"part": "change", "connections_max": "7"}
    assert ida.post(at(instance, "office"), changed).status_code == 302
    assert instance.routes.get(name="office").connections_max == 7


def test_on_ones_own_machine_nothing_is_confirmed(ida: Client, instance: Instance) -> None:
    assert "confirm_plaintext" not in text_of(ida.get(at(instance)))
    assert ida.post(at(instance), NEW | {"security": "plaintext"}).status_code == 302


def test_a_route_is_changed_and_what_is_the_same_changes_nothing(
    ida: Client, instance: Instance, second: Route
) -> None:
    shown = text_of(ida.get(at(instance, "outside")))
    assert "Another security closes all connections of the route," in shown
    body = {"part": "change", "security": "sasl_tls", "allow_list": "", "proxies": "10.0.0.1", "advertised_host": ""}
    assert ida.post(at(instance, "outside"), body).status_code == 302
    second.refresh_from_db()
    assert (second.security, second.proxies) == ("sasl_tls", ["10.0.0.1"])
    assert "That was in force already." in text_of(ida.post(at(instance, "outside"), body, follow=True))
    assert AuditEntry.objects.filter(action="route.changed").count() == 1
    wrong = ida.post(at(instance, "outside"), body | {"advertised_host": "a b"})
    assert wrong.status_code == 422
    assert "Username and password, encrypted" in text_of(wrong)


def test_deleting_says_what_clients_notice_and_wants_the_name(ida: Client, instance: Instance, second: Route) -> None:
    shown = text_of(ida.get(at(instance, "default", "page-route-delete")))
    for words in (
        "closed within a second", "do not come back", "becomes that of outside: kafka.example:19101",
        "the only route by which users sign in",
    ):  # fmt: skip
        assert words in shown
    assert "becomes that of" not in text_of(ida.get(at(instance, "outside", "page-route-delete")))
    ida.post(at(instance, "outside", "page-route-delete"), {"typed": "another"})
    assert instance.routes.count() == 2
    ida.post(at(instance, "outside", "page-route-delete"), {"typed": "outside"})
    assert only_route(instance).name == "default"


def test_the_last_route_cannot_go(ida: Client, instance: Instance) -> None:
    place = at(instance, "default", "page-route-delete")
    assert "only route. Open another one first." in text_of(ida.get(place)).replace("&#x27;", "'")
    refused = ida.post(place, {"typed": "default"}, follow=True)
    assert "only route. Open another one first." in text_of(refused).replace("&#x27;", "'")
    assert only_route(instance).name == "default"


def test_the_form_is_gone_at_the_most_routes(ida: Client, instance: Instance) -> None:
    for number in range(ROUTES_MAX - 1):
        Route.objects.create(instance=instance, name=f"more-{number}", security="tls")
    assert "as many routes as it may" in text_of(ida.get(at(instance)))
    assert ida.post(at(instance), NEW).status_code == 422
    assert instance.routes.count() == ROUTES_MAX


def test_while_the_instance_is_made_there_is_no_form(ida: Client, instance: Instance) -> None:
    instance.phase = "provisioning"
    instance.save()
    assert 'name="security"' not in text_of(ida.get(at(instance)))
    assert ida.post(at(instance), NEW).status_code == 422
    assert only_route(instance).name == "default"


def test_an_instance_of_an_earlier_version_without_routes_has_a_page(ida: Client, instance: Instance) -> None:
    instance.routes.all().delete()
    assert "No route yet" in text_of(ida.get(at(instance)))


def test_each_route_has_its_own_code(ida: Client, instance: Instance, second: Route) -> None:
    shown = text_of(ida.get(at(instance, "outside")))
    assert "ssl.ca.location" in shown
    assert "sasl.username" not in shown
    assert re.search(r"curl -fsS http[^ ]+/api/v1/ca.pem -o penstock-ca.pem", shown)
    assert "kafka.example:19101" in shown
    other = text_of(ida.get(at(instance, "default")))
    assert "sasl.username" in other
    assert "ca.pem" not in other


def test_a_password_comes_with_code_for_the_route_that_takes_it(ida: Client, instance: Instance, second: Route) -> None:
    first = instance.routes.get(name="default")
    first.security = "plaintext"
    first.save()
    second.security = "sasl_tls"
    second.save()
    shown = text_of(ida.post(reverse("page-users", args=[instance.pk]), {"name": "etl"}))
    assert "kafka.example:19101" in shown
    assert "penstock-ca.pem" in shown
    assert "as ANONYMOUS" not in shown


# --- who may ----------------------------------------------------------------------------------------------------------

POSTS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("", "page-routes", NEW),
    ("outside", "page-route", {"part": "change", "security": "plaintext"}),
    ("outside", "page-route", {"part": "client_ca", "ca_pem": "x"}),
    ("outside", "page-route", {"part": "remove_certificate"}),
    ("outside", "page-route-delete", {"typed": "outside"}),
)


def test_a_stranger_finds_nothing_and_changes_nothing(
    stranger: Member, browse: Callable[[Member], Client], instance: Instance, second: Route
) -> None:
    eve = browse(stranger)
    for name, page, body in POSTS:
        assert eve.get(at(instance, name, page)).status_code == 404
        assert eve.post(at(instance, name, page), body).status_code == 404
    assert eve.get(reverse("page-user-names", args=[instance.pk])).status_code == 404
    assert {(route.name, route.security) for route in instance.routes.all()} == {
        ("default", "sasl_plaintext"), ("outside", "tls"),
    }  # fmt: skip
    assert not AuditEntry.objects.filter(action__startswith="route.").exists()


def test_a_viewer_sees_routes_and_changes_none(
    join: Callable[[str], Member], browse: Callable[[Member], Client], instance: Instance, second: Route
) -> None:
    viewer = browse(join("viewer"))
    assert "Owners, admins and developers open routes." in text_of(viewer.get(at(instance)))
    shown = text_of(viewer.get(at(instance, "outside")))
    assert "Owners, admins and developers change these." in shown
    assert "page-route-delete" not in shown
    for name, page, body in POSTS:
        assert viewer.post(at(instance, name, page), body).status_code in (403, 422)
    assert instance.routes.count() == 2
    assert instance.routes.get(name="outside").security == "tls"


def test_a_form_from_another_site_is_refused(owner: Member, instance: Instance, second: Route) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(owner.user, backend="django.contrib.auth.backends.ModelBackend")
    for name, page, body in POSTS:
        assert strict.post(at(instance, name, page), body).status_code == 403
    assert instance.routes.count() == 2


@pytest.mark.parametrize("name", ["nobodys", "..", "%2e%2e", "a/b", "x" * 300])
def test_an_unknown_route_is_not_found(ida: Client, instance: Instance, name: str) -> None:
    assert ida.get(f"{at(instance)}{name}/").status_code == 404


# --- certificates -----------------------------------------------------------------------------------------------------


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Fake services of certificates that record their calls."""
    asked: list[tuple[str, dict[str, Any]]] = []

    def noting(name: str) -> Callable[..., None]:
        return lambda *, acting, instance, route, **given: asked.append((name, given))

    for part in route_certificates.CERTIFICATE_PARTS.values():
        for name in (part.setter, part.remover):
            monkeypatch.setattr(services, name, noting(name))
    return asked


@pytest.mark.parametrize(
    ("part", "body", "service"),
    [
        ("client_ca", {"ca_pem": "PEM"}, "set_client_ca"),
        ("revocation_list", {"crl_pem": "PEM"}, "set_revocation_list"),
        ("certificate", {"certificate_pem": "PEM", "private_key_pem": "KEY"}, "set_certificate"),
        ("remove_client_ca", {}, "remove_client_ca"),
        ("remove_revocation_list", {}, "remove_revocation_list"),
        ("remove_certificate", {}, "remove_certificate"),
    ],
)
def test_each_part_goes_to_its_service(
    ida: Client, instance: Instance, second: Route, called: list[tuple[str, dict[str, Any]]], part: str,
    body: dict[str, str], service: str,
) -> None:  # fmt: skip
    assert ida.post(at(instance, "outside"), {"part": part, **body}).status_code == 302
    assert called == [(service, body)]


def test_a_route_has_the_forms_of_what_its_security_knows(
    ida: Client, instance: Instance, second: Route, called: list[tuple[str, dict[str, Any]]]
) -> None:
    assert 'id="certificate"' in text_of(ida.get(at(instance, "outside")))
    assert 'id="client_ca"' not in text_of(ida.get(at(instance, "outside")))
    second.security = "mtls"
    second.save()
    shown = text_of(ida.get(at(instance, "outside")))
    for part in route_certificates.CERTIFICATE_PARTS:
        assert f'id="{part}"' in shown
    assert "Nobody comes in by this route yet" in shown
    assert 'id="certificate"' not in text_of(ida.get(at(instance, "default")))


def test_a_private_key_is_never_sent_back(
    ida: Client, instance: Instance, second: Route, called: list[tuple[str, dict[str, Any]]]
) -> None:
    wrong = ida.post(at(instance, "outside"), {"part": "certificate", "private_key_pem": "KEYMATERIAL"})
    assert wrong.status_code == 422
    assert "KEYMATERIAL" not in text_of(wrong)
    assert not called


def test_a_private_key_is_in_no_report_of_a_fault(
    ida: Client, instance: Instance, second: Route, called: list[tuple[str, dict[str, Any]]]
) -> None:
    body = {"part": "certificate", "certificate_pem": "PEM", "private_key_pem": "KEY"}
    asked = ida.post(at(instance, "outside"), body).wsgi_request
    assert "private_key_pem" in asked.sensitive_post_parameters  # type: ignore[attr-defined]
