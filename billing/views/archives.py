"""Archives: which topics are copied where, how far each partition is, and what is the matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from billing import access as billing_access
from billing.archives import selectors, services
from billing.forms import ArchiveForm
from billing.models import Archive
from instances import access as instances_access
from tenants import access
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.views.base import add_errors, console_page, render_page, wording


@console_page(Scope.ARCHIVES_READ)
def archives_page(request: HttpRequest) -> HttpResponse:
    """Archives with their progress, and the form for another one."""
    acting = request.actor  # type: ignore[attr-defined]
    tenant = access.tenant_of(acting)
    form = ArchiveForm(request.POST or None, instances=billing_access.names_of_present(tenant))
    if form.is_bound and form.is_valid():
        given = dict(form.cleaned_data)
        try:
            instance = instances_access.instance(acting, given.pop("instance_id"))
            made = services.create(acting=acting, instance=instance, **given)
            said = _("%(topic)s is archived to %(url)s.") % {"topic": made.topic, "url": made.url}
            messages.success(request, said)
            return redirect("page-archives")
        except DomainError as error:
            add_errors(form, error)
    context = {"rows": selectors.with_progress(tenant), "form": form}
    return render_page(
        request, "billing/archives.html", context, section="archives", crumbs=[(_("Archives"), None)],
        status=422 if form.is_bound else 200,
    )  # fmt: skip


@console_page(Scope.ARCHIVES_WRITE)
@require_POST
def change_archive(request: HttpRequest, archive_id: str, act: str) -> HttpResponse:
    """`act`: run, pause, resume or delete."""
    acting = request.actor  # type: ignore[attr-defined]
    archive = billing_access.archive(acting, archive_id, lock=True)
    done, said = _ACTS[act]
    try:
        done(acting=acting, archive=archive)
        messages.success(request, _(said) % {"topic": archive.topic})
    except DomainError as error:
        messages.error(request, wording(error))
    return redirect("page-archives")


def _pause(*, acting: Any, archive: Archive) -> None:
    services.change(acting=acting, archive=archive, changes={"is_paused": True})


def _resume(*, acting: Any, archive: Archive) -> None:
    services.change(acting=acting, archive=archive, changes={"is_paused": False})


_ACTS: dict[str, tuple[Callable[..., Any], str]] = {
    "run": (services.run_now, "The archive of %(topic)s runs within half a minute."),
    "pause": (_pause, "The archive of %(topic)s is paused."),
    "resume": (_resume, "The archive of %(topic)s goes on."),
    "delete": (services.delete, "The archive of %(topic)s is deleted."),
}
