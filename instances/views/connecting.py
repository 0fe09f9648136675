"""Context of "Connect": code snippets for an address, with a topic, a user and the CA file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from instances import interfaces, selectors
from instances.lifecycle.phases import REACHABLE
from instances.models import Instance, Route
from instances.routes.kinds import WITH_SASL
from instances.services import Quickstart
from instances.users.interfaces import UserDescription
from instances.users.selectors import user_page
from instances.views.last_viewed_topic import last_viewed_topic
from instances.views.snippet_security import PLACEHOLDER_PASSWORD, PLACEHOLDER_USER, Login, client_security, properties
from instances.views.snippets import BootstrapAddress, Snippet, snippets, topic_for
from tenants import access
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.mails import public_url

CA_PATH = "/api/v1/ca.pem"


def ca_url() -> str:
    """Returns the public address of the installation's CA certificate."""
    return public_url(CA_PATH)


def connect_context(
    request: HttpRequest, instance: Instance, route: Route | None, address: BootstrapAddress
) -> dict[str, Any]:
    """Returns the template context of "Connect". `address` is the instance or route whose address is shown."""
    users = _users(request, instance, route)
    login = Login(users[0].name if users else PLACEHOLDER_USER, PLACEHOLDER_PASSWORD)
    security = client_security(route, login, ca_url())
    return {
        "lacks_user": users is not None and not users,
        "snippets": snippets(address, _snippet_topic(request, instance), security),
        "ca_command": security.ca_command,
        "has_client_certificate": security.has_client_certificate,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickstartCode:
    """Code snippets for the objects of a quickstart, with the password filled in."""

    bootstrap_servers: str
    ca_command: str
    properties: str
    snippets: list[Snippet]


def quickstart_code(instance: Instance, quickstart: Quickstart) -> QuickstartCode:
    """Returns the code snippets for the route, user and topic of a quickstart."""
    address: BootstrapAddress = instance if quickstart.route is None else quickstart.route
    password = quickstart.secret.password if quickstart.secret is not None else PLACEHOLDER_PASSWORD
    security = client_security(quickstart.route, Login(quickstart.user or PLACEHOLDER_USER, password), ca_url())
    return QuickstartCode(
        bootstrap_servers=address.bootstrap_servers,
        ca_command=security.ca_command,
        properties=properties(security) if quickstart.secret is not None else "",
        snippets=snippets(address, quickstart.topic, security),
    )


def _snippet_topic(request: HttpRequest, instance: Instance) -> str | None:
    """Returns a topic for the snippets from the brokers' recent reports; None without topics or the permission."""
    if not access.permits(request.actor, Scope.TOPICS_READ) or instance.current_phase not in REACHABLE:  # type: ignore[attr-defined]
        return None
    return topic_for(
        interfaces.observation.implementation.topic_sizes(instance.pk).topics,
        last_viewed=last_viewed_topic(request, instance),
        created=selectors.recently_created_topics(instance),
    )


def _users(request: HttpRequest, instance: Instance, route: Route | None) -> Sequence[UserDescription] | None:
    """Returns a list of the first user, if there is one; None if the route requires none, or users may not be shown or
    are unknown.
    """
    if route is None or route.security not in WITH_SASL or instance.current_phase not in REACHABLE:
        return None
    if not access.permits(request.actor, Scope.USERS_READ):  # type: ignore[attr-defined]
        return None
    try:
        return user_page(instance, page_size=1).rows
    except DomainError:
        return None
