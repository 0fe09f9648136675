"""REST resources of an instance's client quotas and of the effective quota of a client."""

from __future__ import annotations

import hashlib
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from quotas import interfaces, selectors, services
from quotas.addresses import CONNECTION_CREATION_RATE, canonical
from quotas.api import serializers as s
from quotas.interfaces import AddressQuota, ClientQuota
from tenants.api.base import ApiView, endpoint
from tenants.choices import Scope

DATA_PLANE_ERRORS = (409, 503)
KEY_CHARS_MAX = 200


class Quotas(ApiView):
    tag = "Quotas"

    @endpoint("list_quotas", Scope.QUOTAS_READ, page_item=s.QuotaOut, errors=DATA_PLANE_ERRORS)
    def get(self, request: Request, instance_id: str) -> Response:
        """List client quotas by precedence of their levels, followed by those of addresses."""
        instance = interfaces.instance_access.implementation(self.actor, instance_id)
        interfaces.require_reachable.implementation(instance)
        quotas = [*selectors.quota_list(instance), *selectors.address_quota_list(instance)]
        return self.page_items(quotas, s.QuotaOut, key=_sort_key)

    @endpoint("set_quota", Scope.QUOTAS_WRITE, body=s.QuotaIn, returns=s.QuotaOut, errors=DATA_PLANE_ERRORS)
    def put(self, request: Request, instance_id: str) -> Response:
        """Set the limits of a user, a client id, or both; or the rate of new connections of an address.

        Brokers apply it within a second, also to open connections. Open connections of an address stay open.
        """
        instance = interfaces.instance_access.implementation(self.actor, instance_id)
        entity, limits = self.body["entity"], dict(self.body["limits"])
        connections_per_s = limits.pop(CONNECTION_CREATION_RATE, None)
        if "ip" in entity:
            return self._put_address(instance, entity["ip"], connections_per_s)
        user, client_id = s.part_from(entity, "user"), s.part_from(entity, "client_id")
        services.set_quota(
            acting=self.actor,
            instance=instance,
            user=user,
            client_id=client_id,
            limits=limits,
            dry_run=self.dry_run,
        )
        set_limits = {key: float(value) for key, value in limits.items() if value is not None}
        return self.one(ClientQuota(user=user, client_id=client_id, limits=set_limits), s.QuotaOut)

    def _put_address(self, instance: Any, address: str | None, connections_per_s: int | None) -> Response:
        services.set_address_quota(
            acting=self.actor,
            instance=instance,
            address=address,
            connections_per_s=connections_per_s,
            dry_run=self.dry_run,
        )
        canonical_address = None if address is None else canonical(address)
        return self.one(AddressQuota(address=canonical_address, connections_per_s=connections_per_s), s.QuotaOut)

    @endpoint("delete_quota", Scope.QUOTAS_WRITE, query=s.QuotaQuery, status=204, errors=DATA_PLANE_ERRORS)
    def delete(self, request: Request, instance_id: str) -> Response:
        """Remove the limits of a user, a client id, or both, or that of an address."""
        instance = interfaces.instance_access.implementation(self.actor, instance_id)
        ip = s.part_from_query(self.query, "ip")
        if ip is not None:
            services.delete_address_quota(acting=self.actor, instance=instance, address=ip.name, dry_run=self.dry_run)
            return self.nothing()
        services.delete_quota(
            acting=self.actor,
            instance=instance,
            user=s.part_from_query(self.query, "user"),
            client_id=s.part_from_query(self.query, "client_id"),
            dry_run=self.dry_run,
        )
        return self.nothing()


class EffectiveQuota(ApiView):
    tag = "Quotas"

    @endpoint(
        "get_effective_quota",
        Scope.QUOTAS_READ,
        query=s.EffectiveQuery,
        returns=s.EffectiveListOut,
        errors=DATA_PLANE_ERRORS,
    )
    def get(self, request: Request, instance_id: str) -> Response:
        """Explain the quotas of a client: which of the eight levels applies, and why the others do not."""
        instance = interfaces.instance_access.implementation(self.actor, instance_id)
        interfaces.require_reachable.implementation(instance)
        user, client_id = self.query["user"], self.query["client_id"]
        result = selectors.effective_quota(instance, user=user, client_id=client_id)
        return self.one({"user": user, "client_id": client_id, "quotas": result}, s.EffectiveListOut)


def _sort_key(quota: ClientQuota | AddressQuota) -> str:
    """Returns the sort key: level, then name; addresses after the levels.

    It becomes part of page tokens, so long names are cut and made unique by a hash.
    """
    if isinstance(quota, AddressQuota):
        return f"9 {quota.address or ''}"
    name = selectors.entity_name(quota.user, quota.client_id)
    if len(name) > KEY_CHARS_MAX:
        name = f"{name[:KEY_CHARS_MAX]} {hashlib.sha256(name.encode()).hexdigest()}"
    return f"{selectors.level_of(quota)} {name}"
