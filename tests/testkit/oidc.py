"""Client of the OpenID provider of tests, for the test's side. Without Django."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

CLIENT_ID = "penstock"
CLIENT_SECRET = "a secret: with / odd + characters"


@dataclass
class Provider:
    """A running provider, as tests see it."""

    issuer: str
    ca_file: str

    def set(self, **control: Any) -> None:
        body = json.dumps(control).encode()
        request = urllib.request.Request(
            f"{self.issuer}/control", body, {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, context=self.context(), timeout=20) as answer:
            answer.read()

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca_file)

    def authorize(self, url: str) -> str:
        """Visits the authorization endpoint as a browser would; returns where it redirects to."""

        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *args: Any) -> None:
                return None

        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=self.context()), Stay)
        try:
            with opener.open(url, timeout=20) as answer:
                raise AssertionError(answer.read())
        except urllib.error.HTTPError as answer:
            assert answer.code == 302, answer.read()
            return str(answer.headers["Location"])
