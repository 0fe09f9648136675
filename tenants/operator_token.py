"""API tokens of operators, created by a command: one per operator, replaced by the next one.

A token belongs to a member of a tenant. For an operator without membership there is a tenant of the operators.
"""

from __future__ import annotations

from typing import Final

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils.translation import gettext_noop

from tenants import selectors, services
from tenants.actors import member_actor, system_actor
from tenants.choices import Role, Scope
from tenants.errors import NotFound
from tenants.models import ApiToken, AuditEntry, Member, User, UserManager
from tenants.secrets import hash_secret

TENANT_NAME: Final = "Operators"
ACTOR_NAME: Final = "operator_token"
TOKEN_NAME: Final = "manage.py operator_token"  # noqa: S105  as lists of tokens show it


@transaction.atomic
def ensure_operator_token(*, email: str, stored_secret: str | None) -> str:
    """Returns the secret of an operator's token: `stored_secret` if it still works, otherwise that of a new token.

    A new token replaces the previous one. The caller stores the secret, because the database has only its hash. Raises
    `NotFound` if no operator has this address.
    """
    user = User.objects.select_for_update().filter(email=UserManager.normalize_email(email)).first()
    if user is None or not (user.is_staff and user.is_active):
        raise NotFound(gettext_noop("There is no operator with this e-mail address."))
    active_tokens = ApiToken.objects.filter(
        member__user=user, member__removed_at=None, name=TOKEN_NAME, revoked_at=None
    )
    member = _member_of(user)
    current = active_tokens.filter(
        member=member, secret_hash=hash_secret(stored_secret or ""), scopes=[Scope.OPERATOR.value]
    )
    if stored_secret and current.exists():
        return stored_secret
    acting = member_actor(member)
    for token in active_tokens:
        services.revoke_token(acting=system_actor(ACTOR_NAME, token.tenant), token=token)
    return services.create_token(acting=acting, name=TOKEN_NAME, scopes=[Scope.OPERATOR.value])[1]


def _member_of(user: User) -> Member:
    """Returns an operator's membership in the tenant of the operators, which is created if there is none.

    The tenant is recognised by its creation in the audit log, because a customer's tenant may have its name.
    """
    actor = system_actor(ACTOR_NAME)
    created = AuditEntry.objects.filter(
        target_id=OuterRef("tenant_id"), action="tenant.created", actor_kind=actor.kind, actor_id=actor.id
    )
    member = selectors.memberships(user).filter(Exists(created), role=Role.OWNER).order_by("pk").first()
    return member or services.create_own_tenant(user=user, name=TENANT_NAME, acting=actor)
