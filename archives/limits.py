"""Limits of archives per tenant, run and file."""

from __future__ import annotations

from typing import Final

ARCHIVES_PER_TENANT_MAX: Final = 20
INTERVAL_MINUTES_MAX: Final = 1_440
# Limits of all archives of a tenant on local disks together; archives at an address of the tenant have none.
FILE_BYTES_PER_TENANT_MAX: Final = 100_000_000_000
FILES_PER_TENANT_MAX: Final = 200_000

# Limits of one partition in one run; the next run reads the remainder.
RECORDS_PER_TASK_MAX: Final = 2_000_000
BYTES_PER_TASK_MAX: Final = 512_000_000
# Tasks of a run end after this time with the data read so far, so that a throttled archive does not delay others.
# Partitions that were not read come first in the next run.
TASKS_S: Final = 30.0
# A rate-limited reader skips pauses up to this length.
WAIT_S_MIN: Final = 0.05
# Without data for this time, the partition is retried in the next run.
STALLED_S: Final = 20.0

# A bucket is cut off this long after it was opened, because a server that answers slowly or without an end would hold
# up the other archives of its cluster. Listing a large archive takes a minute or two, writing the rest of a task less.
BUCKET_OPEN_S: Final = 300.0

# Range of `bytes_per_s_max`, which applies to all partitions of an archive together, and of `run_after_bytes`.
BYTES_PER_S_MIN: Final = 10_000
BYTES_PER_S_MAX: Final = 10_000_000_000
RUN_AFTER_BYTES_MIN: Final = 1_000_000
RUN_AFTER_BYTES_MAX: Final = 1_000_000_000_000
METADATA_TIMEOUT_S: Final = 10.0
# Maximum number of open files of a task.
OPEN_FILES_MAX: Final = 48
# Beyond that number, an hour or a day has a file of its own if it has this many bytes, or a hundredth of the bytes
# written at once.
OWN_FILE_BYTES_MIN: Final = 262_144
# A file is closed after this many bytes of keys, values and headers.
FILE_BYTES_MAX: Final = 128_000_000
# Limits of the rows that a task buffers for row groups, in all its files together.
BUFFERED_BYTES_MAX: Final = 16_000_000
BUFFERED_RECORDS_MAX: Final = 50_000

# A task of the worker starts no further run after this time, because the usage pipeline shares the worker.
RUN_S: Final = 10.0
DUE_AT_ONCE_MAX: Final = 50
RETRY_MINUTES: Final = 10
# Maximum number of files that a sweep reads from the folder of one day.
SWEPT_FILES_MAX: Final = 1_000_000

# Timeouts of a tenant's database: for checking its tables and reading the progress, and for loading one batch. After
# this time the run of an archive whose server hangs ends.
PREPARE_S: Final = 10.0
BATCH_S: Final = 30.0
# A batch is loaded as soon as it has this many bytes or records. A task has it in memory twice.
BATCH_BYTES_MAX: Final = 16_000_000
BATCH_RECORDS_MAX: Final = 50_000
# Maximum number of bytes that are accepted from a database in one connection.
ANSWER_BYTES_MAX: Final = 4_000_000
