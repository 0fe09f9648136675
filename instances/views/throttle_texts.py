"""Texts of "Why am I slow?": names, levels and limits of rules, and sentences about their effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.utils.translation import gettext as _

from instances.interfaces import Throttle
from quotas.addresses import CONNECTION_CREATION_RATE
from tenants.formatting import count, delay, quota_limit, rate_limit

ANONYMOUS = "ANONYMOUS"


def level_text(level: int) -> str:
    """Returns the entity of a quota level in words; level 1 has the highest precedence."""
    return {
        1: _("user and client"),
        2: _("user, any client"),
        3: _("user"),
        4: _("any user, client"),
        5: _("any user, any client"),
        6: _("any user"),
        7: _("client"),
        8: _("any client"),
    }.get(level, "")


def client_name(user: str, client_id: str) -> str:
    """Returns the name of a client; one without authentication has only its client id."""
    if user in ("", ANONYMOUS):
        return client_id or _("clients without a name")
    return _(", ").join((user, client_id)) if client_id else user


def entity_text(entity: Mapping[str, str | None]) -> str:
    """Returns the entity of a quota in words: `user etl-sink, any client`."""
    parts = []
    if "user" in entity:
        name = entity["user"]
        parts.append(_("any user") if name is None else _("user %(name)s") % {"name": name})
    if "client_id" in entity:
        name = entity["client_id"]
        parts.append(_("any client") if name is None else _("client %(name)s") % {"name": name})
    return _(", ").join(parts)


def is_produce(quota: str) -> bool:
    return quota.startswith("produce")


def rule_name(kind: str, quota: str) -> str:
    """Returns the name of a rule that is neither a quota nor bandwidth; empty for others."""
    if quota == "disk_space":
        return _("A broker's disk")
    if quota == CONNECTION_CREATION_RATE:
        return _("New connections of an address")
    return {
        "request_time": _("Request time"),
        "change_rate": _("Rate of changes"),
        "connection_limit": _("Connections"),
        "connection_rate": _("New connections"),
        "authentication": _("Failed sign-ins of clients"),
        "capacity": _("Storage"),
        "frozen": _("Instance is suspended"),
    }.get(kind, "")


def limit_text(kind: str, quota: str) -> str:
    """Returns the limit of a rule that is neither a quota nor bandwidth, in words; empty for others."""
    if quota == "disk_space":
        return _("no limit of the instance")
    if quota == CONNECTION_CREATION_RATE:
        return _("new connections a second of one address")
    return {
        "request_time": _("a quarter of each broker's time"),
        "change_rate": _("changes a second on each broker"),
        "connection_limit": _("connections to one broker"),
        "connection_rate": _("new connections a second"),
        "authentication": _("wrong passwords of a user or an address"),
        "capacity": _("the storage that was bought"),
        "frozen": _("nothing is written"),
    }.get(kind, "")


def _quota_owner(entity: Mapping[str, str | None], *, is_past: bool) -> str:
    """Returns the clients of a quota in words. Without an entity, the operator's code chooses them, or a past cause
    sums up several quotas.
    """
    return entity_text(entity) or (_("several clients") if is_past else _("clients chosen by the operator"))


def rule_title(kind: str, quota: str, entity: Mapping[str, str | None], *, is_past: bool = False) -> str:
    """Returns the name of a limit with its owner."""
    if name := rule_name(kind, quota):
        return name
    if kind == "topic_quota":
        return _("Produce limit of a topic") if is_produce(quota) else _("Consume limit of a topic")
    if kind != "client_quota":
        return _("Instance produce bandwidth") if is_produce(quota) else _("Instance consume bandwidth")
    values = {"who": _quota_owner(entity, is_past=is_past)}
    if quota == "request_percentage":
        return _("Request time quota of %(who)s") % values
    if quota == "controller_mutation_rate":
        return _("Change rate quota of %(who)s") % values
    return (_("Produce quota of %(who)s") if is_produce(quota) else _("Consume quota of %(who)s")) % values


def scope_text(kind: str, quota: str, level: int | None, *, is_past: bool = False) -> str:
    """Returns the level on which a limit is set."""
    if level is not None:
        return _("level %(level)d of 8: %(words)s") % {"level": level, "words": level_text(level)}
    if kind == "client_quota":
        return _("several quotas") if is_past else _("level: operator")
    if kind == "topic_quota":
        return _("level: topic")
    return _("level: broker") if quota == "disk_space" else _("level: instance")


def policy_text(policy: str) -> str:
    """Returns a policy of sharing bandwidth over brokers in words."""
    return {
        "static": _("shared out by the partitions that a broker leads"),
        "literal": _("shared out by use, in CKafka's five steps"),
        "normalised": _("shared out by use, in CKafka's five steps, normalised"),
        "weighted": _("shared out by the use of each partition, in CKafka's five steps"),
        "adaptive": _("shared out by what clients want"),
    }.get(policy, "")


def share_reason_text(reason: str) -> str:
    """Returns the reason of a broker's share in words."""
    return {
        "static": _("by partitions led"),
        "follows_demand": _("follows demand"),
        "layout_changed": _("by partitions led: leaders have just moved"),
        "no_answer": _("by partitions led: the flow master does not answer"),
        "not_reported": _("by partitions led: nothing is wanted here"),
    }.get(reason, reason)


