"""Confirmation before an irreversible action: the first POST shows a question, whose form sends the second POST.

It works without scripts. A POST that contains the answer is carried out without a question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse

from tenants.views.base import BACK_FIELD, Crumb, render_page

ANSWER_FIELD = "confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Question before an action: `consequence` states what the action deletes or ends, `action_label` is the label of
    the button, `back` the URL to cancel.
    """

    title: str
    consequence: str
    action_label: str
    back: str


def ask_first(
    request: HttpRequest,
    question: Question,
    *,
    section: str,
    crumbs: Sequence[Crumb] = (),
    context: dict[str, Any] | None = None,
) -> HttpResponse | None:
    """Returns the page with the question; None for a POST with the answer."""
    if ANSWER_FIELD in request.POST:
        return None
    submitted = [(name, value) for name, values in request.POST.lists() for value in values]
    own_fields = ("csrfmiddlewaretoken", BACK_FIELD)
    page_context = {
        "question": question,
        "submitted_fields": [(name, value) for name, value in submitted if name not in own_fields],
        "answer_field": ANSWER_FIELD,
        "back_field": BACK_FIELD,
        **(context or {}),
    }
    return render_page(
        request, "console/question.html", page_context, section=section, crumbs=[*crumbs, (question.action_label, None)]
    )
