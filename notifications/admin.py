"""Alert rules about clusters in the operator panel."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from notifications.alerts import services as alerts
from notifications.models import OF_CLUSTERS, AlertFiring, AlertRule
from tenants import audit
from tenants.actors import Actor
from tenants.operator import OperatorAdmin, acting_operator, operator_action


@admin.register(AlertRule)
class AlertRuleAdmin(OperatorAdmin):
    """Alert rules about clusters; rules of tenants are not shown."""

    when_empty = _("No rule watches a cluster. Add one to get a mail when replicas lag behind or a broker is silent.")
    symbol = "notifications"
    may_add = True
    may_change = True
    list_display = (
        "name", "cluster", "kind", "threshold", "for_minutes", "state", "value", "is_unknown", "is_enabled",
        "evaluated_at",
    )  # fmt: skip
    list_filter = ("kind", "state", "is_enabled")
    list_select_related = ("cluster",)
    fields = ("name", "cluster", "kind", "threshold", "for_minutes", "is_enabled")
    actions = ("delete_rules",)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).filter(cluster__isnull=False)

    def get_readonly_fields(self, request: HttpRequest, obj: AlertRule | None = None) -> tuple[str, ...]:
        return ("cluster", "kind") if obj is not None else ()

    def formfield_for_choice_field(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        if db_field.name == "kind":
            options["choices"] = [(kind.value, kind.label) for kind in OF_CLUSTERS]
        return super().formfield_for_choice_field(db_field, request, **options)

    def get_form(self, request: HttpRequest, obj: AlertRule | None = None, change: bool = False, **options: Any) -> Any:
        form = super().get_form(request, obj, change, **options)
        if "cluster" in form.base_fields:
            form.base_fields["cluster"].required = True
        return form

    def save_model(self, request: HttpRequest, obj: AlertRule, form: Any, change: bool) -> None:
        values = {name: form.cleaned_data[name] for name in form.changed_data}
        if change:
            alerts.change_rule_of_cluster(acting=acting_operator(request), rule=obj, changes=values)
            return
        super().save_model(request, obj, form, change)
        after = {name: str(value) for name, value in values.items()}
        audit.record(acting_operator(request), "alert_rule.created", obj, None, after)

    @operator_action(_("Delete"))
    def delete_rules(self, acting: Actor, rule: AlertRule) -> Any:
        alerts.delete_rule_of_cluster(acting=acting, rule=rule)
        return _("deleted")


@admin.register(AlertFiring)
class AlertFiringAdmin(OperatorAdmin):
    """Firings of alert rules about clusters."""

    when_empty = _("No rule about a cluster has fired.")
    symbol = "notification_important"
    list_display = ("fired_at", "rule_name", "of_name", "kind", "value", "threshold", "resolved_at", "ended_by")
    list_filter = ("kind", ("resolved_at", admin.EmptyFieldListFilter))
    search_fields = ("rule_name", "of_name")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).exclude(cluster_id="")
