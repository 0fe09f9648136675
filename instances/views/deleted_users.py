"""Deleted users on the page of users: the actions that restore or purge one."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from instances import services
from instances.models import Instance
from instances.templatetags.access import user_url
from instances.views.common import instance_page
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.views.asking import Question, ask_first
from tenants.views.base import wording


@instance_page(Scope.USERS_WRITE)
@require_POST
def restore(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Lets a deleted user sign in again."""
    name = request.GET.get("user", "")
    try:
        services.restore_user(acting=request.actor, instance=instance, name=name)  # type: ignore[attr-defined]
    except DomainError as error:
        if error.http_status == 401:
            raise
        messages.error(request, wording(error))
        return redirect("page-users", instance.pk)
    messages.success(request, _("User %(user)s is restored, with its passwords and rights.") % {"user": name})
    return redirect(user_url("page-user", instance.pk, name))


@instance_page(Scope.USERS_WRITE)
@require_POST
def delete_for_good(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Purges a deleted user, after a question."""
    name = request.GET.get("user", "")
    back = reverse("page-users", args=[instance.pk])
    question = Question(
        title=_("Delete %(user)s for good?") % {"user": name},
        consequence=_("Its passwords go. Nothing brings them back. Access rules and quotas that name it stay."),
        action_label=_("Delete for good"),
        back=back,
    )
    crumbs = [(instance.name, reverse("page-instance", args=[instance.pk])), (_("Users"), back)]
    question_page = ask_first(request, question, section="users", crumbs=crumbs, context={"instance": instance})
    if question_page is not None:
        return question_page
    try:
        services.purge_deleted_user(acting=request.actor, instance=instance, name=name)  # type: ignore[attr-defined]
        messages.success(request, _("User %(user)s is deleted for good.") % {"user": name})
    except DomainError as error:
        if error.http_status == 401:
            raise
        messages.error(request, wording(error))
    return redirect("page-users", instance.pk)
