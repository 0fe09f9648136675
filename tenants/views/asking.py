"""A question before an act that nothing takes back: the first POST is answered with it, the second one, which it sends,
does the act. It works without scripts, and a form that was written by hand and names the answer is not asked.
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
    """A question before an act: `lost` says what is gone afterwards, `act` is the word on the button, `back` the
    address at which the act is left undone.
    """

    title: str
    lost: str
    act: str
    back: str


def ask_first(
    request: HttpRequest,
    question: Question,
    *,
    section: str,
    crumbs: Sequence[Crumb] = (),
    context: dict[str, Any] | None = None,
) -> HttpResponse | None:
    """The page with the question; None for a POST that has answered it."""
    if ANSWER_FIELD in request.POST:
        return None
    given = [(name, value) for name, values in request.POST.lists() for value in values]
    own = ("csrfmiddlewaretoken", BACK_FIELD)
    values = {
        "question": question,
        "given": [(name, value) for name, value in given if name not in own],
        "answer_field": ANSWER_FIELD,
        "back_field": BACK_FIELD,
        **(context or {}),
    }
    return render_page(
        request, "console/question.html", values, section=section, crumbs=[*crumbs, (question.act, None)]
    )
