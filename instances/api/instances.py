"""REST API of instances and operations."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, selectors, services
from instances.api import serializers as s
from instances.models import Operation
from tenants.api.base import API_ROOT, ApiView, endpoint
from tenants.choices import Scope


class InstanceCollection(ApiView):
    tag = "Instances"

    @endpoint("list_instances", Scope.INSTANCES_READ, query=s.InstanceQuery, page_item=s.InstanceOut)
    def get(self, request: Request) -> Response:
        """List instances, latest first."""
        rows = selectors.instance_list(
            self.tenant, contains=self.query.get("contains", ""), phase=self.query.get("phase", "")
        )
        return self.page(rows, s.InstanceOut, order=("-created_at", "id"))

    @endpoint("create_instance", Scope.INSTANCES_WRITE, body=s.InstanceIn, returns=s.OperationOut, status=202)
    def post(self, request: Request) -> Response:
        """Create an instance.

        Returns an operation immediately; its `resource_id` is the instance. Usually it runs within a second.
        """
        _, operation = services.create_instance(acting=self.actor, dry_run=self.dry_run, **self.body)
        return self.accepted(operation, s.OperationOut)


class InstanceResource(ApiView):
    tag = "Instances"

    @endpoint("get_instance", Scope.INSTANCES_READ, returns=s.InstanceOut)
    def get(self, request: Request, instance_id: str) -> Response:
        """Read an instance."""
        return self.one(access.instance(self.actor, instance_id), s.InstanceOut)

    @endpoint(
        "update_instance",
        Scope.INSTANCES_WRITE,
        body=s.InstancePatch,
        returns=s.InstanceOut,
        other_responses=((202, s.InstanceOut),),
        requires_if_match=True,
        errors=(409,),
    )
    def patch(self, request: Request, instance_id: str) -> Response:
        """Resize, rename, protect or configure an instance.

        Name and protection are changed immediately (200). Sizes and settings reach the brokers within a second: 202,
        with the operation in `Location`. Clients stay connected.
        """
        instance = access.instance(self.actor, instance_id, lock=True)
        self.require_match(instance)
        changes = dict(self.body)
        if "name" in changes:
            services.rename_instance(acting=self.actor, instance=instance, name=changes["name"])
        if "protected" in changes:
            services.protect_instance(acting=self.actor, instance=instance, protected=changes["protected"])
        operations: list[Operation | None] = []
        size = {name: changes[name] for name in ("plan", "bandwidth_mb_s", "storage_gb") if name in changes}
        if size:
            operations.append(
                services.resize_instance(acting=self.actor, instance=instance, dry_run=self.dry_run, **size)
            )
        if changes.get("settings"):
            operations.append(
                services.configure_instance(
                    acting=self.actor, instance=instance, settings=changes["settings"], dry_run=self.dry_run
                )
            )
        started = [operation for operation in operations if operation is not None]
        location = f"{API_ROOT}/operations/{started[-1].pk}" if started else None
        return self.one(instance, s.InstanceOut, status=202 if started else 200, location=location)

    @endpoint(
        "delete_instance",
        Scope.INSTANCES_WRITE,
        returns=s.OperationOut,
        status=202,
        requires_if_match=True,
        errors=(409,),
    )
    def delete(self, request: Request, instance_id: str) -> Response:
        """Delete an instance.

        Clients are refused immediately. Data and address are kept for seven days, in which `/restore` restores the
        instance. Until then, or until `/purge`, its storage counts against the tenant's limits. An instance that never
        ran or has no topic, not even a deleted one, has nothing to restore and is purged immediately:
        `restorable_until`, in the data of the operation's first step, is null.
        """
        has_no_visible_topic = services.has_no_visible_topic(access.instance(self.actor, instance_id))
        instance = access.instance(self.actor, instance_id, lock=True)
        self.require_match(instance)
        operation = services.delete_instance(
            acting=self.actor, instance=instance, has_no_visible_topic=has_no_visible_topic, dry_run=self.dry_run
        )
        return self.accepted(operation, s.OperationOut)


class InstanceRestore(ApiView):
    tag = "Instances"

    @endpoint("restore_instance", Scope.INSTANCES_WRITE, returns=s.OperationOut, status=202)
    def post(self, request: Request, instance_id: str) -> Response:
        """Undo a deletion.

        The same address, topics and messages are available again.
        """
        instance = access.instance(self.actor, instance_id, lock=True)
        operation = services.restore_instance(acting=self.actor, instance=instance, dry_run=self.dry_run)
        return self.accepted(operation, s.OperationOut)


class InstancePurge(ApiView):
    tag = "Instances"

    @endpoint(
        "purge_instance",
        Scope.INSTANCES_WRITE,
        returns=s.OperationOut,
        status=202,
        requires_if_match=True,
        errors=(409,),
    )
    def post(self, request: Request, instance_id: str) -> Response:
        """Delete a deleted instance permanently, now.

        Topics, messages, users and address are deleted, and its storage no longer counts. It cannot be restored.
        """
        instance = access.instance(self.actor, instance_id, lock=True)
        self.require_match(instance)
        operation = services.purge_instance(acting=self.actor, instance=instance, dry_run=self.dry_run)
        return self.accepted(operation, s.OperationOut)


class InstanceResume(ApiView):
    tag = "Instances"

    @endpoint("resume_instance", Scope.INSTANCES_WRITE, returns=s.OperationOut, status=202)
    def post(self, request: Request, instance_id: str) -> Response:
        """Resume an instance that its plan stopped because it was not used.

        Other suspensions are ended by the operator.
        """
        instance = access.instance(self.actor, instance_id, lock=True)
        operation = services.resume_instance(acting=self.actor, instance=instance, dry_run=self.dry_run)
        return self.accepted(operation, s.OperationOut)


class InstanceRetry(ApiView):
    tag = "Instances"

    @endpoint("retry_instance", Scope.INSTANCES_WRITE, returns=s.OperationOut, status=202)
    def post(self, request: Request, instance_id: str) -> Response:
        """Retry the creation of a failed instance."""
        instance = access.instance(self.actor, instance_id, lock=True)
        operation = services.retry_instance(acting=self.actor, instance=instance, dry_run=self.dry_run)
        return self.accepted(operation, s.OperationOut)


class OperationCollection(ApiView):
    tag = "Operations"

    @endpoint("list_operations", Scope.INSTANCES_READ, query=s.OperationQuery, page_item=s.OperationOut)
    def get(self, request: Request) -> Response:
        """List operations, latest first."""
        rows = selectors.operation_list(
            self.tenant, instance_id=self.query.get("instance_id", ""), state=self.query.get("state", "")
        )
        return self.page(rows, s.OperationOut, order=("-created_at", "id"))


class OperationResource(ApiView):
    tag = "Operations"

    @endpoint("get_operation", Scope.INSTANCES_READ, returns=s.OperationOut)
    def get(self, request: Request, operation_id: str) -> Response:
        """Read an operation."""
        return self.one(selectors.operation_detail(self.actor, operation_id), s.OperationOut)
