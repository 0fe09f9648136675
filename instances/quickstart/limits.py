"""Limits of sample data. Pure."""

from __future__ import annotations

from typing import Final

# Sample data is sent for a minute: some messages every other second.
SAMPLE_RUN_S: Final = 60
SAMPLE_EVERY_S: Final = 2
SAMPLE_TURNS: Final = SAMPLE_RUN_S // SAMPLE_EVERY_S
SAMPLE_MESSAGES_PER_TURN: Final = 20
# Runs at once: one of an instance, and of a tenant and of all tenants together as many as this.
SAMPLE_RUNS_PER_TENANT_MAX: Final = 2
SAMPLE_RUNS_MAX: Final = 20
# A turn that is later than this is not sent: its worker was busy, and a minute of data is over in a minute.
SAMPLE_TURN_EXPIRES_S: Final = 10
# "Push the limit": a quota for a demo client, three times as much sent, and the quota taken back.
PUSH_LIMIT_BYTES_PER_S: Final = 50_000
PUSH_EVERY_S: Final = 3
PUSH_TURNS: Final = 5
PUSH_MESSAGES_PER_TURN: Final = 45
PUSH_MESSAGE_BYTES: Final = 10_000
PUSH_RUN_S: Final = 20
# The quota is taken back by a task of its own, too, if turns are lost.
PUSH_ENDS_AFTER_S: Final = 40
# Names that are tried for the user, where none is asked for.
USER_NAMES_TRIED_MAX: Final = 5
