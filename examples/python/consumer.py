"""Reads a topic as a member of a group: `consumer.py TOPIC GROUP`. Ends when nothing has come for ten seconds.

Offsets are committed behind the work: after a crash messages may come again, and none is left out.
"""

from __future__ import annotations

import os
import sys

from confluent_kafka import Consumer, KafkaException, Message
from settings import client_settings

QUIET_S = float(os.environ.get("QUIET_S", "10"))
AT_ONCE = 500


def work(message: Message) -> None:
    """Does the work of your program on a message."""
    key, value = message.key(), message.value()
    print(message.partition(), message.offset(), (key or b"").decode(), "null" if value is None else value.decode())


def main(topic: str, group: str) -> int:
    consumer = Consumer(
        client_settings()
        | {
            "group.id": group,
            "auto.offset.reset": "earliest",  # where the group has no offset yet
            "enable.auto.commit": "false",
            "isolation.level": "read_committed",  # messages of aborted transactions are passed over
        }
    )
    consumer.subscribe([topic])
    try:
        while messages := consumer.consume(AT_ONCE, timeout=QUIET_S):
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
                work(message)
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()  # leaves the group, so that others take over at once
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
