"""Limits of sample data. Pure."""

from __future__ import annotations

from typing import Final

# Sample data is sent for a minute: some messages every other second.
SAMPLE_RUN_S: Final = 60
SAMPLE_EVERY_S: Final = 2
SAMPLE_TURNS: Final = SAMPLE_RUN_S // SAMPLE_EVERY_S
SAMPLE_MESSAGES_PER_TURN: Final = 20
# Concurrent runs of a tenant and of all tenants; an instance has one.
SAMPLE_RUNS_PER_TENANT_MAX: Final = 2
SAMPLE_RUNS_MAX: Final = 20
# A turn that is delayed for longer than this is skipped, so that a run does not last longer than its minute.
SAMPLE_TURN_EXPIRES_S: Final = 10
# "Push the limit": a demo client gets a quota and sends three times as much; then the quota is removed.
PUSH_LIMIT_BYTES_PER_S: Final = 50_000
PUSH_EVERY_S: Final = 3
PUSH_TURNS: Final = 5
PUSH_MESSAGES_PER_TURN: Final = 45
PUSH_MESSAGE_BYTES: Final = 10_000
PUSH_RUN_S: Final = 20
# If turns are lost, a separate task removes the quota after this time.
PUSH_ENDS_AFTER_S: Final = 40
# Number of default names that are tried for the user if the request names none.
USER_NAMES_TRIED_MAX: Final = 5
