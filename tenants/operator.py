"""Base of every page of the operator panel: read-only by default, and actions write audit rows.

@admin.register(Instance)
class InstanceAdmin(OperatorAdmin):
    list_display = ("id", "name", "tenant")
    actions = ("suspend",)

    @operator_action(_("Suspend"))
    def suspend(self, acting, instance):
        services.suspend_instance(acting=acting, instance=instance)
        return _("suspended")
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from django.apps import apps
from django.conf import settings
from django.contrib import admin, messages
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from unfold.admin import ModelAdmin

from tenants.actors import Actor, operator_actor
from tenants.errors import DomainError
from tenants.requests import client_ip, with_session_state
from tenants.wording import localized

ACTION_ROWS_MAX = 100


class NavigationPage(NamedTuple):
    """Page beside the list of a model, for users who may view the list. `name` is the name of its URL."""

    title: Any
    symbol: str
    name: str


class OperatorAdmin(ModelAdmin):
    """Read-only admin page. Operators use `@operator_action`s; a form exists only with `may_change`."""

    symbol = "table_rows"  # Material symbol of the page in the panel's navigation
    when_empty: Any = ""  # text of the empty list: its future content and what to do
    pages: tuple[NavigationPage, ...] = ()
    may_change = False
    may_add = False
    list_fullwidth = True
    list_per_page = 25  # a row takes milliseconds to render
    show_full_result_count = False
    actions_selection_counter = True

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may_add and bool(request.user.is_superuser)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may_change and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_operate_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """True for staff with the model's change permission, who may run actions even without a change form."""
        return bool(request.user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}"))


def acting_operator(request: HttpRequest) -> Actor:
    """Returns the operator of a request of the panel."""
    acting = operator_actor(request.user, ip=client_ip(request), request_id=getattr(request, "request_id", None))
    return with_session_state(request, acting)


def operator_action(description: Any) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Makes a method `(self, acting, row) -> message` an action on the selected rows.

    Each row is processed in its own transaction; a refusal (`DomainError`) is shown and does not stop the others. The
    called service writes the audit row in the row's tenant.
    """

    def decorate(method: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(method)
        def run(self: OperatorAdmin, request: HttpRequest, queryset: QuerySet[Model]) -> None:
            act_on_each_row(self, request, queryset[:ACTION_ROWS_MAX], functools.partial(method, self))

        return admin.action(description=description, permissions=["operate"])(run)

    return decorate


def act_on_each_row(
    page: OperatorAdmin, request: HttpRequest, rows: Iterable[Model], act: Callable[[Actor, Any], Any]
) -> None:
    """Calls `act` for each row in its own transaction; a refusal is shown and does not stop the others."""
    acting = acting_operator(request)
    for row in rows:
        try:
            with transaction.atomic():
                outcome = act(_in_tenant_of(acting, row), row)
        except DomainError as refusal:
            page.message_user(request, f"{row}: {localized(refusal.detail or refusal.title)}", messages.ERROR)
        else:
            message = outcome or _("done")  # outside the f-string, where gettext finds it
            page.message_user(request, f"{row}: {message}", messages.SUCCESS)


def _in_tenant_of(acting: Actor, row: Any) -> Actor:
    from tenants.models import Tenant

    tenant = row if isinstance(row, Tenant) else getattr(row, "tenant", None)
    return acting.within(tenant) if isinstance(tenant, Tenant) else acting


APP_ORDER = ("brokers", "instances", "quotas", "tenants", "billing", "notifications")


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """Returns the panel's navigation: every registered page the operator may view, by app."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for model, page in admin.site._registry.items():
        if not page.has_view_permission(request):
            continue
        options = model._meta
        list_link = {
            "title": capfirst(options.verbose_name_plural),
            "icon": getattr(page, "symbol", "table_rows"),
            "link": reverse(f"admin:{options.app_label}_{options.model_name}_changelist"),
        }
        extra_pages = [
            {"title": extra_page.title, "icon": extra_page.symbol, "link": reverse(f"admin:{extra_page.name}")}
            for extra_page in getattr(page, "pages", ())
        ]
        if any(request.path.startswith(link["link"]) for link in extra_pages):
            list_link["active"] = False  # the list's URL is a prefix of theirs
        groups.setdefault(options.app_label, []).extend((*extra_pages, list_link))
    sorted_labels = sorted(groups, key=lambda label: APP_ORDER.index(label) if label in APP_ORDER else len(APP_ORDER))
    return [
        {"title": apps.get_app_config(label).verbose_name, "separator": True, "items": groups[label]}
        for label in sorted_labels
    ]


def environment_tag(request: HttpRequest) -> list[str]:
    """Returns the environment shown in the header."""
    return [str(getattr(settings, "PENSTOCK_ENVIRONMENT", "") or request.get_host()), "warning"]


def panel_style(request: HttpRequest) -> str:
    """Returns the style sheet that distinguishes the panel from the console."""
    return static("operator/panel.css")


def panel_script(request: HttpRequest) -> str:
    """Returns the script that prevents the panel's scripts from writing inline styles."""
    return static("operator/panel.js")


def mark(request: HttpRequest) -> str:
    """Returns the favicon; without one browsers would request /favicon.ico."""
    return static("penstock/img/mark.svg")
