"""A scripted client on a raw socket: asks, and writes down the normalised answers under a label each.

One connection at a time; when the broker closes it, the answer is "closed" and the next question opens another. All
topics of the scripts live on the broker that is asked, so that a cluster of any size answers like a single broker.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.headers import decode_response_header, encode_request_frame
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from brokers.engine.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from brokers.engine.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.differential.normalise import normalised

CLOSED = "closed"
NO_ANSWER = "no answer"
ANSWER_S = 15.0
# How long a question that should stay unanswered for the time being is watched.
DELAYED_S = 0.15
# How long a question that may stay unanswered is waited for.
SILENCE_S = 1.0
LEADER_S = 20.0
LOADING = 14


@dataclass(frozen=True)
class Address:
    """Where a broker is. `inside`: where the cluster itself reaches it, with which user and secret, if that is another
    place; `owner`: the same of who is asked nothing, whatever ACLs say; `prefix`: what the cluster calls a tenant's
    names, in front of them.
    """

    host: str
    port: int
    inside: tuple[Address, tuple[str, str]] | None = None
    prefix: str = ""
    owner: tuple[Address, tuple[str, str]] | None = None


class ConnectionLost(Exception):
    """The broker closed the connection instead of answering."""


@dataclass
class Player:
    """A scripted client. `answers` collects the answers by label. `login`: user and secret for SASL PLAIN."""

    address: Address
    answers: dict[str, Any] = field(default_factory=dict)
    client_id: str | None = "differential"
    login: tuple[str, str] | None = None
    normalise: Callable[[Any], Any] = normalised
    _socket: socket.socket | None = None
    _correlation_id: int = 0
    _broker_id: int | None = None
    _others: list[Player] = field(default_factory=list)

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for other in self._others:
            other.close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def another(self, client_id: str | None = "differential") -> Player:
        """A client beside this one, with a connection of its own, that writes down into the same answers."""
        other = Player(self.address, self.answers, client_id, self.login, self.normalise)
        self._others.append(other)
        return other

    def operator(self) -> Player:
        """A client beside this one that speaks for the cluster."""
        address, login = self.address.inside or (self.address, None)
        other = Player(address, self.answers, self.client_id, login, self.normalise)
        self._others.append(other)
        return other

    def owner(self) -> Player:
        """A client beside this one that may do everything."""
        assert self.address.owner is not None, "this script needs an authorizer and a superuser"
        address, login = self.address.owner
        other = Player(address, self.answers, self.client_id, login, self.normalise)
        self._others.append(other)
        return other

    def write_down(self, label: str, answer: Any) -> None:
        assert label not in self.answers, f"two answers under {label!r}"
        self.answers[label] = answer

    def write_down_answer(self, label: str, answer: Any) -> None:
        """A decoded answer, normalised."""
        self.write_down(label, self.normalise(answer))

    def ask(self, label: str, api_key: int, version: int, message: Any, *, may_be_silent: bool = False) -> Any:
        """Sends a request and writes the answer down; answers it decoded, or None when there was none."""
        body = codec.encode_request(api_key, version, message)
        return self.ask_body(label, api_key, version, body, may_be_silent=may_be_silent)

    def ask_body(
        self,
        label: str,
        api_key: int,
        version: int,
        body: bytes,
        *,
        read_as: int | None = None,
        may_be_silent: bool = False,
    ) -> Any:
        """Sends a request with the given body, and records the answer, read in version `read_as` if that differs."""
        try:
            answer = self.call_body(
                api_key, version, body, read_as=read_as, patience_s=SILENCE_S if may_be_silent else ANSWER_S
            )
        except ConnectionLost:
            self.write_down(label, CLOSED)
            return None
        except TimeoutError:
            assert may_be_silent, f"no answer to {label!r}"
            self.close()
            self.write_down(label, NO_ANSWER)
            return None
        self.write_down(label, self.normalise(answer))
        return answer

    def ask_frame(self, label: str, frame: bytes) -> None:
        """Sends bytes as they are and writes down whether the connection survived, or the bytes that came back."""
        self._connection().sendall(frame)
        try:
            self.write_down(label, self._receive(SILENCE_S).hex())
        except ConnectionLost:
            self.write_down(label, CLOSED)
        except TimeoutError:
            self.close()
            self.write_down(label, NO_ANSWER)

    def ask_frame_size(self, label: str, frame: bytes) -> None:
        """Sends a frame, and records that an answer came; its content is compared elsewhere."""
        self._connection().sendall(frame)
        try:
            self._receive(SILENCE_S)
            self.write_down(label, "an answer")
        except ConnectionLost:
            self.write_down(label, CLOSED)

    def tell(self, api_key: int, version: int, message: Any) -> None:
        """Sends a request that has no answer (acks=0)."""
        self._correlation_id += 1
        body = codec.encode_request(api_key, version, message)
        self._connection().sendall(encode_request_frame(api_key, version, self._correlation_id, self.client_id, body))

    def begin(self, label: str | None, api_key: int, version: int, message: Any) -> Asked:
        """Sends a request and lets the broker think; the connection waits for nothing else meanwhile."""
        self._send(api_key, version, codec.encode_request(api_key, version, message))
        return Asked(self, label, api_key, version)

    def call(self, api_key: int, version: int, message: Any) -> Any:
        """Sends a request and answers the response, writing nothing down."""
        return self.call_body(api_key, version, codec.encode_request(api_key, version, message))

    def call_body(
        self, api_key: int, version: int, body: bytes, *, read_as: int | None = None, patience_s: float = ANSWER_S
    ) -> Any:
        """Raises ConnectionLost, TimeoutError."""
        self._send(api_key, version, body)
        return self.receive(api_key, version if read_as is None else read_as, patience_s)

    def exchange_raw(self, token: bytes) -> bytes:
        """Sends bytes behind their size, and answers those that come back. Raises ConnectionLost."""
        try:
            self._connection().sendall(len(token).to_bytes(4, "big") + token)
        except OSError as error:
            self.close()
            raise ConnectionLost from error
        return self._receive(ANSWER_S)

    def _send(self, api_key: int, version: int, body: bytes) -> None:
        connection = self._connection()
        self._correlation_id += 1
        frame = encode_request_frame(api_key, version, self._correlation_id, self.client_id, body)
        try:
            connection.sendall(frame)
        except OSError as error:
            self.close()
            raise ConnectionLost from error

    def receive(self, api_key: int, version: int, patience_s: float = ANSWER_S) -> Any:
        """The answer to the last question, decoded. Raises ConnectionLost, TimeoutError."""
        answer = self._receive(patience_s)
        correlation_id, position = decode_response_header(api_key, version, answer, 0, len(answer))
        assert correlation_id == self._correlation_id, "an answer to another question"
        decoded = codec.decode_response(api_key, version, answer, position, len(answer))
        again = codec.encode_response(api_key, version, decoded)
        assert again == answer[position:], "the answer is not what our codec writes for its values"
        return decoded

    def is_answered(self, within_s: float) -> bool:
        """True if anything has arrived or arrives within the time."""
        # Not select(): a descriptor may be above 1023 in a process that ran many tests.
        poller = select.poll()
        poller.register(self._connection(), select.POLLIN)
        return bool(poller.poll(within_s * 1000))

    def _connection(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection((self.address.host, self.address.port), ANSWER_S)
            if self.login is not None:
                self._log_in(*self.login)
        return self._socket

    def _log_in(self, user: str, secret: str) -> None:
        shaken = self.call(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        assert shaken.error_code == 0, shaken
        token = f"\0{user}\0{secret}".encode()
        accepted = self.call(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token))
        assert accepted.error_code == 0, accepted

    def _receive(self, patience_s: float) -> bytes:
        size_bytes = int.from_bytes(self._exactly(4, patience_s), "big")
        return self._exactly(size_bytes, ANSWER_S)

    def _exactly(self, count: int, patience_s: float) -> bytes:
        connection = self._connection()
        connection.settimeout(patience_s)
        received = bytearray()
        while len(received) < count:
            try:
                piece = connection.recv(count - len(received))
            except ConnectionError:
                piece = b""
            if not piece:
                self.close()
                raise ConnectionLost
            received += piece
        return bytes(received)

    # What scripts need around their questions.

    @property
    def broker_id(self) -> int:
        """The id of the broker that is asked."""
        if self._broker_id is None:
            answer = self.call(ApiKey.METADATA, 1, MetadataRequest(topics=[]))
            at = (self.address.host, self.address.port)
            (self._broker_id,) = [broker.node_id for broker in answer.brokers if (broker.host, broker.port) == at]
        return self._broker_id

    def make_topic(self, name: str, partitions: int = 1, **config: str) -> bytes:
        """Creates a topic on this broker (`retention_ms="1"` sets `retention.ms`) and waits for its leaders; its id.

        Records of the scripts are years old, so topics keep them for ever unless a script says otherwise.
        """
        config.setdefault("retention_ms", "-1")
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=[self.broker_id])
                for index in range(partitions)
            ],
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()],
        )
        answer = self.call(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert answer.topics[0].error_code == 0, answer
        return self.until_led(name)

    def is_made(self, name: str) -> bool:
        """Tries to create a topic, which takes until one of its name is wholly gone."""
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        answer = self.call(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        return bool(answer.topics[0].error_code == 0 and self.until_led(name))

    def inside(self, name: str) -> str:
        """Returns the cluster's name of a topic, a group or a transactional id of this tenant."""
        return f"{self.address.prefix}{name}"

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        """Waits until it holds."""
        deadline = time.monotonic() + LEADER_S
        while not (result := holds()):
            assert time.monotonic() < deadline, f"in vain: {what}"
        return result

    def until_led(self, name: str) -> bytes:
        """Waits until every partition of a topic has a leader; answers the topic's id."""
        deadline = time.monotonic() + LEADER_S
        while True:
            wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
            (topic,) = self.call(ApiKey.METADATA, 10, wanted).topics
            if topic.error_code == 0 and topic.partitions and all(p.leader_id >= 0 for p in topic.partitions):
                return bytes(topic.topic_id)
            assert time.monotonic() < deadline, f"no leader for {name}: {topic}"

    def until_ready(self, api_key: int, version: int, message: Any) -> None:
        """Waits until a call is no longer answered with COORDINATOR_LOAD_IN_PROGRESS."""
        deadline = time.monotonic() + LEADER_S
        while self.call(api_key, version, message).error_code == LOADING:
            assert time.monotonic() < deadline, "the broker keeps loading"

    def until_gone(self, name: str) -> None:
        """Waits until a deleted topic is no longer listed."""
        deadline = time.monotonic() + LEADER_S
        while True:
            wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
            if self.call(ApiKey.METADATA, 10, wanted).topics[0].error_code == 3:
                return
            assert time.monotonic() < deadline, f"{name} stays"


@dataclass(frozen=True)
class Asked:
    """A question that has no answer yet."""

    player: Player
    label: str | None
    api_key: int
    version: int

    def is_delayed(self) -> None:
        """Writes down whether the broker keeps the answer for later."""
        self.player.write_down(f"{self.label}: waits", not self.player.is_answered(DELAYED_S))

    def answer(self) -> Any:
        """Waits for the answer and writes it down; None if the connection was closed instead."""
        try:
            answer = self.player.receive(self.api_key, self.version)
        except ConnectionLost:
            answer = None
        if self.label is not None:
            self.player.write_down(self.label, CLOSED if answer is None else self.player.normalise(answer))
        return answer
