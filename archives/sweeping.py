"""Deletion of files that no archive needs: files of killed runs, and the folders of deleted archives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from archives import limits
from archives.files import parse_name
from archives.models import Archive, ArchiveFile
from billing.lake.address import Lake


class TooManyFiles(OSError):
    """The folder of a day has more than `limits.SWEPT_FILES_MAX` files."""


def delete_strays(archive: Archive, destination: Lake, next_offsets: Mapping[int, int]) -> int:
    """Deletes unfinished files and files at or above the next offsets that no row names; returns their number.

    Only files of these partitions and of the topic's current generation are deleted.

    Raises:
        OSError: the destination does not answer.
    """
    recorded_paths = set(
        ArchiveFile.objects.filter(archive=archive, partition__in=list(next_offsets)).values_list("path", flat=True)
    )
    deleted = 0
    for path in _paths(destination):
        name = parse_name(path)
        if name is None or name.partition not in next_offsets or path in recorded_paths:
            continue
        if name.generation == archive.topic_generation and name.first_offset >= next_offsets[name.partition]:
            destination.files.delete_file(destination.path(path))
            deleted += 1
    return deleted


def delete_folder(destination: Lake) -> None:
    """Deletes all files of an archive; a missing folder is not an error."""
    from pyarrow.fs import FileType

    if destination.files.get_file_info(destination.folder).type is not FileType.NotFound:
        destination.files.delete_dir(destination.folder)


def _paths(destination: Lake) -> Iterator[str]:
    """Yields all files relative to the archive's folder, day by day, because an archive grows for years."""
    from pyarrow.fs import FileSelector, FileType

    for day in destination.files.get_file_info(FileSelector(destination.folder, allow_not_found=True)):
        if day.type is not FileType.Directory:
            continue
        infos = destination.files.get_file_info(FileSelector(day.path, recursive=True))
        if len(infos) > limits.SWEPT_FILES_MAX:
            raise TooManyFiles(f"more than {limits.SWEPT_FILES_MAX} files")
        for info in infos:
            if info.is_file:
                yield info.path.removeprefix(destination.folder).lstrip("/")
