"""Page that sends one message (typed, read from a file or copied from a stored message), or one message per line of
text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods

from instances import selectors, services
from instances.messages.drafts import KEY, MessageDraft, draft_of
from instances.messages.forms import MessagePositionForm, SendForm, SendLinesForm
from instances.messages.interfaces import OFFSET, Start
from instances.models import Instance
from instances.selectors import TopicView
from instances.services import ShownMessage
from instances.views.common import instance_page
from instances.views.sent_lines import VALUES, UnusableLines, messages_of
from instances.views.topics import render_topic
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.views.base import add_errors, wording


@instance_page(Scope.MESSAGES_WRITE)
@require_http_methods(["GET", "POST"])
def send_page(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Sends one message, or several lines. With `partition` and `offset` in the URL, the form is filled from the
    message stored there.
    """
    topic = selectors.topic_detail(instance, name)
    if "lines" in request.POST:
        return _send_lines(request, instance, topic)
    form = SendForm(request.POST or None, partitions=topic.partition_count)
    context: dict[str, Any] = {"form": form, "lines_form": SendLinesForm(initial={"lines_are": VALUES})}
    if form.is_valid():
        try:
            (result,) = services.send_messages(
                acting=request.actor,  # type: ignore[attr-defined]
                instance=instance, topic=name, messages=[form.message],
            )  # fmt: skip
        except DomainError as error:
            add_errors(form, error, {"/messages/0/partition": "partition"})
        else:
            position = f"{name}/{result.partition}@{result.offset}"
            messages.success(request, _("The message is stored as %(place)s.") % {"place": position})
            return redirect("page-topic", instance.pk, name)
    elif not form.is_bound and request.GET:
        context |= _prefilled_context(request, instance, topic)
    return render_topic(request, instance, topic, "send", context, status=422 if form.is_bound else 200)


def _send_lines(request: HttpRequest, instance: Instance, topic: TopicView) -> HttpResponse:
    """Sends one message per line. Reports the number of refused messages and the reason of the first one; the others
    are stored.
    """
    form = SendLinesForm(request.POST)
    if form.is_valid():
        try:
            new_messages = messages_of(form.cleaned_data["lines"], form.cleaned_data["lines_are"])
            results = services.send_messages(
                acting=request.actor, instance=instance, topic=topic.name, messages=new_messages,  # type: ignore[attr-defined]
            )  # fmt: skip
        except UnusableLines as error:
            form.add_error("lines", str(error))
        except DomainError as error:
            form.add_error("lines", wording(error))
        else:
            stored = sum(result.error is None for result in results)
            if stored:
                text = ngettext("%(n)s message is stored.", "%(n)s messages are stored.", stored) % {"n": stored}
                messages.success(request, text)
            refused = [(number, result.error) for number, result in enumerate(results, 1) if result.error is not None]
            if refused:
                number, first_error = refused[0]
                text = _("%(n)s of %(all)s were not stored. Message %(number)s: %(why)s") % {
                    "n": len(refused), "all": len(results), "number": number, "why": wording(first_error),
                }  # fmt: skip
                messages.error(request, text)
            return redirect("page-topic", instance.pk, topic.name)
    context = {"form": SendForm(partitions=topic.partition_count), "lines_form": form}
    return render_topic(request, instance, topic, "send", context, status=422)


def _prefilled_context(request: HttpRequest, instance: Instance, topic: TopicView) -> dict[str, Any]:
    """Returns the context of a form that is filled from a stored message, with notes about missing parts."""
    form = MessagePositionForm(request.GET, partitions=topic.partition_count)
    if not form.is_valid():
        return {"notes": [_("There is no such partition or offset. The form is empty.")]}
    partition, offset = form.cleaned_data["partition"], form.cleaned_data["offset"]
    read_request = services.ReadRequest(
        start=Start(OFFSET, offset), start_text=f"{OFFSET}:{offset}", partition=partition, limit=1
    )  # fmt: skip
    try:
        page = services.read_messages(
            acting=request.actor, instance=instance, topic=topic.name, read_request=read_request  # type: ignore[attr-defined]
        )  # fmt: skip
    except DomainError as error:
        return {"notes": [wording(error)]}
    shown = next(
        (message for message in page.messages if message.record.offset == offset and message.record.marker is None),
        None,
    )
    if shown is None:
        return {"notes": [_("There is no message at this place any more. The form is empty.")]}
    if _is_masked(shown):
        return {"notes": [_("Fields of this message are masked from your role, so it cannot be sent again from here.")]}
    draft = draft_of(shown.record)
    return {
        "form": SendForm(initial=draft.values, partitions=topic.partition_count),
        "notes": list(_notes_on_missing_parts(draft)),
        "again": f"{topic.name}/{partition}@{offset}",
    }


def _is_masked(shown: ShownMessage) -> bool:
    return shown.key.is_masked or shown.value.is_masked or any(value.is_masked for _name, value in shown.headers)


def _notes_on_missing_parts(draft: MessageDraft) -> Iterator[str]:
    """Yields a note for each part of the message that could not be copied."""
    for name in draft.too_large:
        yield _("The key is too large for this form.") if name == KEY else _("The value is too large for this form.")
    if draft.has_empty_key:
        yield _("The key is empty. This form sends a message without a key instead.")
    n = draft.left_out_header_count
    if n:
        yield ngettext(
            "%(n)s header is left out: its value is not a single line of text.",
            "%(n)s headers are left out: their values are not single lines of text.", n,
        ) % {"n": n}  # fmt: skip
