"""REST API of the users of an instance and their passwords, through the data plane's admin client."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiExample
from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, services
from instances.acls.presets import Preset
from instances.api import user_serializers as s
from instances.services.users import MECHANISMS
from instances.users import selectors
from instances.users.interfaces import NewSecret
from tenants.api.base import API_ROOT, ApiView, endpoint
from tenants.choices import Scope

DATA_PLANE_ERRORS = (409, 503)
SECRET_FIELDS = ("password",)

CREATION_EXAMPLE = OpenApiExample(
    "A user that may produce and consume",
    value={"name": "billing", "rights": "produce_consume", "expires_at": "2027-01-31T12:00:00Z"},
    request_only=True,
)


class UserCollection(ApiView):
    tag = "Users"

    @endpoint("list_users", Scope.USERS_READ, query=s.UserQuery, returns=s.UserPageOut, errors=DATA_PLANE_ERRORS)
    def get(self, request: Request, instance_id: str) -> Response:
        """List users by name, with last use and open connections."""
        page = selectors.user_page(
            access.instance(self.actor, instance_id),
            contains=self.query.get("contains", ""),
            page_token=self.query.get("page_token"),
            page_size=self.query["page_size"],
        )
        body = {"items": page.rows, "next_page_token": page.next_token, "silent": page.silent}
        return self.one(body, s.UserPageOut)

    @endpoint(
        "create_user",
        Scope.USERS_WRITE,
        body=s.UserIn,
        returns=s.UserMadeOut,
        status=201,
        secret_fields=SECRET_FIELDS,
        errors=DATA_PLANE_ERRORS,
        examples=(CREATION_EXAMPLE,),
    )
    def post(self, request: Request, instance_id: str) -> Response:
        """Create a user.

        With `rights` it gets access rules in the same call; without, and without `superuser`, it may do nothing in a
        closed instance until it has some. The response holds its password, once: a repeated response (Idempotency-Key)
        and every later read leave it out, and it is not stored.
        """
        instance = access.instance(self.actor, instance_id)
        arguments = {**self.body, "rights": Preset(self.body["rights"])}
        user, secret = services.create_user(acting=self.actor, instance=instance, dry_run=self.dry_run, **arguments)
        body = {"user": user, "secret": _secret_body(secret, dry_run=self.dry_run)}
        location = f"{API_ROOT}/instances/{instance_id}/users/{user.name}"
        return self.one(body, s.UserMadeOut, status=201, location=location, etag=selectors.etag_of(user))


class UserResource(ApiView):
    tag = "Users"

    @endpoint("get_user", Scope.USERS_READ, returns=s.UserOut, errors=DATA_PLANE_ERRORS)
    def get(self, request: Request, instance_id: str, name: str) -> Response:
        """Read a user."""
        user = selectors.user(access.instance(self.actor, instance_id), name)
        return self.one(user, s.UserOut, etag=selectors.etag_of(user))

    @endpoint(
        "update_user",
        Scope.USERS_WRITE,
        body=s.UserPatch,
        returns=s.UserOut,
        requires_if_match=True,
        errors=DATA_PLANE_ERRORS,
    )
    def patch(self, request: Request, instance_id: str, name: str) -> Response:
        """Grant or revoke full access, disable or enable a user, or set its expiry.

        In force within a second: a disabled or expired user is disconnected.
        """
        instance = access.instance(self.actor, instance_id)
        self._require_match(instance, name)
        user = services.update_user(
            acting=self.actor,
            instance=instance,
            name=name,
            superuser=self.body.get("superuser"),
            disabled=self.body.get("disabled"),
            expires_at=self.body.get("expires_at"),
            never_expires="expires_at" in self.body and self.body["expires_at"] is None,
            dry_run=self.dry_run,
        )
        return self.one(user, s.UserOut, etag=selectors.etag_of(user))

    @endpoint(
        "delete_user",
        Scope.USERS_WRITE,
        query=s.DeleteUserQuery,
        status=204,
        requires_if_match=True,
        errors=DATA_PLANE_ERRORS,
    )
    def delete(self, request: Request, instance_id: str, name: str) -> Response:
        """Delete a user.

        Its connections end within a second. It can be restored for seven days, with its passwords; until then its name
        is taken. With `for_good` it is deleted permanently and immediately. Access rules and quotas that name it stay,
        for itself or a later user of the same name.
        """
        instance = access.instance(self.actor, instance_id)
        self._require_match(instance, name)
        services.delete_user(
            acting=self.actor,
            instance=instance,
            name=name,
            for_good=self.query["for_good"] == "true",
            dry_run=self.dry_run,
        )
        return self.nothing()

    def _require_match(self, instance: Any, name: str) -> None:
        if "If-Match" in self.request.headers:
            services.lock_user(instance, name)
            self.require_match(selectors.etag_of(selectors.user(instance, name)))


class SecretCollection(ApiView):
    tag = "Users"

    @endpoint(
        "create_user_secret",
        Scope.USERS_WRITE,
        returns=s.SecretMadeOut,
        status=201,
        secret_fields=SECRET_FIELDS,
        errors=DATA_PLANE_ERRORS,
    )
    def post(self, request: Request, instance_id: str, name: str) -> Response:
        """Add a second password of a user.

        Both work, so that its clients can change over one by one; then delete the old one. The password is in this
        response only.
        """
        instance = access.instance(self.actor, instance_id)
        secret = services.add_secret(acting=self.actor, instance=instance, name=name, dry_run=self.dry_run)
        return self.one(_secret_body(secret, dry_run=self.dry_run), s.SecretMadeOut, status=201)


class SecretResource(ApiView):
    tag = "Users"

    @endpoint("delete_user_secret", Scope.USERS_WRITE, status=204, errors=DATA_PLANE_ERRORS)
    def delete(self, request: Request, instance_id: str, name: str, secret_id: str) -> Response:
        """Delete a password of a user.

        Connections that were opened with it end within a second. The only password can be deleted only of a disabled
        user.
        """
        instance = access.instance(self.actor, instance_id)
        services.remove_secret(
            acting=self.actor, instance=instance, name=name, secret_id=secret_id, dry_run=self.dry_run
        )
        return self.nothing()


def _secret_body(secret: NewSecret, *, dry_run: bool) -> dict[str, Any]:
    """Returns the content of `SecretMadeOut`; the password is None after a dry run, in which it was not set."""
    return {"id": secret.id, "password": None if dry_run else secret.password, "mechanisms": MECHANISMS}
