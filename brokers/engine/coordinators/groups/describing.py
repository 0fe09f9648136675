"""Descriptions of groups for DescribeGroups and ListGroups (GRP-29)."""

from __future__ import annotations

from brokers.engine.coordinators.groups.group import Group, GroupState
from brokers.engine.coordinators.groups.replies import DescribedMember, DescribeReply, GroupEntry


def describe(group: Group) -> DescribeReply:
    protocol = group.protocol if group.state is GroupState.STABLE else None
    members = [
        DescribedMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            b"" if protocol is None else member.metadata(protocol),
            b"" if protocol is None else member.assignment,
        )
        for member in group.members.values()
    ]
    return DescribeReply(0, group.state.value, group.protocol_type or "", protocol or "", members)


def group_entry(group: Group) -> GroupEntry:
    return GroupEntry(group.id, group.protocol_type or "", group.state.value)
