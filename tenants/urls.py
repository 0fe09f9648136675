"""Console pages of this app. Names start with `page-`; the side navigation shows a page only if its name exists."""

from __future__ import annotations

from django.urls import path

from tenants.views import (
    audit_log,
    entry,
    help,
    mailbox,
    members,
    palette,
    passkeys,
    preferences,
    security,
    sso,
    tokens,
)

help.register()

urlpatterns = [
    path("docs/", help.help_page, name="page-help"),
    path("docs/<path:name>/", help.document_page, name="page-help-document"),
    path("", entry.home, name="home"),
    path("accounts/signup/", entry.sign_up, name="page-sign-up"),
    path("accounts/logout/", sso.log_out, name="account_logout"),
    path("accounts/email/", entry.no_page),
    path("accounts/2fa/", security.redirect_to_security_page, name="mfa_index"),
    path("accounts/2fa/totp/activate/", security.activate_app, name="mfa_activate_totp"),
    path("accounts/2fa/webauthn/", security.redirect_to_security_page, name="mfa_list_webauthn"),
    path("accounts/2fa/webauthn/add/", passkeys.add_passkey, name="mfa_add_webauthn"),
    path("accounts/2fa/webauthn/login/", passkeys.login_by_passkey, name="mfa_login_webauthn"),
    path("accounts/2fa/webauthn/keys/<int:pk>/edit/", entry.no_page),
    path("accounts/2fa/recovery-codes/download/", entry.no_page),
    path("accounts/verify/", mailbox.send, name="page-verify-send"),
    path("accounts/verify/<str:secret>/", mailbox.verify, name="page-verify"),
    path("join/<str:secret>/", entry.join, name="page-join"),
    path("join/<str:secret>/<str:proof>/", entry.join, name="page-join-mailed"),
    path("preferences/", preferences.set_preferences, name="page-preferences"),
    path("tenant/", preferences.choose_tenant, name="page-choose-tenant"),
    path("settings/", preferences.settings_page, name="page-settings"),
    path("members/", members.members_page, name="page-members"),
    path("members/<str:member_id>/role/", members.change_role, name="page-member-role"),
    path("members/<str:member_id>/remove/", members.remove_member, name="page-member-remove"),
    path("invitations/<str:invitation_id>/revoke/", members.revoke_invitation, name="page-invitation-revoke"),
    path("settings/sso/", sso.settings_page, name="page-sso-settings"),
    path("settings/sso/remove/", sso.remove, name="page-sso-remove"),
    path("settings/sso/domains/prove/", sso.prove_domain, name="page-sso-prove"),
    path("sso/", sso.find, name="page-sso"),
    path("sso/<slug:slug>/", sso.begin, name="page-sso-begin"),
    path("sso/<slug:slug>/callback/", sso.complete, name="page-sso-callback"),
    path("sso/<slug:slug>/ended/", sso.ended, name="page-sso-ended"),
    path("tokens/", tokens.tokens_page, name="page-tokens"),
    path("tokens/<str:token_id>/revoke/", tokens.revoke_token, name="page-token-revoke"),
    path("security/", security.security_page, name="page-security"),
    path("security/sessions/<str:public_id>/end/", security.end_session, name="page-session-end"),
    path("security/sessions/end/", security.end_sessions, name="page-sessions-end"),
    path("security/sign-ins/", security.acknowledge_notices, name="page-sign-ins-read"),
    path("security/second-factor/", security.set_members_factor_required, name="page-tenant-factor"),
    path("audit/", audit_log.audit_page, name="page-audit"),
    path("audit.csv", audit_log.audit_csv, name="page-audit-csv"),
    path("palette/", palette.palette, name="page-palette"),
]
