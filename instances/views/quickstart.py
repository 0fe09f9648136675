"""Page of the quickstart of a fresh instance: created objects, the password once, code, and links."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from instances import services
from instances.models import Instance
from instances.views.common import instance_page, render_instance
from instances.views.connecting import quickstart_code
from instances.views.last_viewed_topic import remember_topic
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.formatting import quota_limit
from tenants.views.base import wording


@instance_page(Scope.TOPICS_WRITE)
@require_POST
def quickstart_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Creates topic, user and sample data, and shows the password; the page must not be cached."""
    try:
        created = services.quickstart(acting=request.actor, instance=instance)  # type: ignore[attr-defined]
    except DomainError as error:
        if error.http_status in (403, 404) or error.http_status >= 500:
            raise
        messages.error(request, wording(error))
        return redirect("page-instance", instance.pk)
    remember_topic(request, instance, created.topic)
    code = quickstart_code(instance, created)
    context = {
        "quickstart": created,
        "made": created.user,
        "password": created.secret.password if created.secret is not None else "",
        "properties": code.properties,
        "snippets": code.snippets,
        "ca_command": code.ca_command,
    }
    response = render_instance(
        request, "instances/quickstart.html", instance, context, section="overview", crumbs=[(_("First message"), None)]
    )
    response.headers["Cache-Control"] = "no-store"
    return response


@instance_page(Scope.QUOTAS_WRITE)
@require_POST
def push_limit(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Starts the demonstration of a quota on the instance's page."""
    try:
        run = services.push_limit(
            acting=request.actor,  # type: ignore[attr-defined]
            instance=instance,
            topic=request.POST.get("topic", services.QUICKSTART_TOPIC),
        )
    except DomainError as error:
        if error.http_status == 403 or error.http_status >= 500:
            raise
        messages.error(request, wording(error))
        return redirect("page-instance", instance.pk)
    text_values = {"client": run.client_id, "limit": quota_limit(run.limit_bytes_per_s, "producer_byte_rate")}
    messages.success(
        request,
        _("Client %(client)s may produce %(limit)s and sends three times as much. Its quota is taken back by itself.")
        % text_values,
    )
    return redirect(reverse("page-instance", args=[instance.pk]) + "#why")
