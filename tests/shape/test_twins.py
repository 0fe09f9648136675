"""Acts of tenants have a page and a REST call: services that only one of the two calls are listed with the reason."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from config.environment import BASE_DIR

APPS = ("instances", "quotas", "billing", "notifications", "archives", "tenants")

# Calls of REST whose page uses something else, or that are no acts.
WITHOUT_PAGE = {
    "lock_topic": "a lock: for If-Match",
    "lock_user": "a lock: for If-Match",
    "record_token_use": "pages are not called with tokens",
    "refund": "called by payment providers and operators; tenants ask for it",
    "remove_certificate": "called by name: `instances.views.route_certificates.PARTS`",
    "remove_client_ca": "called by name: `instances.views.route_certificates.PARTS`",
    "remove_revocation_list": "called by name: `instances.views.route_certificates.PARTS`",
    "set_certificate": "called by name: `instances.views.route_certificates.PARTS`",
    "set_client_ca": "called by name: `instances.views.route_certificates.PARTS`",
    "set_revocation_list": "called by name: `instances.views.route_certificates.PARTS`",
    "bump_and_publish": "the last step of PATCH …/topics/{name}",
    "topic_copy": "a read: the page lists all copies",
}
# Acts of pages that REST has in another form, or that belong to a browser.
WITHOUT_REST = {
    "check_topic_config": "PATCH …/topics/{name}?dry_run=true",
    "close_instance": "PATCH /instances/{id} with settings.allow_everyone_if_no_acl, and POST …/acls",
    "group_ref": "a name in the audit log",
    "has_nothing_to_restore": "DELETE /instances/{id}?dry_run=true",
    "restore_period": "a read: `restorable_until` of the deleted topic",
    "offsets_from_audit": "a read: GET …/groups/{group}",
    "plan_purge": "POST …/purge?dry_run=true",
    "plan_reset": "POST …/offsets with dry_run",
    "restore_acls": "an undo by the audit row: POST …/acls with the rules that DELETE answered",
    "undo_offsets": "an undo by the audit row: POST …/offsets with the offsets before",
    "receive": "called by payment providers",
    "spent": "a read: GET /budgets",
    "end_session": "sessions are a browser's",
    "end_sessions_of": "sessions are a browser's",
    "send_verification_mail": "proves a mailbox by a link in a mail",
    "is_invitation_proof": "proves a mailbox by a link in a mail",
    "verify_mailbox": "proves a mailbox by a link in a mail",
    "acknowledge_sign_in_notices": "notices about sign-ins stand on the page that was signed in to",
    "request_sign_up": "an account begins in a browser",
    "request_sign_up_invited": "an account begins in a browser",
    "sign_up": "an account begins in a browser",
    "sign_up_invited": "an account begins in a browser",
    "set_preferences": "language, time zone and theme of pages",
    "sso_of_slug": "a read: where a sign-in begins, in a browser",
    "user_of_verification_link": "who clicked a link in a mail",
}


def called_services(files: Iterable[Path]) -> set[str]:
    """Returns the functions of `services` modules that are called as attributes, such as `services.create_topic`."""
    return {
        node.attr
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and "services" in node.value.id
        if node.attr.islower()
    }


def by_rest() -> set[str]:
    return called_services(file for app in APPS for file in (BASE_DIR / app / "api").glob("*.py"))


def by_pages() -> set[str]:
    return called_services(file for app in APPS for file in (BASE_DIR / app / "views").glob("*.py"))


def test_every_act_over_rest_has_its_page() -> None:
    assert by_rest() - by_pages() == WITHOUT_PAGE.keys()


def test_every_act_of_a_page_has_its_rest_call() -> None:
    assert by_pages() - by_rest() == WITHOUT_REST.keys()


def test_both_are_read() -> None:
    known = {"create_topic", "restore_topic", "change_budget", "create_own_tenant", "delete_quota", "abort_transaction"}
    assert known <= by_rest() & by_pages()
