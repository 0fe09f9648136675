"""Execution of a program as an unprivileged user if we are root, because PostgreSQL refuses to run as root.

The unprivileged user may not be able to reach the clone (in a closed home directory). Instead of changing permissions
of directories, the program keeps the one capability to traverse them.
"""

from __future__ import annotations

import ctypes
import os
import pwd
from collections.abc import Callable
from pathlib import Path

from config.embedded.process import LIBC, StartFailed

CANDIDATES = ("penstock", "postgres", "pgserver", "nobody")
PR_SET_KEEPCAPS = 8
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_READ_SEARCH = 2
CAPABILITY_VERSION_3 = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def ordinary_user() -> pwd.struct_passwd | None:
    """Returns the account to use, or None if we are not root.

    Raises:
        StartFailed: we are root and the machine has none of the usual unprivileged accounts.
    """
    if os.geteuid() != 0:
        return None
    for name in CANDIDATES:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise StartFailed(
        "PostgreSQL refuses to run as root, and there is no account `nobody` to run it as.",
        "Start as an ordinary user, or point DATABASE_URL at a PostgreSQL of yours.",
    )


def is_reachable(path: Path, user: pwd.struct_passwd) -> bool:
    """True if `user` can traverse every directory above `path` and enter it (by the permission bits for others)."""
    return all(_may_pass(directory, user) for directory in (path, *path.parents))


def _may_pass(directory: Path, user: pwd.struct_passwd) -> bool:
    status = directory.stat()
    return bool(status.st_mode & 0o001) or (status.st_uid == user.pw_uid and bool(status.st_mode & 0o100))


def become(user: pwd.struct_passwd, *, keep_passage: bool) -> Callable[[], None]:
    """Returns a function that changes the child to `user` permanently between fork and exec.

    Args:
        user: the account.
        keep_passage: keep the right to traverse closed directories (which the kernel combines with reading, not
            writing); all other privileges are dropped.
    """
    header = _Header(CAPABILITY_VERSION_3, 0)
    bit = 1 << CAP_DAC_READ_SEARCH
    data = (_Data * 2)(_Data(bit, bit, bit), _Data(0, 0, 0))

    def change() -> None:
        if keep_passage:
            LIBC.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
        if keep_passage:
            LIBC.capset(ctypes.byref(header), data)
            LIBC.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_READ_SEARCH, 0, 0)

    return change
