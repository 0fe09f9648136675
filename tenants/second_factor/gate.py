"""Enforcement of second factors, for members of tenants that require them and for operators."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest

from tenants import sessions
from tenants.actors import Actor
from tenants.choices import ActorKind, Role
from tenants.errors import SecondFactorNeeded, SsoNeeded


def lacks_factor_required_of_operators(request: HttpRequest) -> bool:
    """True for an operator who must give a second factor and has not."""
    return (
        settings.OPERATORS_NEED_SECOND_FACTOR
        and request.user.is_authenticated
        and request.user.is_staff
        and not sessions.has_second_factor(request)
    )


def lacks_factor_required_by_tenant(acting: Actor) -> bool:
    """True if the actor's tenant requires a second factor that was not given."""
    is_required = acting.tenant is not None and acting.tenant.requires_second_factor and not acting.is_confined
    return is_required and not acting.gave_second_factor


def lacks_sso(acting: Actor) -> bool:
    """True if the tenant is open to its single sign-on only, and the session began otherwise. Owners are exempt."""
    is_required = acting.tenant is not None and acting.tenant.requires_sso
    return is_required and not acting.is_confined and acting.role is not Role.OWNER


def require(request: HttpRequest, acting: Actor) -> None:
    """Raises `SecondFactorNeeded` if the session may only open the page that sets one up, and `SsoNeeded` if it may not
    work in the tenant at all.
    """
    _require_sso(acting)
    if lacks_factor_required_of_operators(request):
        raise SecondFactorNeeded("Operators need a second factor. Set one up in the console under Security.")
    _require_tenants_factor(acting)


def require_still(acting: Actor) -> None:
    """Raises `SecondFactorNeeded` or `SsoNeeded` if the tenant has begun to require it since an earlier request.

    Tokens are exempt, as in their requests.
    """
    if acting.kind is ActorKind.USER:
        _require_sso(acting)
        _require_tenants_factor(acting)


def _require_sso(acting: Actor) -> None:
    if lacks_sso(acting):
        assert acting.tenant is not None
        refusal = SsoNeeded("The tenant is open through its single sign-on only. Sign in there.")
        refusal.address = f"/sso/{acting.tenant.slug}/"
        raise refusal


def _require_tenants_factor(acting: Actor) -> None:
    if lacks_factor_required_by_tenant(acting):
        raise SecondFactorNeeded("The tenant asks its members for a second factor. Set one up under Security.")
