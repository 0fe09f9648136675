"""Whether clients of an instance sign in with a user."""

from __future__ import annotations

from instances.models import Instance
from instances.routes.kinds import PLAINTEXT, WITH_SASL, WITH_TLS


def security_of(instance: Instance) -> str:
    """Of the route that pages and snippets show, which is the first. An instance without routes is open."""
    routes = instance.routes_in_order
    return routes[0].security if routes else PLAINTEXT


def needs_user(instance: Instance) -> bool:
    """Whether what pages and snippets show works for signed-in users alone."""
    return security_of(instance) in WITH_SASL


def is_encrypted(instance: Instance) -> bool:
    """Whether clients of that route speak TLS."""
    return security_of(instance) in WITH_TLS
