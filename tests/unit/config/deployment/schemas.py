"""Schemas of Compose files and Kubernetes objects, as far as ours use them; an unknown field is an error."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def record(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }


def many(item: Schema, at_least: int = 0) -> Schema:
    return {"type": "array", "items": item, "minItems": at_least}


def only(*values: Any) -> Schema:
    return {"enum": list(values)}


TEXT: Schema = {"type": "string", "minLength": 1}
TEXTS = many(TEXT)
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65_535}
# RFC 1123 labels, of objects, containers and volumes.
NAME: Schema = {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"}
PATH: Schema = {"type": "string", "pattern": "^/"}
LABELS: Schema = {"type": "object", "additionalProperties": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,63}$"}}

COMPOSE = record({
    "name": NAME,
    "services": {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": record(
            {
                "image": TEXT, "command": many(TEXT, 1), "working_dir": PATH,
                "user": {"type": "string", "pattern": "^[1-9][0-9]*:[1-9][0-9]*$"},
                "environment": {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
                "restart": only("unless-stopped"), "stop_grace_period": {"type": "string", "pattern": "^[0-9]+s$"},
                "init": FLAG, "read_only": only(True), "tmpfs": TEXTS, "cap_drop": only(["ALL"]),
                "security_opt": only(["no-new-privileges:true"]), "ulimits": record({"nofile": COUNT}),
                "volumes": many({"type": "string", "pattern": "^[^:]+:/[^:]+$"}, 1),
            },
            {"network_mode": only("host"), "ports": many({"type": "string", "pattern": r"^127\.0\.0\.1:\d+:\d+$"}, 1)},
        ),
    },
    "volumes": {"type": "object", "additionalProperties": {"type": "object", "maxProperties": 0}},
})  # fmt: skip

_REFERENCE = record({"name": NAME, "key": TEXT}, {"optional": FLAG})
_VARIABLE = {
    "oneOf": [
        record({"name": TEXT, "value": {"type": "string"}}),
        record({"name": TEXT, "valueFrom": {"oneOf": [
            record({"secretKeyRef": _REFERENCE}), record({"configMapKeyRef": _REFERENCE}),
            record({"fieldRef": record({"fieldPath": TEXT})}),
        ]}}),
    ]
}  # fmt: skip
_PROBE = record({
    "httpGet": record({"path": PATH, "port": TEXT, "httpHeaders": many(record({"name": TEXT, "value": TEXT}))}),
    "periodSeconds": COUNT,
})  # fmt: skip
_CONTAINER = record(
    {
        "name": NAME, "image": TEXT, "command": many(TEXT, 1), "workingDir": PATH, "env": many(_VARIABLE, 1),
        "securityContext": record({
            "allowPrivilegeEscalation": only(False), "readOnlyRootFilesystem": only(True),
            "capabilities": record({"drop": only(["ALL"])}),
        }),
        "volumeMounts": many(record({"name": NAME, "mountPath": PATH}, {"readOnly": FLAG}), 1),
    },
    {
        "ports": many(record({"name": NAME, "containerPort": PORT})), "readinessProbe": _PROBE,
        "livenessProbe": _PROBE,
    },
)  # fmt: skip
_VOLUME = {
    "oneOf": [
        record({"name": NAME, "emptyDir": {"type": "object", "maxProperties": 0}}),
        record({"name": NAME, "hostPath": record({"path": PATH, "type": only("Directory")})}),
        record({"name": NAME, "secret": record({"secretName": NAME, "defaultMode": COUNT})}),
    ]
}
_POD = record({
    "metadata": record({"labels": LABELS}),
    "spec": record(
        {
            "automountServiceAccountToken": only(False), "enableServiceLinks": FLAG,
            "terminationGracePeriodSeconds": COUNT,
            "securityContext": record({
                "runAsNonRoot": only(True), "runAsUser": COUNT, "runAsGroup": COUNT, "fsGroup": COUNT,
                "seccompProfile": record({"type": only("RuntimeDefault")}),
            }),
            "containers": many(_CONTAINER, 1), "volumes": many(_VOLUME, 1),
        },
        {"hostNetwork": FLAG, "dnsPolicy": only("ClusterFirstWithHostNet"), "nodeSelector": {"type": "object"}},
    ),
})  # fmt: skip
_METADATA = record({"name": NAME, "labels": LABELS})
_SELECTOR = record({"matchLabels": LABELS})


def _object(version: str, kind: str, spec: Schema) -> Schema:
    return record({"apiVersion": only(version), "kind": only(kind), "metadata": _METADATA, "spec": spec})


KUBERNETES = {
    "Deployment": _object("apps/v1", "Deployment", record({
        "replicas": COUNT, "strategy": record({"type": only("Recreate", "RollingUpdate")}), "selector": _SELECTOR,
        "template": _POD,
    })),
    "DaemonSet": _object("apps/v1", "DaemonSet", record({
        "updateStrategy": record({"type": only("OnDelete", "RollingUpdate")}), "selector": _SELECTOR, "template": _POD,
    })),
    "Service": _object("v1", "Service", record({
        "type": only("ClusterIP"), "selector": LABELS,
        "ports": many(record({"name": NAME, "port": PORT, "targetPort": PORT}), 1),
    })),
}  # fmt: skip
