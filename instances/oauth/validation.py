"""Checks of a requested OAuth configuration, and its conversion to the columns of its row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from instances.oauth.key_sets import KeySetRefused, parse
from instances.oauth.limits import DEFAULT_CLOCK_SKEW_S, DEFAULT_PRINCIPAL_CLAIM
from tenants import outbound
from tenants.errors import Invalid, Message


def validated_columns(requested: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of a requested configuration; `keys` is among them for a pinned key set only.

    Raises `Invalid`.
    """
    url, document = requested.get("jwks_url"), requested.get("jwks")
    if (url is None) == (document is None):
        raise Invalid.at("/jwks_url", "Give either jwks_url or jwks: the keys must come from one place.", code="one_of")
    columns = {
        "issuer": requested["issuer"],
        "audience": requested["audience"],
        "jwks_url": url or "",
        "principal_claim": requested.get("principal_claim", DEFAULT_PRINCIPAL_CLAIM),
        "clock_skew_s": requested.get("clock_skew_seconds", DEFAULT_CLOCK_SKEW_S),
    }
    if url is not None:
        try:
            outbound.target_of(url)
        except outbound.OutboundFailed as error:
            raise Invalid.at("/jwks_url", error.detail, code="invalid_url") from error
        return columns
    try:
        # Serialized again, so that the size limit of a key set applies to it.
        keys = parse(json.dumps(document).encode(), is_pinned=True)
    except KeySetRefused as error:
        raise Invalid.at("/jwks", message_of(error), code="invalid_key_set") from error
    return {**columns, "keys": [key.to_body() for key in keys]}


def message_of(error: KeySetRefused) -> Message:
    """Returns the reason for the refusal as a message that pages translate."""
    values = {
        name: message_of(value) if isinstance(value, KeySetRefused) else value for name, value in error.values.items()
    }
    return Message(error.msgid, **values)
