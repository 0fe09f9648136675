"""REST API of consumer groups and transactions of an instance, queried from their coordinators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.utils.translation import gettext_noop
from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, services
from instances.api import group_serializers as s
from instances.groups import blocking_transactions, selectors, transaction_selectors
from instances.groups.offset_plans import ResetMode, ResetTarget, time_ms
from tenants.api.base import ApiView, endpoint
from tenants.choices import Scope
from tenants.errors import FieldError, Invalid, Message

DATA_PLANE_ERRORS = (409, 503)
# Field of the body that has the value of the mode, for each mode that requires one.
FIELD_BY_MODE = {ResetMode.TIME: "time", ResetMode.OFFSET: "offset", ResetMode.SHIFT: "by", ResetMode.GIVEN: "offsets"}


class GroupCollection(ApiView):
    tag = "Groups"

    @endpoint("list_groups", Scope.GROUPS_READ, query=s.GroupQuery, returns=s.GroupPageOut, errors=DATA_PLANE_ERRORS)
    def get(self, request: Request, instance_id: str) -> Response:
        """List consumer groups by name, with their lag."""
        instance = access.instance(self.actor, instance_id)
        state = self.query.get("state")
        page = selectors.group_page(
            instance,
            contains=self.query.get("contains", ""),
            states=[state] if state else [],
            page_token=self.query.get("page_token"),
            page_size=self.query["page_size"],
        )
        rows = selectors.with_lags(instance, page.rows)
        body = {"items": rows, "next_page_token": page.next_token, "silent": page.silent}
        return self.one(body, s.GroupPageOut)


class GroupResource(ApiView):
    tag = "Groups"

    @endpoint("get_group", Scope.GROUPS_READ, query=s.GroupTopicQuery, returns=s.GroupOut, errors=DATA_PLANE_ERRORS)
    def get(self, request: Request, instance_id: str, group: str) -> Response:
        """Read a group with its members, their assignments, and the committed offset and lag of each partition."""
        instance = access.instance(self.actor, instance_id)
        detail = selectors.group_detail(instance, group, topic=self.query.get("topic", ""))
        detail = replace(
            detail, held_by=tuple(blocking_transactions.blocking_transactions(instance, detail.partitions))
        )
        return self.one(detail, s.GroupOut, etag=detail.etag)

    @endpoint("delete_group", Scope.GROUPS_WRITE, status=204, requires_if_match=True, errors=DATA_PLANE_ERRORS)
    def delete(self, request: Request, instance_id: str, group: str) -> Response:
        """Delete a group without members, and its offsets."""
        instance = access.instance(self.actor, instance_id)
        if "If-Match" in self.request.headers:
            self.require_match(selectors.group_detail(instance, group, fresh=True).etag)
        services.delete_group(acting=self.actor, instance=instance, group=group, dry_run=self.dry_run)
        return self.nothing()


class GroupOffsets(ApiView):
    tag = "Groups"

    @endpoint("reset_group_offsets", Scope.GROUPS_WRITE, body=s.ResetIn, returns=s.ResetOut, errors=DATA_PLANE_ERRORS)
    def post(self, request: Request, instance_id: str, group: str) -> Response:
        """Reset the offsets of a group without members.

        Returns the offsets before and after, also in a dry run. Offsets outside of a log are clipped to its bounds. To
        undo a reset, send the offsets before it with `"to": "given"`.
        """
        instance = access.instance(self.actor, instance_id)
        selection = [(topic["name"], topic.get("partitions")) for topic in self.body.get("topics", ())]
        result = services.reset_offsets(
            acting=self.actor,
            instance=instance,
            group=group,
            target=_target(self.body),
            selection=selection,
            dry_run=self.dry_run,
        )
        return self.one(result, s.ResetOut)

    @endpoint("delete_group_offsets", Scope.GROUPS_WRITE, query=s.OffsetsQuery, status=204, errors=DATA_PLANE_ERRORS)
    def delete(self, request: Request, instance_id: str, group: str) -> Response:
        """Delete a group's offsets of a topic that its members do not read."""
        instance = access.instance(self.actor, instance_id)
        services.delete_offsets(
            acting=self.actor, instance=instance, group=group, topic=self.query["topic"], dry_run=self.dry_run
        )
        return self.nothing()


