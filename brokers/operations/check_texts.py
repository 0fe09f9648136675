"""Localized texts of the results of a host's checks: the fact, and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from brokers.choices import HostCheck, HostCheckState
from brokers.limits import CLOCK_OFFSET_MS_MAX
from brokers.models import Host

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ShownCheck:
    """Result of one check, as shown on a page or returned by the API. `remedy` is empty if there is nothing to do."""

    name: HostCheck
    state: HostCheckState
    fact: str
    remedy: str


def shown_checks(host: Host) -> list[ShownCheck]:
    """Returns the results of a host's last checks; checks that this version does not know are omitted."""
    result = []
    for check in host.checks:
        try:
            name, state, data = HostCheck(check["name"]), HostCheckState(check["state"]), check["data"]
            fact, remedy = _TEXTS[name](data, host.agent_joined_at is not None)
        except (KeyError, ValueError, TypeError, AttributeError, OverflowError):
            continue  # the agent is newer than this process
        result.append(ShownCheck(name, state, fact, "" if state is HostCheckState.PASSED else remedy))
    return result


def _version_texts(data: Data, is_joined: bool) -> tuple[str, str]:
    """Returns the texts about the version. A joined agent compares itself with the control plane, because it has no
    access to the database; any other agent compares itself with the database.
    """
    values = {"version": data["version"]}
    if data["behind"]:
        return (
            (
                _("The agent is of version %(version)s, and the control plane of a newer one.")
                if is_joined
                else _("The agent is of version %(version)s, and the database of a newer one.")
            )
            % values,
            _("Install the control plane's version on this machine and start its agent again."),
        )
    if data["ahead"]:
        return (
            (
                _("The agent is of version %(version)s, and the control plane of an older one.")
                if is_joined
                else _("The agent is of version %(version)s, and the database of an older one.")
            )
            % values,
            _("Upgrade the control plane first: manage.py prepare, then web, worker and pipeline."),
        )
    fact = (
        _("The agent is of version %(version)s, like the control plane.")
        if is_joined
        else _("The agent is of version %(version)s, like the database.")
    )
    return fact % values, ""


def _clock_texts(data: Data, is_joined: bool) -> tuple[str, str]:
    offset_ms = data["offset_ms"]
    values = {"offset": f"{abs(offset_ms):,}", "limit": f"{CLOCK_OFFSET_MS_MAX:,}"}
    if abs(offset_ms) <= CLOCK_OFFSET_MS_MAX:
        fact = (
            _("Within %(offset)s ms of the control plane's clock.")
            if is_joined
            else _("Within %(offset)s ms of the database's clock.")
        )
        return fact % values, ""
    if is_joined:
        fact = (
            _("%(offset)s ms ahead of the control plane's clock; at most %(limit)s ms are fine.")
            if offset_ms > 0
            else _("%(offset)s ms behind the control plane's clock; at most %(limit)s ms are fine.")
        )
    else:
        fact = (
            _("%(offset)s ms ahead of the database's clock; at most %(limit)s ms are fine.")
            if offset_ms > 0
            else _("%(offset)s ms behind the database's clock; at most %(limit)s ms are fine.")
        )
    return fact % values, _("Let both machines take their time from the same servers: chrony, or systemd-timesyncd.")


def _address_texts(data: Data, _is_joined: bool) -> tuple[str, str]:
    values = {"address": data["address"], "reason": data["reason"]}
    if not data["reason"]:
        return _("Brokers can listen on %(address)s.") % values, ""
    return (
        _("Nothing can listen on %(address)s: %(reason)s.") % values,
        _("Edit the host and name an address of this machine, or give the machine this one."),
    )


def _ports_texts(data: Data, _is_joined: bool) -> tuple[str, str]:
    values = {"first": data["first"], "last": data["last"], "outgoing": data["outgoing_first"]}
    if data["taken_count"]:
        taken_ports = ", ".join(map(str, data["taken"]))
        return (
            ngettext(
                "%(count)d port from %(first)d to %(last)d is taken by another program: %(named)s.",
                "%(count)d ports from %(first)d to %(last)d are taken by other programs: %(named)s.",
                data["taken_count"],
            )
            % (values | {"count": data["taken_count"], "named": taken_ports}),
            _("Stop those programs, or edit the host and give it another range."),
        )
    if data["outgoing_first"] is not None:
        return (
            _("Ports from %(outgoing)d on are also given to outgoing connections.") % values,
            _("Edit the host and end the range below, or add it to net.ipv4.ip_local_reserved_ports."),
        )
    return _("Ports %(first)d to %(last)d are free.") % values, ""


def _directories_texts(data: Data, _is_joined: bool) -> tuple[str, str]:
    if not data["wrong"]:
        return (
            ngettext("%(count)d directory can be written.", "%(count)d directories can be written.", data["count"])
            % {"count": data["count"]},
            "",
        )
    wrong_directories = "; ".join(f"{directory['path']}: {directory['reason']}" for directory in data["wrong"])
    return (
        _("Brokers cannot keep logs in %(wrong)s.") % {"wrong": wrong_directories},
        _("Give the agent's account the right to write there, or edit the host and name other directories."),
    )


_TEXTS: Mapping[HostCheck, Callable[[Data, bool], tuple[str, str]]] = {
    HostCheck.VERSION: _version_texts,
    HostCheck.CLOCK: _clock_texts,
    HostCheck.ADDRESS: _address_texts,
    HostCheck.PORTS: _ports_texts,
    HostCheck.DIRECTORIES: _directories_texts,
}
