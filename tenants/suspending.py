"""Confirmation page of an operator's suspension: effects, reason, and note for the tenant.

Apps above add effects on their objects with `add_effects`, because dependencies between apps point in one direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from tenants.choices import SuspensionReason
from tenants.limits import SUSPENSION_NOTE_CHARS_MAX
from tenants.models import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Effect of a suspension on one object, a row of the confirmation page.

    `hint` identifies the object, `change` states the effect, and `now` describes the current clients of the object.
    """

    name: str
    hint: str
    change: str
    now: str = ""


EffectSource = Callable[[Tenant], Iterable[Effect]]
_sources: list[EffectSource] = []


def add_effects(source: EffectSource) -> None:
    """Registers effects on objects of an app; called once when Django is ready."""
    if source not in _sources:
        _sources.append(source)


def effects_on(tenant: Tenant) -> list[Effect]:
    """Returns the effects of suspending this tenant."""
    return [effect for source in _sources for effect in source(tenant)]


class NoteForm(forms.Form):
    """Note for the tenant. `typed` must be the name of the suspended object, or the number of several objects."""

    note = forms.CharField(
        label=gettext_lazy("What the tenant reads"), max_length=SUSPENSION_NOTE_CHARS_MAX,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy(
            "The reason, and what ends the suspension: a contact, an amount to pay. The console shows this text to the "
            "tenant."
        ),
    )  # fmt: skip
    typed = forms.CharField(max_length=200, widget=forms.TextInput(attrs={"autocomplete": "off"}))

    def __init__(self, *args: Any, expected_text: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.expected_text = expected_text
        self.fields["typed"].label = _("Type %(name)s to confirm") % {"name": expected_text}

    def clean_typed(self) -> str:
        typed: str = self.cleaned_data["typed"]
        if typed.strip() != self.expected_text:
            raise forms.ValidationError(_("This is not %(name)s.") % {"name": self.expected_text})
        return typed


class SuspendForm(NoteForm):
    """Note and reason for suspending a whole tenant."""

    reason = forms.ChoiceField(label=gettext_lazy("Reason"), choices=SuspensionReason.choices)
    field_order = ("reason", "note", "typed")


def bound_form(request: HttpRequest, rows: Sequence[Model], form: type[NoteForm]) -> NoteForm:
    """Returns the form of the page, bound if it was submitted."""
    expected_text = str(getattr(rows[0], "name", rows[0])) if len(rows) == 1 else str(len(rows))
    return form(request.POST if "typed" in request.POST else None, expected_text=expected_text)


def confirm_page(
    request: HttpRequest, rows: Sequence[Model], form: NoteForm, *, effects: Sequence[Effect], members_too: bool
) -> HttpResponse:
    """Renders the effects with the form, which posts to the list of the action."""
    title = _("Suspend %(name)s") % {"name": ", ".join(str(getattr(row, "name", row)) for row in rows)}
    context = {
        **admin.site.each_context(request), "title": title, "rows": rows, "form": form, "effects": effects,
        "members_too": members_too, "action": request.POST.get("action", ""), "back": request.get_full_path(),
    }  # fmt: skip
    return render(request, "operator/suspend.html", context, status=422 if form.is_bound else 200)
