"""Copies of topics on the page of topics: their progress, and the actions that cancel or resume one."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from instances import services
from instances.models import Instance
from instances.views.common import instance_page
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.views.base import frame_context, wording

CANCEL, RESUME = "cancel", "resume"


@instance_page(Scope.TOPICS_READ)
@require_GET
def copies_part(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Renders the copies with their progress; the open page refreshes this part."""
    acting = request.actor  # type: ignore[attr-defined]
    context = {**frame_context(request, acting), "instance": instance, "copies": list(services.topic_copies(instance))}
    return render(request, "instances/topic_copies_part.html", context)


@instance_page(Scope.TOPICS_WRITE)
@require_POST
def change_copy(request: HttpRequest, instance: Instance, copy_id: str, act: str) -> HttpResponse:
    """Cancels or resumes a copy; each action undoes the other."""
    if act not in (CANCEL, RESUME):
        raise Http404
    change = services.cancel_copy if act == CANCEL else services.resume_copy
    try:
        copy = change(acting=request.actor, instance=instance, copy_id=copy_id)  # type: ignore[attr-defined]
    except DomainError as error:
        if error.http_status in (401, 404):
            raise
        messages.error(request, wording(error))
    else:
        text = _("The copy to %(name)s is cancelled. It keeps the messages copied so far.")
        if act == RESUME:
            text = _("The copy to %(name)s goes on.")
        messages.success(request, text % {"name": copy.target})
    return redirect(reverse("page-topics", args=[instance.pk]) + "#copies")
