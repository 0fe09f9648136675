"""Faults of single tenants in the operator panel."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from billing.models import ActionItem
from tenants import audit
from tenants.actors import Actor
from tenants.operator import OperatorAdmin, operator_action


@admin.register(ActionItem)
class ActionItemAdmin(OperatorAdmin):
    """Faults of single tenants; an item is removed when the next round succeeds."""

    when_empty = _("Nothing failed.")
    symbol = "assignment_late"
    list_display = ("first_at", "tenant", "kind", "detail", "noted_at")
    list_filter = ("kind",)
    search_fields = ("tenant__name", "tenant__slug", "detail")
    list_select_related = ("tenant",)
    actions = ("mark_handled",)

    @operator_action(_("Mark as handled"))
    def mark_handled(self, acting: Actor, item: ActionItem) -> Any:
        after = {"kind": item.kind, "detail": item.detail}
        audit.record(acting, "action_item.handled", item, None, after, tenant=item.tenant)
        item.delete()
        return _("handled")
