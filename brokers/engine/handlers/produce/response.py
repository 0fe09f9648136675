"""The answer to a Produce: by hand where it can be, in full where an error is worth explaining."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from brokers.engine.handlers.produce.delayed_produce import PartitionErrors
from brokers.engine.handlers.produce.error_details import encode as encode_detailed
from brokers.engine.handlers.produce.request import EncodedPart, Place, TopicResult
from brokers.engine.handlers.session import Session
from brokers.engine.partitions.results import AppendResult
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fast_codec import encode_produce_response, encode_produced_topics, produce_response_frame

# From this version on an answer can say which record was wrong, and from the other who leads instead.
_RECORD_ERRORS_FROM: Final = 8
_LEADERS_FROM: Final = 10
# To explain a line takes about 3 us, and no other request comes in between: longer answers have error codes alone.
# Producers send a line for each partition that a broker leads.
EXPLAINED_LINES_MAX: Final = 2_000


def encode(
    session: Session,
    version: int,
    correlation_id: int,
    results: list[TopicResult],
    detailed: Mapping[Place, AppendResult] | None,
    failed: bool,
    delay_ms: int,
) -> bytes:
    """Returns the response frame. `failed`: a result has an error; `detailed`: those with errors of single records."""
    if failed and is_explained(version, results, detailed):
        return encode_detailed(session.view(), version, correlation_id, results, detailed or {}, delay_ms)
    return encode_produce_response(version, correlation_id, results, delay_ms)


def join_encoded(
    version: int, correlation_id: int, topic_count: int, encoded: list[EncodedPart], delay_ms: int
) -> bytes:
    """Returns the response frame of a long request, whose results were encoded part by part."""
    return produce_response_frame(version, correlation_id, topic_count, [part for _, part in encoded], delay_ms)


def is_explained(version: int, results: list[TopicResult], detailed: Mapping[Place, AppendResult] | None) -> bool:
    """Whether an answer with errors says which records were wrong, and who leads instead."""
    if is_long(results):
        return False
    if detailed and version >= _RECORD_ERRORS_FROM:
        return True
    moved = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return version >= _LEADERS_FROM and any(line[1] == moved for _, lines in results for line in lines)


def is_long(results: list[TopicResult]) -> bool:
    """Whether an answer is too long to be encoded at once, and to be explained."""
    return sum(1 + len(lines) for _, lines in results) > EXPLAINED_LINES_MAX


class DelayedProduceResponse:
    """What is left to say of a produce once it is known how each of its partitions ended."""

    __slots__ = ("_correlation_id", "_delay_ms", "_encoded", "_results", "_session", "_version")

    def __init__(
        self,
        session: Session,
        version: int,
        correlation_id: int,
        results: list[TopicResult],
        delay_ms: int,
        encoded: list[EncodedPart] | None = None,
    ) -> None:
        self._session = session
        self._version = version
        self._correlation_id = correlation_id
        self._results = results
        self._delay_ms = delay_ms
        self._encoded = encoded

    def frame_of(self, partition_errors: PartitionErrors) -> bytes:
        if self._encoded is not None:
            if partition_errors:
                self._encode_again(self._encoded, partition_errors)
            count = len(self._results)
            return join_encoded(self._version, self._correlation_id, count, self._encoded, self._delay_ms)
        results = self._results if not partition_errors else self._with_errors(self._results, partition_errors)
        return encode(
            self._session,
            self._version,
            self._correlation_id,
            results,
            None,
            bool(partition_errors),
            self._delay_ms,
        )

    def _encode_again(self, encoded: list[EncodedPart], partition_errors: PartitionErrors) -> None:
        """The parts that tell of a topic in which there are errors: few, of an answer that is mostly of others."""
        topics = self._session.view().namespace.topics
        failed = {name for name, _ in partition_errors}
        for index, (results, _) in enumerate(encoded):
            if any((topic := topics.get(name)) is not None and topic.name in failed for name, _ in results):
                part = encode_produced_topics(self._version, self._with_errors(results, partition_errors))
                encoded[index] = (results, part)

    def _with_errors(self, whole: list[TopicResult], partition_errors: PartitionErrors) -> list[TopicResult]:
        topics = self._session.view().namespace.topics
        final: list[TopicResult] = []
        for name, results in whole:
            topic = topics.get(name)
            internal = topic.name if topic is not None else ""
            final.append(
                (
                    name,
                    [
                        (line[0], code, line[2], line[3], line[4], None)
                        if not line[1] and (code := partition_errors.get((internal, line[0]), 0))
                        else line
                        for line in results
                    ],
                )
            )
        return final
