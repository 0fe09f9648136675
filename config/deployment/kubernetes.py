"""Kubernetes manifests of roles. Values come from a ConfigMap and a Secret named `penstock`, which a person creates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

from brokers.contract.version import VERSION
from config.deployment.layout import (
    ANY_ADDRESS,
    NOTE,
    PREFIX,
    STATE_DIR,
    TEMPORARY,
    USER_ID,
    DeploymentOrder,
    fixed_variables,
    stop_seconds,
)
from config.deployment.roles import LAKE, Installation, ProgramRole
from config.environment import INTERNAL_TLS_DIR, SECRETS_DIR, TLS_DIR

FILE: Final = "penstock.yaml"
IMAGE: Final = f"{PREFIX}:{VERSION}"
NODE_VARIABLE: Final = "NODE_NAME"
# Label of nodes that run an agent and its brokers.
NODE_LABEL: Final = f"{PREFIX}.io/agent"
# Secrets whose keys are file names: certificates of our own processes, and of tenants' routes.
CERTIFICATES: Final = {f"{PREFIX}-internal-tls": INTERNAL_TLS_DIR, f"{PREFIX}-tls": TLS_DIR}
PROBE_S: Final = 10


def files(order: DeploymentOrder) -> dict[str, str]:
    """Returns the content of the files by name: all manifests are in one file."""
    text = yaml.safe_dump_all(manifests(order), sort_keys=False, width=120)
    return {FILE: f"# {NOTE}\n{text}"}


def manifests(order: DeploymentOrder) -> list[dict[str, Any]]:
    return [manifest for role in order.roles for manifest in _of_role(role, order)]


def _of_role(role: ProgramRole, order: DeploymentOrder) -> Iterator[dict[str, Any]]:
    kind = "DaemonSet" if role.uses_host_network else "Deployment"
    labels = _labels(role)
    spec: dict[str, Any] = {"selector": {"matchLabels": labels}, "template": _pod(role, order)}
    if kind == "Deployment":
        # Never two pods at a time, not even while a pod is replaced.
        spec = {"replicas": 1, "strategy": {"type": "Recreate"}} | spec
    else:
        # An operator deletes the pods one by one, so that brokers restart host by host.
        spec = {"updateStrategy": {"type": "OnDelete"}} | spec
    yield {"apiVersion": "apps/v1", "kind": kind, "metadata": _metadata(role), "spec": spec}
    if role.listens_on and not role.uses_host_network:
        ports = [{"name": "http", "port": port, "targetPort": port} for port in role.listens_on]
        yield {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _metadata(role),
            "spec": {"type": "ClusterIP", "selector": labels, "ports": ports},
        }


def _pod(role: ProgramRole, order: DeploymentOrder) -> dict[str, Any]:
    installation = Installation(
        python=order.python, code=order.code, state_dir=STATE_DIR, bind=ANY_ADDRESS, host=f"$({NODE_VARIABLE})"
    )
    certificates = {} if role.has_own_certificates else CERTIFICATES
    container: dict[str, Any] = {
        "name": role.name,
        "image": IMAGE,
        "command": list(role.command(installation)),
        "workingDir": order.code,
        "env": [*_environment(role)],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "state", "mountPath": STATE_DIR},
            {"name": "tmp", "mountPath": TEMPORARY},
            *(
                {"name": name, "mountPath": f"{STATE_DIR}/{SECRETS_DIR}/{folder}", "readOnly": True}
                for name, folder in certificates.items()
            ),
            *({"name": name, "mountPath": directory} for name, directory in _data_dirs(role, order)),
        ],
    }
    if role.listens_on and not role.uses_host_network:
        container["ports"] = [{"name": "http", "containerPort": port} for port in role.listens_on]
        # The web server answers only to host names that it knows.
        probe = {"port": "http", "httpHeaders": [{"name": "Host", "value": "127.0.0.1"}]}
        container["readinessProbe"] = {"httpGet": {"path": "/readyz", **probe}, "periodSeconds": PROBE_S}
        container["livenessProbe"] = {"httpGet": {"path": "/healthz", **probe}, "periodSeconds": PROBE_S}
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # its variables would begin with our prefix
        "terminationGracePeriodSeconds": stop_seconds(role),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "state"} | _state_volume(role),
            {"name": "tmp", "emptyDir": {}},
            *({"name": name, "secret": {"secretName": name, "defaultMode": 0o440}} for name in certificates),
            *(
                {"name": name, "hostPath": {"path": directory, "type": "Directory"}}
                for name, directory in _data_dirs(role, order)
            ),
        ],
    }
    if role.uses_host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet", "nodeSelector": {NODE_LABEL: "true"}}
    return {"metadata": {"labels": _labels(role)}, "spec": spec}


def _environment(role: ProgramRole) -> Iterator[dict[str, Any]]:
    """Yields the environment variables of a pod, first the node's name if the command refers to it."""
    if role.names_host:
        yield {"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    for name, value in fixed_variables(role).items():
        yield {"name": name, "value": value}
    for variable in role.variables:
        source = "secretKeyRef" if variable.is_secret else "configMapKeyRef"
        reference: dict[str, Any] = {"name": PREFIX, "key": variable.name}
        # Pods share no directory, so the lake has to be in a bucket.
        if not variable.is_required and variable != LAKE:
            reference["optional"] = True
        yield {"name": variable.name, "valueFrom": {source: reference}}


def _state_volume(role: ProgramRole) -> dict[str, Any]:
    """Returns the volume of a pod's state: on the node if the pod runs brokers, otherwise an empty directory."""
    if role.uses_host_network:
        return {"hostPath": {"path": STATE_DIR, "type": "Directory"}}
    return {"emptyDir": {}}


def _data_dirs(role: ProgramRole, order: DeploymentOrder) -> list[tuple[str, str]]:
    directories = order.data_dirs if role.uses_host_network else ()
    return [(f"data-{number}", directory) for number, directory in enumerate(directories, 1)]


def _metadata(role: ProgramRole) -> dict[str, Any]:
    return {"name": f"{PREFIX}-{role.name}", "labels": _labels(role)}


def _labels(role: ProgramRole) -> dict[str, str]:
    return {"app.kubernetes.io/name": PREFIX, "app.kubernetes.io/component": role.name}
