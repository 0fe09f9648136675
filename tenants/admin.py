"""Tenants, members, tokens and the audit log in the operator panel."""

from __future__ import annotations

import json
from typing import Any

import allauth.account.admin
import allauth.mfa.admin  # noqa: F401
import django.contrib.auth.admin  # noqa: F401
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.contrib import admin
from django.contrib.auth.models import Group
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from tenants import services
from tenants.actors import Actor
from tenants.choices import SuspensionReason, TenantStatus
from tenants.models import ApiToken, AuditEntry, Invitation, Member, Tenant, User
from tenants.operator import ACTION_ROWS_MAX, OperatorAdmin, act_on_each_row, operator_action
from tenants.suspending import SuspendForm, bound_form, confirm_page, effects_on

# Packages register these models when their admin modules are imported. Permissions come from roles, not groups; an
# e-mail address is part of its user; secrets of second factors must not be shown.
admin.site.unregister((Group, EmailAddress, Authenticator))


@admin.register(Tenant)
class TenantAdmin(OperatorAdmin):
    when_empty = _("Tenants sign up at the console, and stand here from then on.")
    symbol = "apartment"
    list_display = ("name", "id", "state", "owner_count", "member_count", "currency", "created_at")
    list_filter = ("status", "suspension_reason", "currency")
    search_fields = ("id", "slug", "name", "members__user__email")
    ordering = ("name", "id")
    actions = ("suspend", "resume")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tenant]:
        is_current_member = Q(members__removed_at=None)
        return (
            super()
            .get_queryset(request)
            .annotate(
                members_present=Count("members", filter=is_current_member),
                owners_present=Count("members", filter=is_current_member & Q(members__role="owner")),
            )
        )

    @display(
        description=_("Status"),
        ordering="status",
        label={TenantStatus.ACTIVE.label: "success", TenantStatus.SUSPENDED.label: "danger"},
    )
    def state(self, tenant: Tenant) -> str:
        return str(tenant.get_status_display())

    @display(description=_("Owners"), ordering="owners_present")
    def owner_count(self, tenant: Any) -> int:
        return int(tenant.owners_present)

    @display(description=_("Members"), ordering="members_present")
    def member_count(self, tenant: Any) -> int:
        return int(tenant.members_present)

    @admin.action(description=_("Suspend"), permissions=["operate"])
    def suspend(self, request: HttpRequest, queryset: QuerySet[Tenant]) -> HttpResponse | None:
        """Shows the effects of the suspension and asks for the reason, then suspends."""
        rows = list(queryset[:ACTION_ROWS_MAX])
        form = bound_form(request, rows, SuspendForm)
        if not form.is_valid():
            effects = [effect for row in rows for effect in effects_on(row)]
            return confirm_page(request, rows, form, effects=effects, members_too=True)
        reason, note = SuspensionReason(form.cleaned_data["reason"]), form.cleaned_data["note"]

        def act(acting: Actor, tenant: Tenant) -> str:
            services.suspend_tenant(acting=acting, tenant=tenant, reason=reason, note=note)
            return gettext("suspended")

        act_on_each_row(self, request, rows, act)
        return None

    @operator_action(_("Resume"))
    def resume(self, acting: Actor, tenant: Tenant) -> str:
        services.resume_tenant(acting=acting, tenant=tenant)
        return gettext("resumed")


@admin.register(User)
class UserAdmin(OperatorAdmin):
    when_empty = _("People who signed up, accepted an invitation, or were appointed operators.")
    symbol = "person"
    list_display = ("email", "name", "is_staff", "is_active", "email_verified_at", "last_login", "date_joined")
    list_filter = ("is_staff", "is_active", "language")
    search_fields = ("id", "email", "name")
    fields = (
        "id", "email", "email_verified_at", "enters_verified_only", "name", "language", "time_zone", "is_staff",
        "is_active", "last_login", "date_joined",
    )  # fmt: skip
    actions = ("take_factors_away",)

    @operator_action(_("Take second factors away"))
    def take_factors_away(self, acting: Actor, user: User) -> str:
        services.take_factors_away(acting=acting, user=user)
        return gettext("second factors taken away")


@admin.register(Member)
class MemberAdmin(OperatorAdmin):
    when_empty = _(
        "Who belongs to which tenant. The first one founds it; owners and admins invite the others at the console."
    )
    symbol = "group"
    list_display = ("user", "tenant", "role", "created_at", "removed_at")
    list_filter = ("role", ("removed_at", admin.EmptyFieldListFilter))
    list_select_related = ("user", "tenant")
    search_fields = ("id", "user__email", "tenant__name", "tenant__id")


@admin.register(Invitation)
class InvitationAdmin(OperatorAdmin):
    when_empty = _("Owners and admins of tenants invite people at the console, under Members.")
    symbol = "mail"
    list_display = ("email", "tenant", "role", "created_at", "expires_at", "accepted_at", "revoked_at")
    list_filter = ("role",)
    list_select_related = ("tenant",)
    search_fields = ("id", "email", "tenant__name")
    exclude = ("secret_hash",)


@admin.register(ApiToken)
class ApiTokenAdmin(OperatorAdmin):
    when_empty = _(
        "Members of tenants make tokens at the console, under API tokens. Only their first characters are kept."
    )
    symbol = "key"
    list_display = ("name", "prefix", "tenant", "maker", "created_at", "expires_at", "last_used_at", "revoked_at")
    list_filter = (("revoked_at", admin.EmptyFieldListFilter),)
    list_select_related = ("tenant", "member__user")
    search_fields = ("id", "name", "prefix", "tenant__name", "member__user__email")
    exclude = ("secret_hash",)
    actions = ("revoke",)

    @display(description=_("made by"), ordering="member__user__email")
    def maker(self, token: ApiToken) -> str:
        return token.member.user.email

    @operator_action(_("Revoke"))
    def revoke(self, acting: Actor, token: ApiToken) -> str:
        services.revoke_token(acting=acting, token=token)
        return gettext("revoked")


@admin.register(AuditEntry)
class AuditEntryAdmin(OperatorAdmin):
    when_empty = _("Every change by anybody leaves an entry here, and none is ever deleted.")
    symbol = "history"
    list_display = ("time", "actor_label", "actor_kind", "action", "target_type", "target_id", "tenant", "request_id")
    list_filter = ("actor_kind", "action", "target_type")
    list_select_related = ("tenant",)
    search_fields = ("target_id", "actor_label", "actor_id", "request_id", "tenant__id", "tenant__name")
    date_hierarchy = "time"
    exclude = ("before", "after")
    readonly_fields = ("was", "became")

    @display(description=_("before"))
    def was(self, entry: AuditEntry) -> str:
        return _as_code(entry.before)

    @display(description=_("after"))
    def became(self, entry: AuditEntry) -> str:
        return _as_code(entry.after)


def _as_code(value: Any) -> str:
    if value is None:
        return "–"
    return format_html("<pre>{}</pre>", json.dumps(value, indent=2, ensure_ascii=False))
