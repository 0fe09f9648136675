"""An operator's session with a running product: it signs in like a browser, then calls the API with its cookie."""

from __future__ import annotations

import http.cookiejar
import json
import re
import urllib.parse
import urllib.request
from typing import Any

from tests.testkit.stack import Stack

TIMEOUT_S = 20


class Operator:
    """An operator's API client: `Operator(stack).get("/operator/clusters")`. Paths are below `/api/v1`."""

    def __init__(self, stack: Stack) -> None:
        self._root = str(stack.ready["console_url"]).rstrip("/")
        self._cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self._cookies))
        login = self._open("/operator/login/").decode()
        result = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', login)
        assert result is not None
        person = stack.ready["operator"]
        body = {"csrfmiddlewaretoken": result[1], "next": "/operator/"}
        body |= {"username": person["username"], "password": person["password"]}
        self._open("/operator/login/", urllib.parse.urlencode(body).encode())

    def get(self, path: str) -> Any:
        return self._call("GET", path, None)

    def post(self, path: str, body: Any = None) -> Any:
        return self._call("POST", path, {} if body is None else body)

    def _call(self, method: str, path: str, body: Any) -> Any:
        token = next((cookie.value or "" for cookie in self._cookies if "csrf" in cookie.name), "")
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "X-CSRFToken": token}
        return json.loads(self._open(f"/api/v1{path}", data, method=method, headers=headers))

    def _open(
        self, path: str, data: bytes | None = None, *, method: str | None = None, headers: dict[str, str] | None = None
    ) -> bytes:
        request = urllib.request.Request(self._root + path, data=data, method=method, headers=headers or {})
        request.add_header("Referer", self._root + path)
        with self._opener.open(request, timeout=TIMEOUT_S) as answer:
            return bytes(answer.read())
