"""Pages and actions that change an instance: settings, deletion, restoration, purge, closing, resumption and retry; and
the live steps of an operation.
"""

from __future__ import annotations

from typing import Final

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from instances import access, selectors, services
from instances.acls.selectors import allows_everyone
from instances.choices import Reason
from instances.forms import AutoTopicsForm, NameForm, OpenAccessForm, SharingForm, StorageForm
from instances.lifecycle.phases import Phase
from instances.models import Instance
from instances.topics.table import topic_table
from instances.views.common import instance_page, render_instance
from instances.views.operation_steps import elapsed_s, steps_of
from tenants.choices import Scope
from tenants.errors import ConfirmationNeeded, DomainError
from tenants.formatting import clock
from tenants.views.base import add_errors, wording

# Forms by the part of the page.
SETTINGS_FORMS: Final[dict[str, type[forms.Form]]] = {
    "topics": AutoTopicsForm,
    "access": OpenAccessForm,
    "sharing": SharingForm,
    "storage": StorageForm,
}


@instance_page(locked=True)
@require_http_methods(["GET", "POST"])
def settings_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows name, automatic topics, access without rules, limits over brokers, storage and protection, each with its
    own form. The link to deletion comes last.
    """
    acting = request.actor  # type: ignore[attr-defined]
    part = request.POST.get("part", "") if request.method == "POST" else ""
    name_form = NameForm(request.POST if part == "name" else None, initial={"name": instance.name})
    settings_forms = {
        name: form(request.POST if part == name else None, initial=instance.settings_in_force)
        for name, form in SETTINGS_FORMS.items()
    }
    try:
        if part == "name" and name_form.is_valid():
            services.rename_instance(acting=acting, instance=instance, name=name_form.cleaned_data["name"])
            return _report_saved(request, instance)
        if part in settings_forms and settings_forms[part].is_valid():
            settings = settings_forms[part].cleaned_data
            was_open = allows_everyone(instance)
            services.configure_instance(acting=acting, instance=instance, settings=settings)
            if allows_everyone(instance) and not was_open:
                messages.warning(request, _("The instance is open now: what has no access rule is everybody's to use."))
            return _report_saved(request, instance)
        if part == "protect":
            protected = request.POST.get("protected") == "on"
            services.protect_instance(acting=acting, instance=instance, protected=protected)
            return _report_saved(request, instance)
    except DomainError as error:
        if part == "protect":
            messages.error(request, wording(error))
            return redirect("page-instance-settings", instance.pk)
        form = settings_forms.get(part, name_form)
        add_errors(form, error, {f"/settings/{name}": name for name in form.fields})
    context = {
        "name_form": name_form,
        **{f"{name}_form": form for name, form in settings_forms.items()},
        "grow_max_gb": instance.settings_in_force["storage_grow_max_gb"],
    }
    return render_instance(
        request, "instances/settings.html", instance, context,
        section="instance-settings", crumbs=[(_("Settings"), None)], status=422 if part else 200,
    )  # fmt: skip


def _report_saved(request: HttpRequest, instance: Instance) -> HttpResponse:
    messages.success(request, _("Saved."))
    return redirect("page-instance-settings", instance.pk)


@instance_page(Scope.INSTANCES_WRITE)
@require_http_methods(["GET", "POST"])
def delete_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Deletes an instance after its name was typed, because clients are cut off. The page says whether it can be
    restored.

    An instance that failed before it ran has neither clients nor data, and is deleted by one click.
    """
    never_ran = instance.current_phase is Phase.FAILED and instance.first_running_at is None
    if request.method == "POST" and (never_ran or request.POST.get("typed") == instance.name):
        acting = request.actor  # type: ignore[attr-defined]
        has_no_visible_topic = services.has_no_visible_topic(instance)
        try:
            with transaction.atomic():
                instance = access.instance(acting, instance.pk, lock=True)
                services.delete_instance(acting=acting, instance=instance, has_no_visible_topic=has_no_visible_topic)
        except ConfirmationNeeded:
            raise
        except DomainError as error:
            messages.error(request, wording(error))
            return redirect("page-instance-delete", instance.pk)
        if never_ran:
            messages.success(
                request, _("%(name)s is deleted. It never ran, so there was nothing to keep.") % {"name": instance.name}
            )
            return redirect("page-instances")
        if instance.reason == Reason.DELETED_FOR_GOOD:
            text = _("%(name)s is being deleted for good. It had no topic, so there is nothing to restore.")
            messages.success(request, text % {"name": instance.name})
            return redirect("page-instances")
        text_values = {"name": instance.name, "until": clock(instance.restorable_until)}
        restore = reverse("page-instance-restore", args=[instance.pk])
        messages.info(
            request,
            _("%(name)s is being deleted. Restorable until %(until)s.") % text_values,
            extra_tags=f"undo {restore}",
        )
        return redirect("page-instances")
    try:
        topics = topic_table(instance).rows
    except DomainError:
        topics = None  # unknown at the moment; the instance can be deleted anyway
    context = {
        "topics": topics,
        "stored_bytes": sum(topic.size_bytes or 0 for topic in topics or ()),
        "has_nothing_to_restore": services.has_nothing_to_restore(instance, has_no_visible_topic=topics == ()),
    }
    crumbs = [(_("Delete"), None)]
    return render_instance(
        request, "instances/delete.html", instance, context, section="instance-settings", crumbs=crumbs
    )


