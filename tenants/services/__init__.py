"""Writes of this app. Each is one transaction with its audit row; external effects happen on commit."""

from tenants.services.factors import take_factors_away
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
    appoint_operator,
    create_operator,
    create_own_tenant,
    create_tenant_for,
    replace_password,
    set_preferences,
    sign_up,
    sign_up_invited,
)
from tenants.services.registration import request_sign_up, request_sign_up_invited
from tenants.services.sessions import (
    delete_expired_sessions,
    end_session,
    end_sessions_of,
    make_room_for_session,
)
from tenants.services.sign_ins import note_sign_in, read_sign_in_notices
from tenants.services.sso import remove_sso, set_sso, sso_behind
from tenants.services.sso_domains import prove_domain, recheck_domains
from tenants.services.tenancy import rename_tenant, resume_tenant, set_second_factor_required, suspend_tenant
from tenants.services.tokens import create_token, note_token_use, revoke_token, revoke_tokens_of

__all__ = [
    "accept_invitation",
    "appoint_operator",
    "change_role",
    "create_operator",
    "create_own_tenant",
    "create_tenant_for",
    "create_token",
    "delete_expired_sessions",
    "end_session",
    "end_sessions_of",
    "invitation_url",
    "invite_member",
    "mail_verification",
    "make_room_for_session",
    "may_enter",
    "note_sign_in",
    "note_token_use",
    "prove_domain",
    "proves_mailbox",
    "read_sign_in_notices",
    "recheck_domains",
    "remove_member",
    "remove_sso",
    "rename_tenant",
    "replace_password",
    "request_sign_up",
    "request_sign_up_invited",
    "resume_tenant",
    "revoke_invitation",
    "revoke_token",
    "revoke_tokens_of",
    "set_preferences",
    "set_second_factor_required",
    "set_sso",
    "sign_up",
    "sign_up_invited",
    "sso_behind",
    "suspend_tenant",
    "take_factors_away",
    "user_behind",
    "verify_mailbox",
]
