"""Demo tenant of `manage.py up`: the same person, tenant and token on every start."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone

from tenants import access, audit, selectors, services
from tenants.actors import member_actor, system_actor
from tenants.models import ApiToken, Member, Tenant, User, UserManager
from tenants.secrets import hash_secret

DEMO_SLUG = "demo"
DEMO_NAME = "Demo"
DEMO_TOKEN_NAME = "demo"  # noqa: S105


@dataclass(frozen=True, slots=True)
class DemoTenant:
    """Demo tenant, its owner, and the token's secret, which `up` prints."""

    tenant: Tenant
    member: Member
    token_secret: str


@transaction.atomic
def ensure_demo_tenant(*, email: str, password: str, token_secret: str | None) -> DemoTenant:
    """Returns the demo tenant with its owner and token, and creates those that are missing.

    `token_secret` is that of an earlier start; an invalid one is replaced. The caller stores the returned secret in the
    state directory, because the database has only its hash.
    """
    email = UserManager.normalize_email(email)
    user = User.objects.select_for_update().filter(email=email).first()
    if user is None:
        user = User.objects.create_user(email, password, email_verified_at=timezone.now())
    tenant = Tenant.objects.filter(slug=DEMO_SLUG).first()
    if tenant is None:
        member = services.create_own_tenant(user=user, name=DEMO_NAME, slug=DEMO_SLUG, acting=system_actor("demo"))
    else:
        member = selectors.memberships(user).filter(tenant=tenant).first() or _create_owner(user, tenant)
    return DemoTenant(member.tenant, member, _working_secret(member, token_secret))


def demo_owner(email: str) -> Member:
    """Returns the member that `ensure_demo_tenant` created for this address."""
    rows = Member.objects.select_related("tenant", "user")
    return rows.get(tenant__slug=DEMO_SLUG, user__email=UserManager.normalize_email(email), removed_at=None)


def _create_owner(user: User, tenant: Tenant) -> Member:
    member = Member.objects.create(tenant=tenant, user=user, role="owner")
    audit.record(system_actor("demo", tenant), "member.joined", member, None, {"email": user.email, "role": "owner"})
    return member


def _working_secret(member: Member, token_secret: str | None) -> str:
    acting = member_actor(member)
    scopes = sorted(access.grantable_scopes(acting) - {"operator"})
    tokens = ApiToken.objects.filter(tenant=member.tenant, revoked_at=None)
    token = tokens.filter(secret_hash=hash_secret(token_secret)).first() if token_secret else None
    if token_secret and token is not None:
        _widen(token, scopes)
        return token_secret
    return services.create_token(acting=acting, name=DEMO_TOKEN_NAME, scopes=scopes)[1]


def _widen(token: ApiToken, scopes: list[str]) -> None:
    """Adds scopes that older versions did not have, so that the printed token has all permissions of its owner."""
    before = sorted(token.scopes)
    if not set(scopes) <= set(before):
        token.scopes = scopes
        token.save(update_fields=["scopes"])
        acting = system_actor("demo", token.tenant)
        audit.record(acting, "token.changed", token, {"scopes": before}, {"scopes": scopes})