@instance_page(Scope.INSTANCES_WRITE, locked=True)
@require_http_methods(["GET", "POST"])
def purge_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Purges a deleted instance after its name was typed, because it cannot be restored afterwards."""
    if request.method == "POST" and request.POST.get("typed") == instance.name:
        try:
            services.purge_instance(acting=request.actor, instance=instance)  # type: ignore[attr-defined]
            messages.success(request, _("%(name)s is being deleted for good.") % {"name": instance.name})
        except ConfirmationNeeded:
            raise
        except DomainError as error:
            messages.error(request, wording(error))
        return redirect("page-instances")
    crumbs = [(_("Purge"), None)]
    return render_instance(request, "instances/purge.html", instance, {}, section="overview", crumbs=crumbs)


@instance_page(Scope.INSTANCES_WRITE, locked=True)
@require_POST
def restore(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Restores a deleted instance with the same address, topics and messages."""
    try:
        services.restore_instance(acting=request.actor, instance=instance)  # type: ignore[attr-defined]
        messages.success(request, _("%(name)s is back.") % {"name": instance.name})
    except DomainError as error:
        messages.error(request, wording(error))
    return redirect("page-instances")


@instance_page(Scope.INSTANCES_WRITE)
@require_POST
def close(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Closes an open instance. Resources without rules get rules by which every user may produce and consume."""
    try:
        operation, rules = services.close_instance(acting=request.actor, instance=instance)  # type: ignore[attr-defined]
    except DomainError as error:
        messages.error(request, wording(error))
        return redirect("page-instance", instance.pk)
    if rules:
        messages.success(request, _("The instance is closed. Everybody may produce and consume; narrow that here."))
        return redirect("page-acls", instance.pk)
    if operation is not None:
        messages.success(request, _("The instance is closed. Users do what access rules allow."))
    return redirect("page-instance", instance.pk)


@instance_page(Scope.INSTANCES_WRITE, locked=True)
@require_POST
def resume(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Resumes an instance that was suspended for idleness."""
    try:
        services.resume_instance(acting=request.actor, instance=instance)  # type: ignore[attr-defined]
        messages.success(request, _("%(name)s takes messages again in a moment.") % {"name": instance.name})
    except DomainError as error:
        messages.error(request, wording(error))
    return redirect("page-instance", instance.pk)


@instance_page(Scope.INSTANCES_WRITE, locked=True)
@require_POST
def retry(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Provisions a failed instance again."""
    try:
        services.retry_instance(acting=request.actor, instance=instance)  # type: ignore[attr-defined]
    except DomainError as error:
        messages.error(request, wording(error))
    return redirect("page-instance", instance.pk)


@instance_page()
@require_GET
def steps_part(request: HttpRequest, instance: Instance, operation_id: str) -> HttpResponse:
    """Renders the steps of one operation, refreshed every 300 ms until it is finished. The page of routes is then
    reloaded, with the reserved addresses.
    """
    operation = selectors.operation_detail(request.actor, operation_id)  # type: ignore[attr-defined]
    context = {"operation": operation, "steps": steps_of(operation), "elapsed_s": elapsed_s(operation), "is_part": True}
    if request.GET.get("back") == "routes":
        context["back"] = reverse("page-routes", args=[instance.pk])
    return render_instance(request, "instances/steps_part.html", instance, context, section="overview")
