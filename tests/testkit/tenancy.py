"""Tenants of a running product, over REST with a token; a second one attacks the first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from dataclasses import dataclass
from typing import Any

from config.environment import BASE_DIR
from tests.testkit.stack import Stack, environment
from tests.testkit.waiting import eventually

SIGN_UP = """
import json
from tenants import access, services
from tenants.actors import member_actor
member = services.sign_up(email="{name}@example.com", password="{password}", tenant_name="{name}")
acting = member_actor(member)
token = services.create_token(acting=acting, name="tests", scopes=sorted(access.grantable_scopes(acting)))[1]
print(json.dumps({{"token": token}}))
"""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """API client with one tenant's token."""

    api_url: str
    token: str

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Returns `(status, JSON body or None)`; refusals are answers, not exceptions."""
        request = urllib.request.Request(
            self.api_url.rstrip("/") + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.token}",
                "Content-Type": "application/json",
                "Idempotency-Key": uuid.uuid4().hex,
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                raw, status = answer.read(), answer.status
        except urllib.error.HTTPError as refusal:
            raw, status = refusal.read(), refusal.code
        return status, json.loads(raw) if raw else None

    def get(self, path: str) -> Any:
        status, body = self.call("GET", path)
        assert status == 200, body
        return body

    def instance(self, name: str, *, bandwidth_mb_s: int = 5, storage_gb: int = 1, **settings: Any) -> dict[str, Any]:
        """Creates a running instance for the test: open, so that its clients need neither user nor access rule."""
        request_body: dict[str, Any] = {"name": name, "bandwidth_mb_s": bandwidth_mb_s, "storage_gb": storage_gb}
        request_body["settings"] = {"allow_everyone_if_no_acl": True, **settings}
        request_body["routes"] = [{"name": "open", "security": "plaintext"}]
        status, body = self.call("POST", "/instances", request_body)
        assert status == 202, body
        instance_id = body["resource_id"]
        eventually(
            lambda: self.get(f"/instances/{instance_id}")["status"]["phase"] in ("running", "failed"),
            within_s=60,
            what=f"{instance_id} to run",
        )
        instance: dict[str, Any] = self.get(f"/instances/{instance_id}")
        assert instance["status"]["phase"] == "running", instance
        return instance

    def topic(self, instance_id: str, name: str, partitions: int = 1, replication_factor: int | None = None) -> None:
        """Creates a topic, by default with the instance's replication factor."""
        request_body = {"name": name, "partitions": partitions}
        if replication_factor is not None:
            request_body["replication_factor"] = replication_factor
        status, body = self.call("POST", f"/instances/{instance_id}/topics", request_body)
        assert status == 201, body


def demo_tenant(stack: Stack) -> Caller:
    """The tenant of the ready block."""
    return Caller(api_url=stack.ready["api_url"], token=stack.ready["tenant"]["token"])


def another_tenant(stack: Stack) -> Caller:
    """Creates a tenant with an owner and a token with all rights."""
    name = f"tenant-{uuid.uuid4().hex[:8]}"
    script = SIGN_UP.format(name=name, password=uuid.uuid4().hex)
    process = subprocess.run(
        [sys.executable, str(BASE_DIR / "manage.py"), "shell", "-v", "0", "-c", script],
        capture_output=True,
        env=environment() | {"PENSTOCK_STATE_DIR": str(stack.state_dir), "PYTHONWARNINGS": "ignore"},
        cwd=BASE_DIR,
        timeout=60,
        check=False,
    )
    assert process.returncode == 0, process.stderr.decode()
    return Caller(api_url=stack.ready["api_url"], token=json.loads(process.stdout.splitlines()[-1])["token"])


def addresses(instance: dict[str, Any]) -> list[str]:
    """Returns the `host:port` of every broker of an instance."""
    servers = instance["bootstrap_servers"]
    return servers.split(",") if isinstance(servers, str) else list(servers)


def size_of_run(variable: str, default: int) -> int:
    """Returns the size of a test: from the variable, which acceptance runs set, else the default of `make test`."""
    return int(os.environ.get(variable, default))
