"""Writes of this app. Each is one transaction with its audit row; the outside world is told on commit."""

from tenants.services.mailboxes import (
    invitation_url,
    mail_verification,
    may_enter,
    proves_mailbox,
    user_behind,
    verify_mailbox,
)
from tenants.services.members import (
    accept_invitation,
    change_role,
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
from tenants.services.registration import request_sign_up, request_sign_up_invited
from tenants.services.tenancy import rename_tenant, resume_tenant, suspend_tenant
from tenants.services.tokens import create_token, note_token_use, revoke_token, revoke_tokens_of

__all__ = [
    "accept_invitation",
    "change_role",
    "create_operator",
    "create_token",
    "found_tenant",
    "invitation_url",
    "invite_member",
    "mail_verification",
    "may_enter",
    "note_token_use",
    "proves_mailbox",
    "remove_member",
    "rename_tenant",
    "replace_password",
    "request_sign_up",
    "request_sign_up_invited",
    "resume_tenant",
    "revoke_invitation",
    "revoke_token",
    "revoke_tokens_of",
    "set_preferences",
    "sign_up",
    "sign_up_invited",
    "suspend_tenant",
    "user_behind",
    "verify_mailbox",
]
