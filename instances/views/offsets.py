"""Pages that reset a group's offsets, undo that, and delete a group or its offsets of a topic."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods, require_POST

from instances import services
from instances.groups import selectors
from instances.groups.forms import DeleteOffsetsForm, ResetForm
from instances.groups.selectors import GroupDetail
from instances.models import Instance
from instances.services import Reset
from instances.templatetags.groups import group_url
from instances.views.common import instance_page, render_instance
from instances.views.groups import crumbs_of
from tenants.choices import Scope
from tenants.errors import Conflict, DomainError
from tenants.formatting import count
from tenants.models import AuditEntry
from tenants.views.base import add_errors, wording

POINTERS = {"/topics": "topic", "/topics/0/name": "topic", "/topics/0/partitions": "partitions", "/by": "by"}


@instance_page(Scope.GROUPS_WRITE)
@require_http_methods(["GET", "POST"])
def reset_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows a form, then the plan, then applies it; a plan that has changed since it was shown is shown again."""
    detail = _detail(request, instance)
    form = ResetForm(request.POST or None, topics=sorted({partition.topic for partition in detail.partitions}))
    plan: Reset | None = None
    conflict = ""
    if form.is_valid():
        arguments: dict[str, Any] = {
            "acting": request.actor,  # type: ignore[attr-defined]
            "instance": instance, "group": detail.id, "target": form.target, "selection": form.selection,
        }  # fmt: skip
        try:
            if request.POST.get("act") == "apply":
                result = services.reset_offsets(**arguments, expected=request.POST.get("expected") or "none")
                return _redirect_with_result(request, instance, result)
        except Conflict as error:
            conflict = wording(error)
        except DomainError as error:
            add_errors(form, error, POINTERS)
        try:
            plan = services.plan_reset(**arguments) if form.is_valid() else None
        except DomainError as error:
            add_errors(form, error, POINTERS)
    context = {"group": detail.id, "detail": detail, "form": form, "shown": plan, "note": conflict}
    return render_instance(
        request, "instances/group_reset.html", instance, context, section="groups",
        crumbs=crumbs_of(instance, detail.id, (_("Reset offsets"), None)),
        status=422 if form.errors or conflict else 200,
    )  # fmt: skip


def _redirect_with_result(request: HttpRequest, instance: Instance, result: Reset) -> HttpResponse:
    """Returns to the group with a message and an undo."""
    n = len(result.changed)
    if not n:
        messages.success(request, _("Every offset was there already."))
    else:
        text = ngettext("The offset of %(n)s partition is reset.", "The offsets of %(n)s partitions are reset.", n)
        _offer_undo(request, instance, result.group, result.entry_id, text % {"n": count(n)})
    return redirect(group_url("page-group", instance.pk, result.group))


def _offer_undo(request: HttpRequest, instance: Instance, group: str, entry_id: str, text: str) -> None:
    undo_url = f"{group_url('page-group-undo', instance.pk, group)}&entry={entry_id}"
    messages.info(request, text, extra_tags=f"undo {undo_url}")


@instance_page(Scope.GROUPS_WRITE)
@require_POST
def undo(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Restores the offsets before a change."""
    group = request.GET.get("group", "")
    try:
        services.undo_offsets(
            acting=request.actor, instance=instance, group=group, entry_id=request.GET.get("entry", "")  # type: ignore[attr-defined]
        )  # fmt: skip
        messages.success(request, _("The earlier offsets are back."))
    except DomainError as error:
        messages.error(request, wording(error))
        return redirect(_remaining_page_url(instance, group, _current_detail(instance, group)))
    return redirect(group_url("page-group", instance.pk, group))


@instance_page(Scope.GROUPS_WRITE)
@require_http_methods(["GET", "POST"])
def delete_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Deletes a group after its name was typed, or only its offsets of one topic."""
    detail = _detail(request, instance)
    part = request.POST.get("part", "")
    topics_with_offsets = sorted(
        {partition.topic for partition in detail.partitions if partition.committed is not None}
    )
    form = DeleteOffsetsForm(request.POST if part == "topic" else None, topics=topics_with_offsets)
    acting = request.actor  # type: ignore[attr-defined]
    try:
        if part == "topic" and form.is_valid():
            topic = form.cleaned_data["topic"]
            entry = services.delete_offsets(acting=acting, instance=instance, group=detail.id, topic=topic)
            return _redirect_after_offsets_deletion(request, instance, detail.id, topic, entry)
        if part == "group" and request.POST.get("typed") == detail.id:
            return _redirect_after_group_deletion(
                request, instance, detail, services.delete_group(acting=acting, instance=instance, group=detail.id)
            )
    except DomainError as error:
        messages.error(request, wording(error))
    context = {"group": detail.id, "detail": detail, "form": form, "read": topics_with_offsets}
    return render_instance(
        request, "instances/group_delete.html", instance, context, section="groups",
        crumbs=crumbs_of(instance, detail.id, (_("Delete"), None)),
    )  # fmt: skip


def _redirect_after_offsets_deletion(
    request: HttpRequest, instance: Instance, group: str, topic: str, entry: AuditEntry
) -> HttpResponse:
    """Redirects to the group's page, or to the list if the group has ended. Offers an undo unless the group has
    members, because brokers would refuse it.
    """
    text = _("%(group)s has forgotten what it read of %(topic)s.") % {"group": group, "topic": topic}
    remaining = _current_detail(instance, group)
    if remaining is None or remaining.is_empty:
        _offer_undo(request, instance, group, entry.pk, text)
    else:
        messages.success(request, text)
    return redirect(_remaining_page_url(instance, group, remaining))


def _current_detail(instance: Instance, group: str) -> GroupDetail | None:
    """Returns the current state of the group; None if it does not exist any more, or is unknown."""
    try:
        return selectors.group_detail(instance, group, fresh=True)
    except DomainError:
        return None


def _remaining_page_url(instance: Instance, group: str, remaining: GroupDetail | None) -> str:
    """Returns the URL of the group's page, or of the list: brokers remove a group without members and offsets."""
    if remaining is None or (
        remaining.is_empty and all(partition.committed is None for partition in remaining.partitions)
    ):
        return reverse("page-groups", args=[instance.pk])
    return group_url("page-group", instance.pk, group)


def _redirect_after_group_deletion(
    request: HttpRequest, instance: Instance, detail: GroupDetail, entry: AuditEntry
) -> HttpResponse:
    text = _("Group %(group)s deleted.") % {"group": detail.id}
    if services.offsets_from_audit(entry.before):
        _offer_undo(request, instance, detail.id, entry.pk, text)
    else:
        messages.success(request, text)
    return redirect(reverse("page-groups", args=[instance.pk]))


def _detail(request: HttpRequest, instance: Instance) -> GroupDetail:
    return selectors.group_detail(instance, request.GET.get("group", ""))
