"""Files that do not count: of a run that was killed, and of archives that are deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from billing.archives import limits
from billing.archives.files import parsed
from billing.lake.address import LakePlace
from billing.models import Archive, ArchiveFile


class TooManyFiles(OSError):
    """Somebody else's files are in the archive's folder."""


def delete_strays(archive: Archive, place: LakePlace, next_offsets: Mapping[int, int]) -> int:
    """Deletes files of these partitions of the archive's topic, as it is now, at or above their next offsets that no
    row names, and unfinished ones; returns how many.

    Raises:
        OSError: the place does not answer.
    """
    counting = set(
        ArchiveFile.objects.filter(archive=archive, partition__in=list(next_offsets)).values_list("path", flat=True)
    )
    deleted = 0
    for path in _paths(place):
        found = parsed(path)
        if found is None or found.partition not in next_offsets or path in counting:
            continue
        if found.generation == archive.topic_generation and found.first_offset >= next_offsets[found.partition]:
            place.files.delete_file(place.path(path))
            deleted += 1
    return deleted


def delete_folder(place: LakePlace) -> None:
    """All of an archive; one that is not there is as good as deleted."""
    from pyarrow.fs import FileType

    if place.files.get_file_info(place.folder).type is not FileType.NotFound:
        place.files.delete_dir(place.folder)


def _paths(place: LakePlace) -> Iterator[str]:
    """All files of days, relative to the archive's folder: one day after the other, for an archive grows for years."""
    from pyarrow.fs import FileSelector, FileType

    for day in place.files.get_file_info(FileSelector(place.folder, allow_not_found=True)):
        if day.type is not FileType.Directory:
            continue
        infos = place.files.get_file_info(FileSelector(day.path, recursive=True))
        if len(infos) > limits.SWEPT_FILES_MAX:
            raise TooManyFiles(f"more than {limits.SWEPT_FILES_MAX} files")
        for info in infos:
            if info.is_file:
                yield info.path.removeprefix(place.folder).lstrip("/")
