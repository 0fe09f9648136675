"""Reads of the OAuth configuration of an instance."""

from __future__ import annotations

from instances.models import Instance, OAuthConfiguration
from tenants.access import fetch


def configuration(instance: Instance) -> OAuthConfiguration:
    """Returns the OAuth configuration of an instance that was fetched for the actor. Raises `NotFound` without one."""
    return fetch(OAuthConfiguration.objects.filter(instance=instance, is_removed=False))
