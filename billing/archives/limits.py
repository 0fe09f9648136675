"""What archives take at most: of a tenant, of a run, of a file."""

from __future__ import annotations

from typing import Final

ARCHIVES_PER_TENANT_MAX: Final = 20
INTERVAL_MINUTES_MAX: Final = 1_440
# Of all archives of a tenant on our own disks together; at the tenant's own address there is no limit.
FILE_BYTES_PER_TENANT_MAX: Final = 100_000_000_000
FILES_PER_TENANT_MAX: Final = 200_000

# Of one partition in one run: the rest is for the next one.
RECORDS_PER_TASK_MAX: Final = 2_000_000
BYTES_PER_TASK_MAX: Final = 512_000_000
# The tasks of a run end with what they have after so long: a reader that is throttled keeps nobody waiting. Partitions
# that had no turn come first in the next one.
TASKS_S: Final = 30.0
# Who keeps a pace waits no shorter than this.
WAIT_S_MIN: Final = 0.05
# Nothing came for so long: the partition is tried again in the next run.
STALLED_S: Final = 20.0

# Of one archive, all partitions together; and what an archive may be set to run after.
BYTES_PER_S_MIN: Final = 10_000
BYTES_PER_S_MAX: Final = 10_000_000_000
RUN_AFTER_BYTES_MIN: Final = 1_000_000
RUN_AFTER_BYTES_MAX: Final = 1_000_000_000_000
METADATA_TIMEOUT_S: Final = 10.0
# A task has so many files open at once.
OPEN_FILES_MAX: Final = 48
# Where there would be more, an hour or day has a file of its own if it has so many bytes, or a hundredth of all that is
# written at once.
OWN_FILE_BYTES_MIN: Final = 262_144
# A file is closed after so many bytes of keys, values and headers.
FILE_BYTES_MAX: Final = 128_000_000
# Rows wait in memory for a row group, of all files of a task together.
BUFFERED_BYTES_MAX: Final = 16_000_000
BUFFERED_RECORDS_MAX: Final = 50_000

# A task of the worker begins nothing more after so long: bills wait for the same worker.
RUN_S: Final = 10.0
DUE_AT_ONCE_MAX: Final = 50
RETRY_MINUTES: Final = 10
# Of one day of an archive.
SWEPT_FILES_MAX: Final = 1_000_000
