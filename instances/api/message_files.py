"""HTTP response with a page of messages as a file, for the REST API and the console."""

from __future__ import annotations

from django.http import HttpResponse, HttpResponseBase
from django.utils.translation import gettext_noop

from instances.api.message_serializers import MessageOut
from instances.messages import files
from instances.services.messages import MessagePage
from tenants import csv_files
from tenants.errors import NotFound


def message_file(page: MessagePage, topic: str, form: str) -> HttpResponseBase:
    """Returns the messages of a page in one of `files.FORMS`.

    The response is an attachment, so that a browser saves it and never renders it: its content comes from Kafka
    clients. Raises `NotFound` for the form `value` if the page has no message, or its message has no value.
    """
    if form == files.VALUE:
        return _value(page, topic)
    described = MessageOut(page.messages, many=True).data
    name = f"{topic}{files.SUFFIXES[form]}"
    if form == files.CSV:
        return csv_files.response(name, files.CSV_HEAD, files.csv_rows(page.messages, described))
    body = files.zipped(page.messages, described) if form == files.ZIP else files.json_lines(described)
    return _attachment(body, name, form)


def _value(page: MessagePage, topic: str) -> HttpResponse:
    record = page.messages[0].record if page.messages else None
    if record is None or record.value is None:
        raise NotFound(gettext_noop("There is no message with a value at this place."))
    return _attachment(record.value, f"{topic}-{record.partition}-{record.offset}.bin", files.VALUE)


def _attachment(body: bytes | str, name: str, form: str) -> HttpResponse:
    response = HttpResponse(body, content_type=files.MEDIA_TYPES[form])
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
