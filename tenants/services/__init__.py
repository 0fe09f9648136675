"""Writes of this app. Each is one transaction with its audit row; external effects happen on commit."""

from tenants.services.factors import take_factors_away
from tenants.services.mailboxes import (
    invitation_url,
    is_invitation_proof,
    may_enter,
    send_verification_mail,
    user_of_verification_link,
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
    end_excess_sessions,
    end_session,
    end_sessions_of,
)
from tenants.services.sign_ins import acknowledge_sign_in_notices, record_sign_in
from tenants.services.sso import remove_sso, set_sso, sso_of_slug
from tenants.services.sso_domains import prove_domain, recheck_domains
from tenants.services.tenancy import rename_tenant, resume_tenant, set_second_factor_required, suspend_tenant
from tenants.services.tokens import create_token, record_token_use, revoke_token, revoke_tokens_of

__all__ = [
    "accept_invitation",
    "acknowledge_sign_in_notices",
    "appoint_operator",
    "change_role",
    "create_operator",
    "create_own_tenant",
    "create_tenant_for",
    "create_token",
    "delete_expired_sessions",
    "end_excess_sessions",
    "end_session",
    "end_sessions_of",
    "invitation_url",
    "invite_member",
    "is_invitation_proof",
    "may_enter",
    "prove_domain",
    "recheck_domains",
    "record_sign_in",
    "record_token_use",
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
    "send_verification_mail",
    "set_preferences",
    "set_second_factor_required",
    "set_sso",
    "sign_up",
    "sign_up_invited",
    "sso_of_slug",
    "suspend_tenant",
    "take_factors_away",
    "user_of_verification_link",
    "verify_mailbox",
]
