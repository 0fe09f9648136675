"""Merging of a day's files in bounded memory: rows are divided by instance into buckets on disk, which are then sorted.

The merged file is sorted by counter and sequence, in row groups whose statistics cover the instances, so that readers
can skip the others. Memory depends on the size of a bucket, not of the day.
"""

from __future__ import annotations

import secrets
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zlib import crc32

from billing.lake.address import Lake
from billing.lake.files import COLUMNS, WrittenLakeFile, added_bytes, merged_path
from brokers.contract.usage import COUNTER_KEY

if TYPE_CHECKING:
    from datetime import date

    import pyarrow as pa

    from billing.models import LakeFile

# Approximate number of rows in a bucket; a bucket is sorted in memory.
BUCKET_ROWS: Final = 500_000
# Maximum number of buckets, which are open files. On days with more rows, buckets are larger.
BUCKETS_MAX: Final = 512
BATCH_ROWS: Final = 65_536
ROW_GROUP_ROWS: Final = 131_072
# Columns whose hashes select one of an instance's buckets, if it has several.
HASHED_COLUMNS: Final = tuple(name for name in COUNTER_KEY if name != "instance_id")
SORT_ORDER: Final = tuple((name, "ascending") for name in ("instance_id", *HASHED_COLUMNS, "sequence"))


class FileMismatch(Exception):
    """A file has other rows, or adds other bytes, than were written."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{path}: {detail}")


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """First bucket and number of buckets of each instance, by instance id. Buckets are in the order of instance ids."""

    first: Mapping[str, int]
    parts: Mapping[str, int]
    buckets: int


def plan_buckets(row_counts: Mapping[str, int], bucket_rows: int = BUCKET_ROWS) -> BucketPlan:
    """Assigns instances to buckets in the order of their ids. An instance that exceeds a bucket has several of its own.

    `row_counts` has the number of rows by instance id. Pure.
    """
    bucket_rows = max(bucket_rows, -(-sum(row_counts.values()) // (BUCKETS_MAX // 2)))
    first, parts = {}, {}
    bucket, filled = 0, 0
    for instance_id, rows in sorted(row_counts.items()):
        parts[instance_id] = count = max(1, -(-rows // bucket_rows))
        if filled and (filled + rows > bucket_rows):
            bucket, filled = bucket + 1, 0
        first[instance_id] = bucket
        if count > 1:
            bucket, filled = bucket + count, 0
        else:
            filled += rows
    return BucketPlan(first, parts, bucket + bool(filled))


def merge(
    lake: Lake, cluster_id: str, day: date, source_files: Sequence[LakeFile], bucket_rows: int = BUCKET_ROWS
) -> WrittenLakeFile:
    """Merges several files of a cluster and day into one. The caller replaces their rows and deletes the old files.

    Raises:
        FileMismatch: a file does not match its row.
    """
    import pyarrow as pa
    from pyarrow import parquet

    schema = _schema_of(lake, source_files)
    plan = plan_buckets(_rows_by_instance(lake, source_files), bucket_rows)
    path = merged_path(cluster_id, day, [file.path for file in source_files])
    target = lake.path(path)
    # A concurrent process that merges the same files must not write to the same file.
    temporary = f"{target}.{secrets.token_hex(4)}.new"
    lake.files.create_dir(target.rpartition("/")[0], recursive=True)
    rows = added = 0
    with tempfile.TemporaryDirectory(prefix="penstock-lake-") as folder:
        buckets = [Path(folder) / f"{number}.arrow" for number in range(plan.buckets)]
        _fill(buckets, plan, schema, _tables(lake, source_files, schema))
        with (
            lake.files.open_output_stream(temporary) as stream,
            parquet.ParquetWriter(stream, schema, compression="zstd") as writer,
        ):
            for bucket in buckets:
                with pa.OSFile(str(bucket)) as source:
                    table = pa.ipc.open_stream(source).read_all().sort_by(list(SORT_ORDER))
                bucket.unlink()
                writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
                rows, added = rows + table.num_rows, added + added_bytes(table)
    lake.files.move(temporary, target)
    return WrittenLakeFile(path=path, cluster_id=cluster_id, day=day, rows=rows, added_bytes=added)


def batches_of(
    lake: Lake, file: LakeFile, columns: Sequence[str] | None = None, instance_ids: Iterable[str] | None = None
) -> Iterator[pa.Table]:
    """Yields the rows of a file in batches, in order. With `instance_ids` row groups without them are skipped.

    Raises:
        FileMismatch: the file has other rows than were written.
        OSError, ValueError: the file cannot be read.
    """
    import pyarrow as pa
    from pyarrow import parquet

    with lake.files.open_input_file(lake.path(file.path)) as stream:
        source = parquet.ParquetFile(stream)
        if source.metadata.num_rows != file.rows:
            raise FileMismatch(file.path, f"{source.metadata.num_rows} rows, but {file.rows} were written")
        groups = _row_groups_of(source, sorted(instance_ids)) if instance_ids is not None else None
        for batch in source.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns):
            yield pa.Table.from_batches([batch])


def rows_of_groups(lake: Lake, file: LakeFile, instance_ids: Iterable[str]) -> int:
    """Returns the number of rows in row groups that may contain these instances."""
    from pyarrow import parquet

    with lake.files.open_input_file(lake.path(file.path)) as stream:
        source = parquet.ParquetFile(stream)
        groups = _row_groups_of(source, sorted(instance_ids))
        return sum(source.metadata.row_group(number).num_rows for number in groups)


def _row_groups_of(source: object, instance_ids: Sequence[str]) -> list[int]:
    """Returns the row groups whose statistics do not exclude all of these instances."""
    metadata = source.metadata  # type: ignore[attr-defined]
    column = source.schema_arrow.get_field_index("instance_id")  # type: ignore[attr-defined]
    result = []
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(column).statistics
        is_known = statistics is not None and statistics.has_min_max
        if not is_known or any(statistics.min <= instance_id <= statistics.max for instance_id in instance_ids):
            result.append(number)
    return result


def _schema_of(lake: Lake, source_files: Sequence[LakeFile]) -> pa.Schema:
    """Returns the columns of all files; older versions differ in types that can be widened."""
    import pyarrow as pa
    from pyarrow import parquet

    schemas = []
    for file in source_files:
        with lake.files.open_input_file(lake.path(file.path)) as stream:
            schemas.append(parquet.read_schema(stream).remove_metadata())
    whole = pa.unify_schemas(schemas, promote_options="permissive")
    return pa.schema([whole.field(name) for name in COLUMNS])


def _rows_by_instance(lake: Lake, source_files: Sequence[LakeFile]) -> dict[str, int]:
    import pyarrow.compute as pc

    rows: Counter[str] = Counter()
    for file in source_files:
        for table in batches_of(lake, file, ["instance_id"]):
            for count in pc.value_counts(table.column("instance_id")).to_pylist():
                rows[count["values"]] += count["counts"]
    return rows


def _tables(lake: Lake, source_files: Sequence[LakeFile], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yields the rows of all files in batches and compares each file with its row. Raises `FileMismatch`."""
    for file in source_files:
        rows = added = 0
        for table in batches_of(lake, file, COLUMNS):
            rows, added = rows + table.num_rows, added + added_bytes(table)
            yield table.select(COLUMNS).cast(schema)
        if (rows, added) != (file.rows, file.added_bytes):
            detail = f"{rows} rows that add {added} bytes, but {file.rows} and {file.added_bytes} were written"
            raise FileMismatch(file.path, detail)


