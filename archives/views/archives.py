"""Console pages of archives: source, destination, progress and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_http_methods, require_POST

from archives import access as archives_access
from archives import selectors, services
from archives.forms import ArchiveChangeForm, ArchiveForm, values_of
from archives.models import Archive
from instances import access as instances_access
from tenants import access
from tenants.api.pages import page_of_rows
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.limits import PAGE_SIZE_DEFAULT
from tenants.views.asking import Question, ask_first
from tenants.views.base import Crumb, add_errors, console_page, render_page, wording


@console_page(Scope.ARCHIVES_READ)
@require_http_methods(["GET", "POST"])
def archives_page(request: HttpRequest) -> HttpResponse:
    """Shows archives with their progress, and the form for a new one."""
    acting = request.actor  # type: ignore[attr-defined]
    tenant = access.tenant_of(acting)
    form = ArchiveForm(request.POST or None, instances=instances_access.names_of(tenant))
    if form.is_bound and form.is_valid():
        values = form.arguments()
        try:
            instance = instances_access.instance(acting, values.pop("instance_id"))
            archive = services.create(acting=acting, instance=instance, **values)
            text = _("%(topic)s is archived to %(url)s.") % {"topic": archive.topic, "url": archive.url}
            messages.success(request, text)
            return redirect("page-archive", archive.pk)
        except DomainError as error:
            add_errors(form, error)
    context = {"rows": selectors.list_with_progress(tenant), "form": form}
    return render_page(
        request, "archives/archives.html", context, section="archives", crumbs=[(_("Archives"), None)],
        status=422 if form.is_bound else 200,
    )  # fmt: skip


@console_page(Scope.ARCHIVES_READ)
@require_http_methods(["GET", "POST"])
def archive_page(request: HttpRequest, archive_id: str) -> HttpResponse:
    """Shows one archive: its partitions, 50 on a page, code to read its files, and the form that changes it."""
    acting = request.actor  # type: ignore[attr-defined]
    archive = archives_access.archive(acting, archive_id)
    form = ArchiveChangeForm(request.POST or None, initial=values_of(archive))
    form.remove_unused_credentials(archive)
    if form.is_bound and form.is_valid():
        try:
            with transaction.atomic():
                locked = archives_access.archive(acting, archive_id, lock=True)
                services.change(acting=acting, archive=locked, changes=form.changes())
            messages.success(request, _("The archive of %(topic)s is changed.") % {"topic": archive.topic})
            return redirect("page-archive", archive.pk)
        except DomainError as error:
            if error.http_status == 404:
                raise
            add_errors(form, error)
    partitions, next_token = page_of_rows(
        archive.partitions.all(), order=("partition",), page_size=PAGE_SIZE_DEFAULT,
        page_token=request.GET.get("page_token") or None, binding=f"partitions of {archive.pk}",
    )  # fmt: skip
    context = {
        "row": selectors.progress_of(archive), "archive": archive, "examples": selectors.reading_examples(archive),
        "partitions": partitions, "next_token": next_token,
        "is_first": "page_token" not in request.GET, "form": form,
    }  # fmt: skip
    crumbs: list[Crumb] = [(_("Archives"), reverse("page-archives")), (archive.topic, None)]
    return render_page(
        request,
        "archives/archive.html",
        context,
        section="archives",
        crumbs=crumbs,
        status=422 if form.is_bound else 200,
    )


@console_page(Scope.ARCHIVES_WRITE)
@require_POST
def change_archive(request: HttpRequest, archive_id: str, act: str) -> HttpResponse:
    """Runs, pauses, resumes or deletes an archive; deletion asks for confirmation."""
    acting = request.actor  # type: ignore[attr-defined]
    confirmation = _ask_to_delete(request, archives_access.archive(acting, archive_id)) if act == "delete" else None
    if confirmation is not None:
        return confirmation
    action, success_message = _ACTIONS[act]
    try:
        with transaction.atomic():
            archive = archives_access.archive(acting, archive_id, lock=True)
            action(acting=acting, archive=archive)
        messages.success(request, _(success_message) % {"topic": archive.topic})
    except DomainError as error:
        if error.http_status == 404:
            raise
        messages.error(request, wording(error))
        return redirect("page-archive", archive_id)
    return redirect("page-archives") if act == "delete" else redirect("page-archive", archive_id)


def _ask_to_delete(request: HttpRequest, archive: Archive) -> HttpResponse | None:
    question = Question(
        title=_("Delete the archive of %(topic)s?") % {"topic": archive.topic},
        consequence=_("Files at s3: and rows at postgresql: stay, files at file: are deleted."),
        action_label=_("Delete"),
        back=reverse("page-archive", args=[archive.pk]),
    )
    crumbs = [(_("Archives"), reverse("page-archives")), (archive.topic, question.back)]
    return ask_first(request, question, section="archives", crumbs=crumbs)


def _pause(*, acting: Any, archive: Archive) -> None:
    services.change(acting=acting, archive=archive, changes={"is_paused": True})


def _resume(*, acting: Any, archive: Archive) -> None:
    services.change(acting=acting, archive=archive, changes={"is_paused": False})


_ACTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "run": (services.run_now, gettext_noop("The archive of %(topic)s runs within half a minute.")),
    "pause": (_pause, gettext_noop("The archive of %(topic)s is paused.")),
    "resume": (_resume, gettext_noop("The archive of %(topic)s goes on.")),
    "delete": (services.delete, gettext_noop("The archive of %(topic)s is deleted.")),
}
