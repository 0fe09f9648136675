"""Name server of tests: answers TXT questions over UDP on a port of loopback, from records that a test sets."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, field
from types import TracebackType

import dns.flags
import dns.message
import dns.rcode
import dns.rrset

DATAGRAM_BYTES = 4_096
TTL_S = 0


@dataclass
class NameServer:
    """A running name server. Names end without a dot; each record is a list of the strings in it."""

    records: dict[str, list[list[str]]] = field(default_factory=dict)
    silent_names: set[str] = field(default_factory=set)
    failing_names: set[str] = field(default_factory=set)
    address: tuple[str, int] = ("127.0.0.1", 0)

    def __enter__(self) -> NameServer:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self.address = self._socket.getsockname()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waking:
            waking.sendto(b"", self.address)
        self._thread.join()
        self._socket.close()

    def clear(self) -> None:
        for names in (self.records, self.silent_names, self.failing_names):
            names.clear()

    def _serve(self) -> None:
        while True:
            question, sender = self._socket.recvfrom(DATAGRAM_BYTES)
            if not question:
                return
            answer = self._answer(dns.message.from_wire(question))
            if answer is not None:
                self._socket.sendto(answer.to_wire(), sender)

    def _answer(self, query: dns.message.Message) -> dns.message.Message | None:
        question = query.question[0]
        name = question.name.to_text(omit_final_dot=True).lower()
        if name in self.silent_names:
            return None
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        if name in self.failing_names:
            response.set_rcode(dns.rcode.SERVFAIL)
        elif name not in self.records:
            response.set_rcode(dns.rcode.NXDOMAIN)
        elif self.records[name]:
            texts = [" ".join(f'"{part}"' for part in strings) for strings in self.records[name]]
            response.answer.append(dns.rrset.from_text(question.name, TTL_S, "IN", "TXT", *texts))
        return response
