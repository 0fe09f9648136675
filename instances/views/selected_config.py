"""Change of settings of several topics at once: validated for each, shown, and applied after a confirmation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from instances import services
from instances.models import Instance
from instances.topics.settings_form import ConfirmedChangesForm, SharedSettingsForm
from instances.views.common import render_instance
from tenants.errors import DomainError
from tenants.formatting import count
from tenants.views.base import wording

REFUSALS_SHOWN_MAX = 5
PREVIEW, SAVE = "preview", "save"


def selected_config_page(request: HttpRequest, instance: Instance, names: Sequence[str]) -> HttpResponse:
    """Handles the posted step: shows the form, shows the changes with the topics that refuse them, or applies them."""
    step = request.POST.get("step", "")
    if step == SAVE:
        return _save(request, instance, names)
    maximums = {"max.message.bytes": instance.message_bytes_max}
    form = SharedSettingsForm(request.POST if step == PREVIEW else None, maximums=maximums)
    refusals: list[tuple[str, str]] = []
    config: Mapping[str, str] = {}
    if form.is_valid():
        config = form.config
        refusals = _refusals(request, instance, names, config) if config else []
    refused = {name for name, _reason in refusals}
    accepting_names = [name for name in names if name not in refused]
    context = {
        "form": form, "groups": list(form.groups()), "names": names, "taking": accepting_names, "refusals": refusals,
        "changes": form.changes if config else (), "agreed": json.dumps(config),
        "note": _("Nothing is changed.") if form.is_bound and not form.errors and not config else "",
    }  # fmt: skip
    crumbs = [(_("Topics"), reverse("page-topics", args=[instance.pk])), (_("Change settings"), None)]
    template = "instances/topics_config.html"
    status = 422 if form.errors else 200
    return render_instance(request, template, instance, context, section="topics", crumbs=crumbs, status=status)


def _refusals(
    request: HttpRequest, instance: Instance, names: Sequence[str], config: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Returns the topics whose brokers refuse the settings, with the reasons."""
    result = []
    for name in names:
        try:
            services.check_topic_config(
                acting=request.actor, instance=instance, name=name, config=config  # type: ignore[attr-defined]
            )  # fmt: skip
        except DomainError as error:
            result.append((name, wording(error)))
    return result


def _save(request: HttpRequest, instance: Instance, names: Sequence[str]) -> HttpResponse:
    """Applies the settings to each topic with an audit row of its own; a refusal does not stop the others."""
    confirmed = ConfirmedChangesForm({"changes": request.POST.get("changes", ""), "expected": "-"})
    if not confirmed.is_valid() or None in confirmed.cleaned_data["changes"].values():
        messages.error(request, _("Look at the changes again."))
        return redirect("page-topics", instance.pk)
    refusals: list[str] = []
    changed = 0
    for name in names:
        try:
            services.update_topic(
                acting=request.actor, instance=instance, name=name,  # type: ignore[attr-defined]
                config=confirmed.cleaned_data["changes"],
            )  # fmt: skip
            changed += 1
        except DomainError as error:
            refusals.append(f"{name}: {wording(error)}")
    if changed:
        text = ngettext("The settings of %(n)s topic are saved.", "The settings of %(n)s topics are saved.", changed)
        messages.success(request, text % {"n": count(changed)})
    for refusal in refusals[:REFUSALS_SHOWN_MAX]:
        messages.error(request, refusal)
    if len(refusals) > REFUSALS_SHOWN_MAX:
        n = len(refusals) - REFUSALS_SHOWN_MAX
        messages.error(request, ngettext("%(n)s more was refused.", "%(n)s more were refused.", n) % {"n": n})
    return redirect("page-topics", instance.pk)