def bandwidth_sentence(
    quota: str, mean_ms: float, limit: float, shares: Mapping[int, float | None], *, is_shared: bool
) -> str:
    """Returns a sentence about an instance's bandwidth. `is_shared`: a broker that delays has less than all of it."""
    values = {"limit": rate_limit(limit), "delay": delay(mean_ms), "brokers": _broker_shares_text(shares)}
    if not is_shared:
        if is_produce(quota):
            return (
                _(
                    "This instance has %(limit)s for producers, so each produce waits %(delay)s on average."
                    " Nothing is lost and nothing is refused."
                )
                % values
            )
        return (
            _(
                "This instance has %(limit)s for consumers, so each fetch waits %(delay)s on average."
                " Nothing is lost and nothing is refused."
            )
            % values
        )
    if is_produce(quota):
        return (
            _(
                "This instance has %(limit)s for producers, shared out over the brokers that lead its partitions."
                " Now at its share: %(brokers)s. Each produce there waits %(delay)s on average."
                " Nothing is lost and nothing is refused."
            )
            % values
        )
    return (
        _(
            "This instance has %(limit)s for consumers, shared out over the brokers that lead its partitions."
            " Now at its share: %(brokers)s. Each fetch there waits %(delay)s on average."
            " Nothing is lost and nothing is refused."
        )
        % values
    )


def _broker_shares_text(shares: Mapping[int, float | None]) -> str:
    """Returns brokers with their shares, if these are known: `broker 1 (1.4 MB/s), broker 3`."""
    broker_texts = [
        _("broker %(id)d") % {"id": broker}
        if share is None
        else _("broker %(id)d (%(share)s)") % {"id": broker, "share": rate_limit(share)}
        for broker, share in shares.items()
    ]
    return _(", ").join(broker_texts)


def refusal_sentence(kind: str, quota: str, refused: int, brokers: Sequence[int]) -> str:
    """Returns a sentence about produces that were refused instead of delayed."""
    values = {"n": count(refused), "brokers": ", ".join(str(broker) for broker in brokers)}
    if kind == "frozen":
        return _("Produce is refused while the instance is suspended: %(n)s times. Consumers go on.") % values
    if quota == "disk_space":
        return (
            _(
                "Produce was refused %(n)s times because a disk of these brokers is nearly full: %(brokers)s."
                " That is not the doing of this instance, and its operators know."
            )
            % values
        )
    return (
        _(
            "Produce was refused %(n)s times because the storage of this instance is used up. Less retention, fewer"
            " records or more storage end that. Consumers go on."
        )
        % values
    )


