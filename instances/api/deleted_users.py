"""REST API of deleted users that can be restored."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, services
from instances.api.users import DATA_PLANE_ERRORS
from tenants.api.base import ApiView, endpoint
from tenants.choices import Scope


class DeletedUserOut(serializers.Serializer):
    """A user that was deleted over REST or in the console. It may not sign in."""

    name = serializers.CharField()
    deleted_at = serializers.DateTimeField()
    restorable_until = serializers.DateTimeField(source="expires_at", help_text="Then it goes for good.")


class DeletedUserCollection(ApiView):
    tag = "Users"

    @endpoint("list_deleted_users", Scope.USERS_READ, page_item=DeletedUserOut)
    def get(self, request: Request, instance_id: str) -> Response:
        """List the deleted users that can be restored, by name."""
        rows = services.deleted_users(access.instance(self.actor, instance_id))
        return self.page_items(rows, DeletedUserOut, key=lambda row: row.name)


class DeletedUserResource(ApiView):
    tag = "Users"

    @endpoint("purge_deleted_user", Scope.USERS_WRITE, status=204, errors=DATA_PLANE_ERRORS)
    def delete(self, request: Request, instance_id: str, name: str) -> Response:
        """Delete a deleted user permanently and immediately. It cannot be restored, and its name is free."""
        instance = access.instance(self.actor, instance_id)
        services.purge_deleted_user(acting=self.actor, instance=instance, name=name, dry_run=self.dry_run)
        return self.nothing()


class UserRestore(ApiView):
    tag = "Users"

    @endpoint("restore_user", Scope.USERS_WRITE, status=204, errors=DATA_PLANE_ERRORS)
    def post(self, request: Request, instance_id: str, name: str) -> Response:
        """Restore a deleted user.

        It may sign in with its earlier passwords again, and has the rights and quotas that name it now. A user that was
        disabled before its deletion stays disabled.
        """
        instance = access.instance(self.actor, instance_id)
        services.restore_user(acting=self.actor, instance=instance, name=name, dry_run=self.dry_run)
        return self.nothing()
