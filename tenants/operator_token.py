"""API tokens of operators, created by a command: one per operator, replaced by the next one.

A token belongs to a member of a tenant. For an operator without membership there is a tenant of the operators.
"""

from __future__ import annotations

from typing import Final

from django.db import transaction
from django.utils.translation import gettext_noop

from tenants import selectors, services
from tenants.actors import member_actor, system_actor
from tenants.choices import Role, Scope
from tenants.errors import NotFound
from tenants.models import ApiToken, Member, User, UserManager
from tenants.secrets import hash_secret

TENANT_NAME: Final = "Operators"
TOKEN_NAME: Final = "manage.py operator_token"  # noqa: S105  as lists of tokens show it


@transaction.atomic
def ensure_operator_token(*, email: str, kept_secret: str | None) -> str:
    """Returns the secret of an operator's token: `kept_secret` if it still works, otherwise that of a new token.

    A new token replaces the previous one. The caller stores the secret, because the database has only its hash. Raises
    `NotFound` if no operator has this address.
    """
    user = User.objects.select_for_update().filter(email=UserManager.normalize_email(email)).first()
    if user is None or not (user.is_staff and user.is_active):
        raise NotFound(gettext_noop("There is no operator with this e-mail address."))
    living = ApiToken.objects.filter(member__user=user, member__removed_at=None, name=TOKEN_NAME, revoked_at=None)
    if kept_secret and living.filter(secret_hash=hash_secret(kept_secret), scopes=[Scope.OPERATOR.value]).exists():
        return kept_secret
    member = _member_of(user)
    acting = member_actor(member)
    for token in living:
        services.revoke_token(acting=system_actor("operator_token", token.tenant), token=token)
    return services.create_token(acting=acting, name=TOKEN_NAME, scopes=[Scope.OPERATOR.value])[1]


def _member_of(user: User) -> Member:
    member = selectors.memberships(user).filter(tenant__name=TENANT_NAME, role=Role.OWNER).order_by("pk").first()
    return member or services.create_own_tenant(user=user, name=TENANT_NAME, acting=system_actor("operator_token"))