def broker_sentence(kind: str, quota: str, mean_ms: float, brokers: Sequence[int]) -> str:
    values = {"delay": delay(mean_ms), "brokers": ", ".join(str(broker) for broker in brokers)}
    if kind == "change_rate":
        return (
            _(
                "This instance creates or deletes partitions, or changes configurations and quotas, faster than brokers"
                " %(brokers)s take it. Each waits %(delay)s on average. Fewer of them at a time end that."
            )
            % values
        )
    if kind == "connection_limit":
        return (
            _(
                "Connections were closed at once, because this instance, or one address of it, has as many as it may"
                " have to these brokers: %(brokers)s. Clients that share connections, or close those they do not use,"
                " end that."
            )
            % values
        )
    if quota == CONNECTION_CREATION_RATE:
        return (
            _(
                "Connections come from an address faster than its limit lets in, at these brokers: %(brokers)s. Each is"
                " kept unread for %(delay)s on average and closed. Clients that keep their connections end that."
            )
            % values
        )
    if kind == "connection_rate":
        return (
            _(
                "Clients open connections faster than these brokers accept them from one instance: %(brokers)s."
                " A new connection waits %(delay)s on average. Clients that keep their connections end that."
            )
            % values
        )
    if kind == "authentication":
        return (
            _(
                "Too many wrong passwords were sent to these brokers: %(brokers)s. Further attempts of the same user or"
                " address are refused for some minutes, without a check. Open connections stay."
            )
            % values
        )
    return (
        _(
            "This instance's requests take more than a quarter of the time of these brokers: %(brokers)s."
            " Each waits %(delay)s on average. Fewer requests that name many topics, partitions or groups,"
            " and smaller compressed batches, end that."
        )
        % values
    )


def _topic_sentence(entry: Throttle, values: Mapping[str, str]) -> str:
    if is_produce(entry.quota):
        return (
            _("A topic may take %(limit)s. Each produce to it waits %(delay)s on average on brokers %(brokers)s.")
            % values
        )
    return _("A topic gives %(limit)s. Each fetch of it waits %(delay)s on average on brokers %(brokers)s.") % values


def quota_sentence(entry: Throttle, mean_ms: float, brokers: Sequence[int]) -> str:
    owner = _quota_owner(entry.entity, is_past=False)
    values = {
        "limit": quota_limit(entry.whole_limit_per_s, entry.quota),
        "delay": delay(mean_ms),
        "brokers": ", ".join(str(broker) for broker in brokers),
        "who": owner.capitalize(),
        "level": scope_text(entry.kind, entry.quota, entry.level),
    }
    if entry.kind == "topic_quota":
        return _topic_sentence(entry, values)
    if entry.quota == "request_percentage":
        values["who"] = owner
        return (
            _(
                "Requests of %(who)s may take %(limit)s (%(level)s). Each waits %(delay)s on average on brokers"
                " %(brokers)s. Fewer and larger requests end that."
            )
            % values
        )
    if entry.quota == "controller_mutation_rate":
        return (
            _(
                "%(who)s may create, add or delete %(limit)s (%(level)s). Brokers %(brokers)s let it wait %(delay)s on"
                " average; newer clients are refused until then."
            )
            % values
        )
    if len(brokers) == 1:
        if is_produce(entry.quota):
            return _("%(who)s may produce %(limit)s (%(level)s). It waits %(delay)s on broker %(brokers)s.") % values
        return _("%(who)s may consume %(limit)s (%(level)s). It waits %(delay)s on broker %(brokers)s.") % values
    if is_produce(entry.quota):
        return _("%(who)s may produce %(limit)s (%(level)s). It waits %(delay)s on brokers %(brokers)s.") % values
    return _("%(who)s may consume %(limit)s (%(level)s). It waits %(delay)s on brokers %(brokers)s.") % values