class TransactionCollection(ApiView):
    tag = "Groups"

    @endpoint(
        "list_transactions",
        Scope.GROUPS_READ,
        query=s.TransactionQuery,
        returns=s.TransactionPageOut,
        errors=DATA_PLANE_ERRORS,
    )
    def get(self, request: Request, instance_id: str) -> Response:
        """List transactional ids by name, with their open transactions."""
        state = self.query.get("state", "")
        states = sorted(transaction_selectors.IN_FLIGHT) if state == "in_flight" else [state] if state else []
        page = transaction_selectors.transaction_page(
            access.instance(self.actor, instance_id),
            contains=self.query.get("contains", ""),
            states=states,
            page_token=self.query.get("page_token"),
            page_size=self.query["page_size"],
        )
        body = {"items": page.rows, "next_page_token": page.next_token, "silent": page.silent}
        return self.one(body, s.TransactionPageOut)


class TransactionResource(ApiView):
    tag = "Groups"

    @endpoint("get_transaction", Scope.GROUPS_READ, returns=s.TransactionDetailOut, errors=DATA_PLANE_ERRORS)
    def get(self, request: Request, instance_id: str, transactional_id: str) -> Response:
        """Read a transactional id, and its producer's state at the leaders of its partitions."""
        detail = transaction_selectors.transaction_detail(access.instance(self.actor, instance_id), transactional_id)
        body = s.TransactionOut(detail.row).data | {
            "producers": [_producer(*producer) for producer in detail.producers]
        }
        return Response(body)


class TransactionAbort(ApiView):
    tag = "Groups"

    @endpoint("abort_instance_transaction", Scope.GROUPS_WRITE, status=204, errors=DATA_PLANE_ERRORS)
    def post(self, request: Request, instance_id: str, transactional_id: str) -> Response:
        """Abort an open transaction.

        Consumers of committed records skip its messages; its producer is fenced and must start again.
        """
        services.abort_transaction(
            acting=self.actor,
            instance=access.instance(self.actor, instance_id),
            transactional_id=transactional_id,
            dry_run=self.dry_run,
        )
        return self.nothing()


def _producer(partition: tuple[str, int], state: Any, is_known: bool) -> dict[str, Any]:
    return {
        "topic": partition[0],
        "partition": partition[1],
        "is_known": is_known,
        "first_offset": state.transaction_start_offset if state else None,
        "last_sequence": state.last_sequence if state else None,
        "last_timestamp_ms": state.last_timestamp_ms if state else None,
    }


def _target(body: Any) -> ResetTarget:
    """Returns the target of a reset.

    Raises `Invalid` if the value of its mode is missing, if a value of another mode is given, and if a partition is
    listed twice.
    """
    mode = ResetMode(body["to"])
    required = FIELD_BY_MODE.get(mode)
    for name in FIELD_BY_MODE.values():
        if name == required and name not in body:
            raise Invalid.at(f"/{name}", Message(gettext_noop("`%(name)s` needs it."), name=mode.value), code="needed")
        if name != required and name in body:
            raise Invalid.at(
                f"/{name}", Message(gettext_noop("`%(name)s` does not take it."), name=mode.value), code="not_taken"
            )
    if mode is ResetMode.GIVEN and "topics" in body:
        raise Invalid.at("/topics", "`given` does not take it.", code="not_taken")
    offsets = None
    if mode is ResetMode.GIVEN:
        offsets = {(offset["topic"], offset["partition"]): offset["offset"] for offset in body["offsets"]}
        if len(offsets) != len(body["offsets"]):
            detail = "A partition stands here twice."
            raise Invalid(detail, errors=[FieldError(pointer="/offsets", detail=detail, code="repeated")])
    time = body.get("time")
    return ResetTarget(
        mode=mode,
        at_ms=None if time is None else time_ms(time),
        offset=body.get("offset"),
        by=body.get("by"),
        given=offsets,
    )