def _fill(buckets: Sequence[Path], plan: BucketPlan, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Writes rows to their buckets, about `BUCKET_ROWS` at a time, so that buckets do not consist of tiny batches."""
    import pyarrow as pa

    with ExitStack() as stack:
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        writers = [
            stack.enter_context(
                pa.ipc.new_stream(stack.enter_context(pa.OSFile(str(path), "wb")), schema, options=options)
            )
            for path in buckets
        ]
        buffered: list[pa.Table] = []
        for table in tables:
            buffered.append(table)
            if sum(table_.num_rows for table_ in buffered) >= BUCKET_ROWS:
                _write_to_buckets(writers, plan, buffered)
        if buffered:
            _write_to_buckets(writers, plan, buffered)


def _write_to_buckets(writers: Sequence[pa.RecordBatchWriter], plan: BucketPlan, buffered: list[pa.Table]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.concat_tables(buffered)
    buffered.clear()
    if len(writers) == 1:
        writers[0].write_table(table)
        return
    number = _buckets_of(table, plan)
    order = pc.sort_indices(number)
    table = table.take(order)
    offset = 0
    for count in pc.value_counts(number.take(order)).to_pylist():
        writers[count["values"]].write_table(table.slice(offset, count["counts"]))
        offset += count["counts"]


def _buckets_of(table: pa.Table, plan: BucketPlan) -> pa.Array:
    """Returns the bucket number of each row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    instances = table.column("instance_id").combine_chunks().dictionary_encode()
    ids = instances.dictionary.to_pylist()
    first = pa.array([plan.first[instance_id] for instance_id in ids], pa.int64()).take(instances.indices)
    if all(plan.parts[instance_id] == 1 for instance_id in ids):
        return first
    parts = pa.array([plan.parts[instance_id] for instance_id in ids], pa.int64()).take(instances.indices)
    hash_sum = pa.repeat(pa.scalar(0, pa.int64()), table.num_rows)
    for name in HASHED_COLUMNS:
        column = table.column(name).combine_chunks().dictionary_encode()
        hashes = [crc32(f"{name}:{value}".encode()) for value in column.dictionary.to_pylist()]
        hash_sum = pc.add(hash_sum, pa.array(hashes, pa.int64()).take(column.indices))
    rest = pc.subtract(hash_sum, pc.multiply(pc.divide(hash_sum, parts), parts))
    return pc.add(first, rest)
