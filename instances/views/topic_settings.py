"""Page of a topic's settings: one form, whose changes are shown before they are applied."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods

from instances import selectors, services
from instances.models import Instance
from instances.selectors import TopicView
from instances.topics.settings_form import ConfirmedChangesForm, SettingChange, TopicSettingsForm, fingerprint
from instances.views.common import instance_page
from instances.views.topics import render_topic
from tenants import access
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.views.base import wording

PREVIEW, SAVE = "preview", "save"


@instance_page(Scope.TOPICS_READ)
@require_http_methods(["GET", "POST"])
def settings_page(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Shows the settings in groups. A POST shows the changes, and a second one applies them."""
    topic = selectors.topic_detail(instance, name)
    act = request.POST.get("act", "")
    if request.method == "POST":
        access.require(request.actor, Scope.TOPICS_WRITE)  # type: ignore[attr-defined]
    if act == SAVE:
        return _save(request, instance, topic)
    entries = topic.config or ()
    maximums = {"max.message.bytes": instance.message_bytes_max}
    form = TopicSettingsForm(request.POST if act == PREVIEW else None, entries=entries, maximums=maximums)
    changes: Sequence[SettingChange] = ()
    message = ""
    if form.is_valid():
        changes = form.changes
        message = _validation_error(request, instance, form, changes) if changes else _("Nothing is changed.")
    context = {
        "form": form,
        "groups": list(form.groups()),
        "changes": () if message else changes,
        "note": message,
        "agreed": json.dumps({change.name: change.after_value for change in changes}),
        "expected": fingerprint(entries),
    }
    is_refused = bool(form.errors or (message and changes))
    return render_topic(request, instance, topic, "config", context, status=422 if is_refused else 200)


def _validation_error(
    request: HttpRequest, instance: Instance, form: TopicSettingsForm, changes: Sequence[SettingChange]
) -> str:
    """Validates the changes with the brokers. Returns their refusal as text, which is also added to the field that it
    names; empty if they accept.
    """
    acting = request.actor  # type: ignore[attr-defined]
    config = {change.name: change.after_value for change in changes}
    try:
        services.check_topic_config(acting=acting, instance=instance, name=_topic_of(request), config=config)
    except DomainError as error:
        text = wording(error)
        setting_name = next((change.name for change in changes if change.name in text), None)
        if setting_name is not None:
            form.add_error(setting_name, text)
        return text
    return ""


def _topic_of(request: HttpRequest) -> str:
    assert request.resolver_match is not None
    return str(request.resolver_match.kwargs["name"])


def _save(request: HttpRequest, instance: Instance, topic: TopicView) -> HttpResponse:
    confirmed = ConfirmedChangesForm(request.POST)
    page = redirect("page-topic-config", instance.pk, topic.name)
    if not confirmed.is_valid():
        return page
    if confirmed.cleaned_data["expected"] != fingerprint(topic.config or ()):
        messages.error(request, _("The settings have changed since they were shown. Look at them again."))
        return page
    config: Mapping[str, str | None] = confirmed.cleaned_data["changes"]
    try:
        services.update_topic(
            acting=request.actor, instance=instance, name=topic.name, config=config  # type: ignore[attr-defined]
        )  # fmt: skip
    except DomainError as error:
        if error.http_status in (401, 404):
            raise
        messages.error(request, wording(error))
        return page
    n = len(config)
    messages.success(request, ngettext("%(n)s setting is saved.", "%(n)s settings are saved.", n) % {"n": n})
    return page
