"""The metadata of a segment's files: owner, mode, access list, extended attributes (S-60).

A cleaned segment must be readable by exactly the users that could read its sources. If a file has an access list, the
group bits of its mode are the list's mask: with the mode alone, the group could read the file.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.errors import RefusedError
from cleanerd.fsio.safe_open import close_quietly, opened_file
from cleanerd.segments.same_file import changed

if TYPE_CHECKING:
    from cleanerd.segments.segment import Segment

ACCESS_LIST: Final = "system.posix_acl_access"
_CARRIED: Final = ("user.", "security.", ACCESS_LIST, "system.nfs4_acl")
# Set by the kernel: they sign the file's contents, and the kernel drops or renews them when these change.
_OF_CONTENTS: Final = frozenset({"security.capability", "security.evm", "security.ima"})
_NONE: Final = frozenset({errno.ENOTSUP, errno.ENOSYS})
_PERMISSIONS: Final = 0o777


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """Owner, permissions and extended attributes of one file. ``where``: its name in messages."""

    uid: int
    gid: int
    mode: int
    attributes: dict[str, bytes]
    where: str

    @classmethod
    def of_file(cls, directory: int, name: str, segment: Segment, where: str) -> FileMetadata:
        """The metadata of ``segment``, whose file is ``name`` in the directory open as ``directory``; raises OSError.

        Raises:
            SegmentChangedError: the broker deleted or replaced the file.
        """
        try:
            descriptor, status = opened_file(name, dir_fd=directory)
        except FileNotFoundError as error:
            raise changed("it is gone", where) from error
        try:
            if status.st_ino != segment.inode:
                raise changed("another file has its name now", where)
            return cls(segment.uid, segment.gid, segment.mode & _PERMISSIONS, _attributes(descriptor), where)
        finally:
            close_quietly(descriptor)

    def apply(self, descriptor: int, status: os.stat_result) -> None:
        """Give the open file, which has this ``status``, this metadata; raises OSError.

        The access list comes before the mode: otherwise the group would have the mask's rights for a moment.

        Raises:
            RefusedError: the owner cannot be set, or an attribute cannot be copied.
        """
        if (status.st_uid, status.st_gid) != (self.uid, self.gid):
            self._change_owner(descriptor)
        found = _attributes(descriptor)
        if ACCESS_LIST in found and ACCESS_LIST not in self.attributes:
            os.removexattr(descriptor, ACCESS_LIST)  # inherited from the directory's default list
        for name, value in self.attributes.items():
            if found.get(name) != value:
                self._set(descriptor, name, value)
        os.fchmod(descriptor, self.mode)

    def _change_owner(self, descriptor: int) -> None:
        try:
            os.fchown(descriptor, self.uid, self.gid)
        except PermissionError as error:
            raise RefusedError(
                f"it belongs to user {self.uid} and group {self.gid}, and the segment that replaces it cannot be given "
                f"to them: {error.strerror}",
                where=self.where,
                hint="run cleanerd as root, or give the segments to the broker's user (chown)",
            ) from error

    def _set(self, descriptor: int, name: str, value: bytes) -> None:
        try:
            os.setxattr(descriptor, name, value)
        except OSError as error:
            raise RefusedError(
                f"its extended attribute {name} cannot be given to the segment that replaces it: {error.strerror}",
                where=self.where,
                hint="run cleanerd as root, or remove the attribute from the segments (setfattr -x, setfacl -b)",
            ) from error


def _attributes(descriptor: int) -> dict[str, bytes]:
    """The attributes that a cleaned segment has to have as well."""
    try:
        names = os.listxattr(descriptor)
    except OSError as error:
        if error.errno in _NONE:
            return {}
        raise
    found = {}
    for name in names:
        if name.startswith(_CARRIED) and name not in _OF_CONTENTS:
            try:
                found[name] = os.getxattr(descriptor, name)
            except OSError as error:
                if error.errno != errno.ENODATA:
                    raise
    return found
