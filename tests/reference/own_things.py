"""Resources of an instance beside the names in requests, for docs/ISOLATION.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

TRIED_CERTIFICATES: Final = "tests/unit/brokers/engine/network/test_client_certificates.py"
TRIED_APART: Final = "tests/unit/brokers/engine/handlers/test_instances_apart.py"

# What is an instance's own beside the names in requests: how it is kept apart, and the test that tries the other's.
OWN: Final[Sequence[tuple[str, str, str]]] = (
    (
        "users and their secrets",
        "Documents below the instance's node; the port says which instance is looked in. The cluster's own names and "
        "secret open the listener inside the cluster alone.",
        TRIED_APART,
    ),
    (
        "access control entries",
        "Documents below the instance's node; an index of each instance's own is asked.",
        TRIED_APART,
    ),
    (
        "tokens",
        "Issuer, audience and keys are a document below the instance's node, which brokers cannot write. A token of "
        "another instance's issuer is none here, whatever it claims.",
        TRIED_APART,
    ),
    (
        "clients' certificates",
        "Verified by the authorities of the port's route, told apart by their keys and not by their names.",
        TRIED_APART,
    ),
    (
        "lists of revoked certificates",
        "Of one route; an entry is a hash with the key of the authority that signed.",
        TRIED_CERTIFICATES,
    ),
    (
        "sessions of TLS",
        "A ticket spares a handshake. It proves no user and names no instance: the port does, and asks for SASL again.",
        TRIED_APART,
    ),
    (
        "routes and their lists",
        "Part of the instance's document, which brokers cannot write. In REST they are below the instance: another "
        "tenant's are 404.",
        TRIED_APART,
    ),
    (
        "certificates of routes",
        "Documents below the instance's node, which brokers cannot write; private keys are encrypted. In REST they are "
        "below the route: another tenant's are 404.",
        "tests/component/instances/test_endpoints.py",
    ),
    (
        "API tokens",
        "Of one tenant; every address below /instances is tried with another tenant's token.",
        "tests/component/api/test_routes.py",
    ),
)
