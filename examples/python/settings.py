"""Client settings from the environment: address, password, certificate."""

from __future__ import annotations

import os


def client_settings() -> dict[str, str]:
    """Returns the settings that every client of an instance takes."""
    settings = {"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"]}
    user, certificate = os.environ.get("KAFKA_USER"), os.environ.get("KAFKA_CA")
    if user:
        settings |= {
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": os.environ["KAFKA_PASSWORD"],
        }
    if certificate:
        settings["ssl.ca.location"] = certificate
    if user or certificate:
        settings["security.protocol"] = f"{'SASL_' if user else ''}{'SSL' if certificate else 'PLAINTEXT'}"
    return settings
