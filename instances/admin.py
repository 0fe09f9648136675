"""Instances, operations and address lists of topics in the operator panel."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _

from instances import selectors, services
from instances.lifecycle.effects import effects_of
from instances.models import Instance, Operation, TopicAllowList
from tenants.actors import Actor
from tenants.operator import ACTION_ROWS_MAX, OperatorAdmin, act_on_each_row, operator_action
from tenants.suspending import NoteForm, bound_form, confirm_page


@admin.register(Instance)
class InstanceAdmin(OperatorAdmin):
    when_empty = _("Tenants create instances at the console or over the API. A demo one comes with manage.py up.")
    symbol = "water_drop"
    list_display = ("id", "name", "tenant", "phase", "reason", "plan", "bandwidth_mb_s", "storage_gb", "phase_since")
    list_filter = ("phase", "plan", "cluster_type")
    list_select_related = ("tenant",)
    search_fields = ("id", "name", "tenant__name", "tenant__slug")
    actions = ("suspend", "resume")

    @admin.action(description=_("Suspend: refuse produce"), permissions=["operate"])
    def suspend(self, request: HttpRequest, queryset: QuerySet[Instance]) -> HttpResponse | None:
        """Shows the effects and a form for the note to the tenant; suspends the instances when the form is sent."""
        rows = list(queryset[:ACTION_ROWS_MAX])
        form = bound_form(request, rows, NoteForm)
        if not form.is_valid():
            return confirm_page(request, rows, form, effects=effects_of(rows), members_too=False)
        note = form.cleaned_data["note"]

        def act(acting: Actor, instance: Instance) -> Any:
            row = selectors.lock_instance(instance)
            services.suspend_instance(acting=acting, instance=row, note=note)
            return _("suspended")

        act_on_each_row(self, request, rows, act)
        return None

    @operator_action(_("Resume"))
    def resume(self, acting: Actor, instance: Instance) -> Any:
        row = selectors.lock_instance(instance)
        services.resume_instance(acting=acting, instance=row)
        return _("resumed")


@admin.register(Operation)
class OperationAdmin(OperatorAdmin):
    when_empty = _(
        "Operations on instances, such as creating, resizing or deleting one, are listed here with their steps."
    )
    symbol = "pending_actions"
    list_display = ("id", "type", "state", "instance", "tenant", "asked_by", "created_at", "finished_at")
    list_filter = ("state", "type")
    list_select_related = ("tenant", "instance")
    search_fields = ("id", "instance__id", "instance__name", "tenant__name")


@admin.register(TopicAllowList)
class TopicAllowListAdmin(OperatorAdmin):
    when_empty = _(
        "Tenants say on a topic's page from which addresses it may be used. Without a list it is from anywhere."
    )
    symbol = "shield"
    list_display = ("instance", "topic", "updated_at")
    list_select_related = ("instance",)
    search_fields = ("instance__id", "topic")
