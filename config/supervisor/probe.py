"""Readiness probe of a program."""

from __future__ import annotations

import http.client

TIMEOUT_S = 3.0


def answers_ok(host: str, port: int, path: str) -> bool:
    """True if `GET path` answers 200; False for any error."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
