"""A command under the restrictions of a systemd unit: ``python -m tests.packaging.sandbox UNIT COMMAND...``.

No systemd runs where tests do, so a unit that forbids needed calls would go unnoticed. This module reads the unit,
applies all restrictions that a process can apply to itself, and becomes the command: ``SystemCallFilter`` (EPERM for
the rest), ``MemoryDenyWriteExecute``, ``NoNewPrivileges``, an empty ``CapabilityBoundingSet`` and ``UMask``. The
numbers of system calls come from the C compiler, the meaning of ``@system-service`` from systemd-analyze.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import struct
import subprocess
import sys
from pathlib import Path

PR_CAPBSET_DROP, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, PR_SET_MDWE = 24, 22, 38, 65
SECCOMP_MODE_FILTER, MDWE_REFUSE_EXEC_GAIN = 2, 1
LAST_CAPABILITY = 63
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER_AT, ARCHITECTURE_AT = 0, 4
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_libc = ctypes.CDLL(None, use_errno=True)


def settings_of(unit: Path) -> dict[str, list[str]]:
    """``[Service]`` and the other sections together: name -> values in their order."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text(encoding="utf-8").splitlines():
        if "=" in line and not line.startswith(("#", ";", "[")):
            name, _, value = line.partition("=")
            found.setdefault(name.strip(), []).append(value.strip())
    return found


def allowed_calls(filters: list[str]) -> set[str]:
    """``SystemCallFilter`` lines, combined as by systemd: the first one makes it a list of allowed calls."""
    allowed: set[str] = set()
    for line in filters:
        names = {name for word in line.lstrip("~").split() for name in _expanded(word)}
        allowed = allowed - names if line.startswith("~") else allowed | names
    # systemd always lets these through.
    return allowed | _expanded("@default")


def _expanded(name: str) -> set[str]:
    if not name.startswith("@"):
        return {name}
    listed = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager", name], capture_output=True, text=True, check=True
    ).stdout
    words = [line.strip() for line in listed.splitlines()[1:]]
    return {found for word in words if word and not word.startswith("#") for found in _expanded(word)}


def numbers() -> dict[str, int]:
    """System call -> its number on this machine."""
    macros = subprocess.run(
        ["cc", "-E", "-dM", "-include", "asm/unistd.h", "-"], input="", capture_output=True, text=True, check=True
    ).stdout
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)$", macros, re.MULTILINE)}


def program(calls: set[str]) -> bytes:
    """The BPF program that lets ``calls`` through and answers EPERM to every other one."""
    known = numbers()
    steps = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (JUMP_IF_EQUAL, 1, 0, ARCHITECTURES[platform.machine()]),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_AT),
    ]
    for number in sorted(known[name] for name in calls & known.keys()):
        steps += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    steps.append((RETURN, 0, 0, REFUSE | errno.EPERM))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def restrict(unit: Path) -> None:
    """Apply the unit's restrictions to this process and all its children.

    Raises: OSError: the kernel refused one of them.
    """
    settings = settings_of(unit)
    filters = program(allowed_calls(settings["SystemCallFilter"]))
    assert settings["SystemCallErrorNumber"] == ["EPERM"]
    assert settings["CapabilityBoundingSet"] == settings["AmbientCapabilities"] == [""]
    os.umask(int(settings["UMask"][0], 8))
    if os.geteuid() == 0:
        for capability in range(LAST_CAPABILITY + 1):
            _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    _prctl(PR_SET_NO_NEW_PRIVS, 1, 0)
    if settings["MemoryDenyWriteExecute"] == ["yes"]:
        _prctl(PR_SET_MDWE, MDWE_REFUSE_EXEC_GAIN, 0)
    wrapped = _Program(len(filters) // 8, filters)
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(wrapped))


def _prctl(what: int, value: int, more: int) -> None:
    if _libc.prctl(what, ctypes.c_ulong(value), ctypes.c_ulong(more), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), f"prctl {what}")


if __name__ == "__main__":
    restrict(Path(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - to become it is the idea
