"""Commands that read messages without the console, for kcat and curl."""

from __future__ import annotations

import shlex
from urllib.parse import urlencode

from instances.messages import limits
from instances.messages.forms import ReadForm
from instances.messages.interfaces import NEWEST, OFFSET, TIME
from instances.models import Instance
from instances.users.routes import first_route
from instances.views.snippet_security import PLACEHOLDER_PASSWORD, PLACEHOLDER_USER, Login, client_security
from tenants.api.base import API_ROOT
from tenants.mails import public_url

_MS_PER_S = 1_000


class ReadCommands:
    """Commands for one topic of an instance, over the first route."""

    def __init__(self, instance: Instance, topic: str) -> None:
        route = first_route(instance)
        login = Login(PLACEHOLDER_USER, PLACEHOLDER_PASSWORD)
        security = client_security(route, login, public_url("/api/v1/ca.pem"))
        servers = route.bootstrap_servers if route is not None else instance.bootstrap_servers
        self._kcat = f"kcat -C -b {servers}{security.lines('kcat').settings} -t {topic}"
        self._url = public_url(f"{API_ROOT}/instances/{instance.pk}/topics/{topic}/messages")

    def kcat(self, partition: int, offset: int) -> str:
        """Returns the command that reads one message: the first one at the offset or after it that still exists."""
        return f"{self._kcat} -p {partition} -o {offset} -c 1 -e -f '%T %p@%o %k %h %s\\n'"

    def curl(self, partition: int, offset: int) -> str:
        return self._curl_command({"start": f"{OFFSET}:{offset}", "partition": partition, "limit": 1})

    def kcat_of_page(self, form: ReadForm) -> str:
        """Returns the command that reads all messages from the start of a page, without its filters."""
        values = form.cleaned_data
        kind = values["start"] or NEWEST
        start = {NEWEST: f"-{limits.PAGE_MESSAGES_DEFAULT}", OFFSET: str(values["offset"])}.get(kind, "beginning")
        if values["time"] is not None and kind == TIME:
            start = f"s@{int(values['time'].timestamp() * _MS_PER_S)}"
        partition = "" if values["partition"] is None else f" -p {values['partition']}"
        return f"{self._kcat}{partition} -o {start} -e -f '%T %p@%o %k %s\\n'"

    def curl_of_page(self, form: ReadForm) -> str:
        start = {"start": form.start_text, "partition": form.cleaned_data["partition"]}
        return self._curl_command({**start, **form.filters.non_empty})

    def _curl_command(self, query: dict[str, object]) -> str:
        query_string = urlencode({name: value for name, value in query.items() if value is not None})
        return f'curl -H "Authorization: Bearer $TOKEN" {shlex.quote(f"{self._url}?{query_string}")}'
