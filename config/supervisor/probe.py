"""Asking a program of ours whether it is ready."""

from __future__ import annotations

import http.client

TIMEOUT_S = 3.0


def answers_ok(host: str, port: int, path: str) -> bool:
    """Whether `GET path` answers 200. A refusal, silence or nonsense is a no."""
    link = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        link.request("GET", path)
        return link.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        link.close()
