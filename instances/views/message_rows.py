"""HTML of messages on the page of a topic: a row for each, with its details.

Rows are written in one pass without a template, and texts are translated once for each page, because rendering a
template fifty times takes longer than reading fifty messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from html import escape

from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import Truncator
from django.utils.translation import gettext, pgettext

from instances.messages import content, json_tree
from instances.messages.content import Content
from instances.messages.interfaces import ABORT, ABORTED, COMMIT, COMMITTED, OPEN, Record
from instances.messages.schemas.work import DAMAGED, TOO_LARGE
from instances.models import Instance
from instances.services import ShownMessage
from instances.templatetags.messages import json_tree as folded_json
from instances.templatetags.messages import message_time, message_time_utc
from instances.views.read_commands import ReadCommands
from tenants import formatting
from tenants.choices import Scope
from tenants.templatetags.console import copyable, icon

SUMMARY_VALUE_CHARS_MAX = 300
SUMMARY_KEY_CHARS_MAX = 80


@dataclass(frozen=True, slots=True)
class _Links:
    """URLs of pages to which every row links, escaped for HTML attributes."""

    send: str
    value: str
    reading: str


class MessageRows:
    """Writes the rows of one topic for one reader, whose language is active. `permissions` are the reader's scopes."""

    def __init__(self, instance: Instance, topic: str, commands: ReadCommands, permissions: Collection[str]) -> None:
        self._topic = topic
        self._commands = commands
        self._can_send = Scope.MESSAGES_WRITE in permissions
        self._links = _Links(
            send=escape(reverse("page-topic-send", args=[instance.pk, topic])),
            value=escape(reverse("page-topic-messages-file", args=[instance.pk, topic, "bin"])),
            reading=escape(reverse("page-topic-reading", args=[instance.pk, topic])),
        )
        self._gettext: Callable[[str], str] = cache(gettext)

    def html(self, shown: ShownMessage) -> SafeString:
        """Returns one row. Translations may contain HTML, as in templates; everything else is escaped."""
        record = shown.record
        time = str(message_time(record.timestamp_ms))
        position = f"{self._topic}/{record.partition}@{record.offset}"
        details = self._marker_details() if record.marker else self._details(shown)
        return mark_safe(  # noqa: S308  texts are escaped where they are inserted
            f'<details class="message{" marker" if record.marker else ""}" data-place="{escape(position)}"><summary>\n'
            f'<span class="at">{time}</span><span class="right">{record.partition}</span>'
            f'<span class="right">{formatting.count(record.offset)}</span>\n'
            f"{self._marker_summary(record) if record.marker else self._summary(shown)}\n"
            f'<span class="right record-size">{formatting.size(shown.value.bytes)}</span></summary>\n'
            f'<div class="split"><div>\n{details}</div>\n'
            f"{self._facts(record, time, position)}\n"
            f"{'' if record.marker else self._actions(shown)}</dl></div></details>\n"
        )

    def _summary(self, shown: ShownMessage) -> str:
        _, state = self._gettext, _transaction_state(shown.record)
        tag = ""
        if state == ABORTED:
            tag = f'<span class="tag warn">{_("aborted")}</span> '
        elif state == OPEN:
            tag = f'<span class="tag accent">{_("transaction open")}</span> '
        value = shown.value
        if value.format == content.MASKED:
            text = _muted(_("masked"))
        elif value.data is None:
            text = _muted(_("null (tombstone)"))
        elif not value.bytes:
            text = _muted(_("empty"))
        else:
            text = escape(" ".join(value.data[:SUMMARY_VALUE_CHARS_MAX].split()))
        return (
            f'<span class="record-key mono">{self._short_key(shown.key)}</span>'
            f'<span class="record-line mono">{tag}{text}</span>'
        )

    def _short_key(self, key: Content) -> str:
        _ = self._gettext
        if key.format == content.MASKED:
            return _muted(_("masked"))
        if key.data is None:
            return _muted(_("none"))
        is_short = len(key.data) <= SUMMARY_KEY_CHARS_MAX and key.data.isascii()
        return escape(key.data if is_short else Truncator(key.data).chars(SUMMARY_KEY_CHARS_MAX))

    def _marker_summary(self, record: Record) -> str:
        _ = self._gettext
        text = {
            COMMIT: _("Marker: a transaction was committed"),
            ABORT: _("Marker: a transaction was aborted"),
        }.get(record.marker or "", _("Marker of the cluster"))
        return f'<span class="record-key muted"></span><span class="record-line muted">{text}</span>'

    def _marker_details(self) -> str:
        _ = self._gettext
        text = _("Markers end transactions in a partition. They take an offset, and clients never see them.")
        return f'<p class="muted">{text}</p>'

    def _details(self, shown: ShownMessage) -> str:
        _ = self._gettext
        return (
            f'<h4>{_("Value")} <span class="muted small">{self._value_facts(shown.value)}</span></h4>\n'
            f"{self._problem(shown.value)}{self._value(shown.value)}\n"
            f'<h4>{pgettext("message", "Key")} <span class="muted small">{shown.key.format}{escape(_(", "))}'
            f"{formatting.size(shown.key.bytes)}</span></h4>{self._key(shown.key)}\n"
            f"{self._headers(shown)}"
        )

    def _value_facts(self, value: Content) -> str:
        """Returns the format of a value, its schema, and notes about masked fields and truncation."""
        _ = self._gettext
        facts = [value.format]
        if value.schema_id is not None:
            facts.append(_("schema %(id)s") % {"id": value.schema_id})
        if value.is_masked:
            facts.append(_("fields are masked from your role"))
        if value.truncated:
            facts.append(_("the beginning of %(size)s") % {"size": formatting.size(value.bytes)})
        return escape(_(", ")).join(facts)

    def _problem(self, value: Content) -> str:
        _ = self._gettext
        if not value.problem:
            return ""
        if value.problem == TOO_LARGE:
            text = _("It is too large to be shown by its schema.")
        elif value.problem == DAMAGED:
            text = _("It does not fit its schema.")
        else:
            add = f'<a href="{self._links.reading}">{_("Add a schema")}</a>'
            text = f"{_('The topic has no schema for it.')} {add}"
        return f'<p class="small warn">{text}</p>'

    def _value(self, value: Content) -> str:
        _ = self._gettext
        if value.format == content.MASKED:
            masked = _("Masked from your role: the fields that it hides cannot be found in these bytes.")
            return f'<p class="muted">{masked}</p>'
        if value.data is None:
            tombstone = _(
                "There is no value: the message is a tombstone, which deletes its key in a compacted topic."
            )  # fmt: skip
            return f'<p class="muted">{tombstone}</p>'
        text = escape(value.data)
        return f'<div class="code">{_folded(value) or _plain(text)}{self._copy(text, _("Copy"))}</div>'

    def _key(self, key: Content) -> str:
        _ = self._gettext
        if key.format == content.MASKED:
            return f'<p class="muted">{_("masked")}</p>'
        if key.data is None:
            return f'<p class="muted">{_("none")}</p>'
        return _folded(key) or _plain(escape(key.data))

    def _headers(self, shown: ShownMessage) -> str:
        _ = self._gettext
        if not shown.headers:
            return ""
        lines = "".join(
            f"<div><dt>{escape(name)}</dt><dd>{self._header_value(value)}</dd></div>" for name, value in shown.headers
        )
        count = f'<span class="muted small">{shown.record.header_count}</span>'
        return f'<h4>{_("Headers")} {count}</h4><dl class="headers mono">{lines}</dl>'

    def _header_value(self, value: Content) -> str:
        _ = self._gettext
        if value.format == content.MASKED:
            return _muted(_("masked"))
        if value.data is None:
            return _muted("null")
        return escape(value.data) + (' <span class="muted">hex</span>' if value.format == content.HEX else "")

    def _facts(self, record: Record, time: str, position: str) -> str:
        """Returns the list of facts without its end tag, before which a message has its actions."""
        _ = self._gettext
        time_label = _("Time (set by the broker)") if record.is_append_time else _("Time (set by the producer)")
        return (
            f'<dl class="facts"><div><dt>{time_label}</dt><dd class="num">{time}<br>'
            f"{_muted(message_time_utc(record.timestamp_ms))}</dd></div>\n"
            f"<div><dt>{_('Partition and offset')}</dt><dd>{copyable(position, _('Copy'))}</dd></div>\n"
            f"{self._transaction(record)}"
        )

    def _transaction(self, record: Record) -> str:
        _ = self._gettext
        if record.transaction is None:
            return ""
        text = {
            OPEN: _("open: readers of committed messages wait before it"),
            ABORTED: _("aborted: readers of committed messages never see it"),
            COMMITTED: _("committed"),
        }.get(record.transaction.state or "", _("ended; how lies too far behind an open one"))
        producer = _("producer %(n)s") % {"n": record.transaction.producer_id}
        return f'<div><dt>{_("Transaction")}</dt><dd>{text}<span class="sub">{producer}</span></dd></div>'

    def _actions(self, shown: ShownMessage) -> str:
        _, record, value = self._gettext, shown.record, shown.value
        position_query = f"partition={record.partition}&amp;offset={record.offset}"
        actions = []
        if self._can_send:
            label = f"{icon('send')}{_('Send again')}"
            actions.append(f'<a class="button mini" href="{self._links.send}?{position_query}">{label}</a>')
        if value.format != content.NULL and not value.is_masked:
            label = f"{icon('download')}{_('Download the value')}"
            url = f"{self._links.value}?start=offset&amp;{position_query}"
            actions.append(f'<a class="button mini" download href="{url}">{label}</a>')
        actions.append(self._copy(escape(self._commands.kcat(record.partition, record.offset)), _("Copy as kcat")))
        actions.append(self._copy(escape(self._commands.curl(record.partition, record.offset)), _("Copy as curl")))
        return f'<div><dt>{_("This message")}</dt><dd class="message-acts">{"".join(actions)}</dd></div>'

    @staticmethod
    def _copy(escaped: str, label: str) -> str:
        return f'<button type="button" class="button mini" data-copy="{escaped}">{icon("copy")}{label}</button>'


def _transaction_state(record: Record) -> str | None:
    return None if record.transaction is None else record.transaction.state


def _muted(html: str) -> str:
    return f'<span class="muted">{html}</span>'


def _plain(escaped: str) -> str:
    return f'<pre tabindex="0">{escaped}</pre>'


def _folded(value: Content) -> str:
    """Returns a structured value as a tree that can be folded; empty for other and for too large values."""
    node = json_tree.tree(value.data or "") if value.format in content.STRUCTURED else None
    return "" if node is None else f'<div class="json" tabindex="0">{folded_json(node)}</div>'
