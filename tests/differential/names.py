"""Numbers for random ids of a broker, member ids and producer ids, in the order in which a script sees them.

So an answer shows which of the members leads, or that a producer got another id than before.
"""

from __future__ import annotations

import json
import re
from typing import Any

from brokers.engine.protocol.messages.groups import DescribedGroupMember, JoinGroupResponseMember, ListedGroup
from brokers.engine.protocol.messages.producers import ActiveProducer, ListedTransaction
from tests.differential.normalise import RULES, normalised, records_with

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
UNNAMED = "?"
FILTERED = ("groups", "transaction_states")


class Names:
    """Normalises one script's answers. Groups and transactions listed are those whose name begins with `prefix`;
    `inside` is what the cluster puts in front of a tenant's names.
    """

    def __init__(self, prefix: str, inside: str = "") -> None:
        self._prefix, self._inside = prefix, inside
        self._uuids: dict[str, str] = {}
        self._producers: dict[int, str] = {}
        self._rules = {
            **RULES,
            "member_id": self._named,
            "leader": self._named,
            **dict.fromkeys(("name", "topic", "transactional_id", "group_id", "key"), self._shown),
            "members": self._members,
            "groups": self._groups,
            "transaction_states": self._transactions,
            "active_producers": self._active,
            "producer_id": self.producer,
            "records": records_with(self.producer),
        }

    def __call__(self, answer: Any) -> Any:
        result = normalised(answer, self._rules)
        # A list of nothing but others' is one of nothing.
        return {name: value for name, value in result.items() if value != [] or name not in FILTERED}

    def producer(self, producer_id: int) -> Any:
        if producer_id < 0:
            return producer_id
        return self._producers.setdefault(producer_id, f"producer {len(self._producers) + 1}")

    def _shown(self, name: str | None) -> str | None:
        return None if name is None else name.removeprefix(self._inside)

    def _named(self, value: str | None) -> str | None:
        if value is None:
            return None
        return _UUID.sub(lambda found: self._uuids.setdefault(found[0], f"#{len(self._uuids) + 1}"), value)

    def _as_known(self, value: str) -> str:
        return _UUID.sub(lambda found: self._uuids.get(found[0], UNNAMED), value)

    def _members(self, members: list[Any]) -> Any:
        """Their order says nothing, but for those that leave together."""
        rules = {**self._rules, "member_id": self._as_known}
        if members and isinstance(members[0], (JoinGroupResponseMember, DescribedGroupMember)):
            members = sorted(members, key=lambda member: json.dumps(normalised(member, rules), sort_keys=True))
        return [normalised(member, self._rules) for member in members]

    def _groups(self, groups: list[Any]) -> Any:
        if groups and isinstance(groups[0], ListedGroup):
            groups = [group for group in groups if group.group_id.startswith(self._prefix)]
            groups.sort(key=lambda group: str(group.group_id))
        return [normalised(group, self._rules) for group in groups]

    def _transactions(self, transactions: list[Any]) -> Any:
        if transactions and isinstance(transactions[0], ListedTransaction):
            transactions = [one for one in transactions if one.transactional_id.startswith(self._prefix)]
            transactions.sort(key=lambda one: str(one.transactional_id))
        return [normalised(one, self._rules) for one in transactions]

    def _active(self, producers: list[ActiveProducer]) -> Any:
        return [normalised(one, self._rules) for one in sorted(producers, key=lambda one: one.producer_id)]
