"""Writes of this app. Each is one transaction with its audit row; the outside world is told on commit."""

from tenants.services.members import (
    accept_invitation,
    change_role,
    invitation_url,
    invite_member,
    remove_member,
    revoke_invitation,
)
from tenants.services.people import (
    create_operator,
    found_tenant,
    replace_password,
    set_preferences,
    sign_up,
    sign_up_invited,
)
from tenants.services.tenancy import rename_tenant, resume_tenant, suspend_tenant
from tenants.services.tokens import create_token, note_token_use, revoke_token

__all__ = [
    "accept_invitation",
    "change_role",
    "create_operator",
    "create_token",
    "found_tenant",
    "invitation_url",
    "invite_member",
    "note_token_use",
    "remove_member",
    "rename_tenant",
    "replace_password",
    "resume_tenant",
    "revoke_invitation",
    "revoke_token",
    "set_preferences",
    "sign_up",
    "sign_up_invited",
    "suspend_tenant",
]
