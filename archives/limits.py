"""Limits of archives per tenant, run and file."""

from __future__ import annotations

from typing import Final

ARCHIVES_PER_TENANT_MAX: Final = 20
INTERVAL_MINUTES_MAX: Final = 1_440
# Of all archives of a tenant on local disks together; the tenant's own address has no limit.
FILE_BYTES_PER_TENANT_MAX: Final = 100_000_000_000
FILES_PER_TENANT_MAX: Final = 200_000

# Of one partition in one run; the remainder is read by the next run.
RECORDS_PER_TASK_MAX: Final = 2_000_000
BYTES_PER_TASK_MAX: Final = 512_000_000
# Tasks of a run end after this time with the data read so far, so that a throttled reader delays no one else.
# Partitions that were not read come first in the next run.
TASKS_S: Final = 30.0
# Minimum pause of a rate-limited reader.
WAIT_S_MIN: Final = 0.05
# Without data for this time, the partition is retried in the next run.
STALLED_S: Final = 20.0

# Of one archive, all partitions together; and the range of `run_after_bytes`.
BYTES_PER_S_MIN: Final = 10_000
BYTES_PER_S_MAX: Final = 10_000_000_000
RUN_AFTER_BYTES_MIN: Final = 1_000_000
RUN_AFTER_BYTES_MAX: Final = 1_000_000_000_000
METADATA_TIMEOUT_S: Final = 10.0
# Maximum number of open files of a task.
OPEN_FILES_MAX: Final = 48
# Beyond that, an hour or day gets its own file if it has this many bytes, or a hundredth of the bytes written at once.
OWN_FILE_BYTES_MIN: Final = 262_144
# A file is closed after this many bytes of keys, values and headers.
FILE_BYTES_MAX: Final = 128_000_000
# Rows are buffered for a row group, for all files of a task together.
BUFFERED_BYTES_MAX: Final = 16_000_000
BUFFERED_RECORDS_MAX: Final = 50_000

# A task of the worker starts no further run after this time, because the usage pipeline shares the worker.
RUN_S: Final = 10.0
DUE_AT_ONCE_MAX: Final = 50
RETRY_MINUTES: Final = 10
# Maximum number of files of one day of an archive.
SWEPT_FILES_MAX: Final = 1_000_000

# Of a tenant's database: looking at its tables and progress, and loading one batch. A server that hangs stops its
# archive after this time.
PREPARE_S: Final = 10.0
BATCH_S: Final = 30.0
# A batch is loaded as soon as it has this many bytes or records; a task holds it twice.
BATCH_BYTES_MAX: Final = 16_000_000
BATCH_RECORDS_MAX: Final = 50_000
# Maximum number of bytes a database answers in one connection.
ANSWER_BYTES_MAX: Final = 4_000_000
