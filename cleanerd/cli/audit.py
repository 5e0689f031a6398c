"""``cleanerd audit``: where a key still occurs in a partition's files. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from cleanerd.cli.keys_asked import find_keys_asked
from cleanerd.cli.output import Column
from cleanerd.cli.scope import key_rules, select_in
from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.inspect.report import bytes_fields, time_of
from cleanerd.log.log_dir import LOG_START_CHECKPOINT, partition_names
from cleanerd.verify.audit import Audit, Occurrence, audit_place, files_of
from cleanerd.verify.audit import audit as search
from cleanerd.verify.finding import Findings
from cleanerd.verify.log_dir import read_surroundings
from cleanerd.verify.record_places import record_places
from cleanerd.words import counted, human_bytes, human_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cleanerd.cli.options import Common
    from cleanerd.cli.output import Output
    from cleanerd.settings import Settings
    from cleanerd.verify.record_places import RecordPlaces
    from cleanerd.verify.rules import KeyRules

FOUND: Final = 1
"""Exit code of ``--expect-absent`` when the key is somewhere."""


def audit(
    common: Common,
    partition: str,
    log_dirs: tuple[Path, ...],
    *,
    keys: tuple[str, ...],
    keys_file: Path | None,
    as_hex: bool,
    as_base64: bool,
    expect_absent: bool,
) -> int:
    """What ``cleanerd audit`` does; its command line is in ``reading_verbs.py``."""
    log_dirs = common.log_dirs(log_dirs)
    wanted = find_keys_asked(keys, keys_file, as_hex=as_hex, as_base64=as_base64)
    if not wanted:
        raise click.UsageError("no key to look for: give --key or --keys-file")
    settings = common.load_settings()
    elsewhere = places_elsewhere(settings, log_dirs)
    names = select_in([partition], log_dirs, also=[place.name for place in elsewhere.places])
    elsewhere = elsewhere.of(names.names.__contains__)
    paths = {path / str(name): name for path in log_dirs for name in names.names.intersection(partition_names(path))}
    around = {path: read_surroundings(path, Findings()) for path in log_dirs}
    # What is kept or set aside of a partition belongs to its directory, or to the kept one where that is gone.
    owners = {name: path for path, name in sorted(paths.items(), reverse=True)}
    for place in elsewhere.places:
        common.output.note(f"{place.path}: has segments of {place.name} ({place.state}); it is searched too")
        owners.setdefault(place.name, place.path)
    searched = [*paths, *(place.path for place in elsewhere.places)]
    total = sum(file.stat().st_size for path in searched for file, _ in _files_in(path) if file.exists())
    audits: dict[Path, tuple[Audit, KeyRules]] = {}
    with common.output.progress("audit", total=total) as advance:
        for path, name in sorted(paths.items()):
            rules = key_rules(settings, name.topic)
            log_start = around[path.parent].of(LOG_START_CHECKPOINT, name) or 0
            audits[path] = search(path, wanted, advance, log_start=log_start, rules=rules), rules
        for place in elsewhere.places:
            rules = key_rules(settings, place.name.topic)
            found, _ = audits.setdefault(owners[place.name], (Audit(), rules))
            found.add(audit_place(place, wanted, advance, rules=rules))
    if common.output.as_json:
        told = [_document(path, wanted, found) for path, (found, _) in audits.items()]
        unsearched = [each.what for each in elsewhere.unsearched]
        # Who names one partition gets its fields, who names a topic a list. While it moves it lies in two places.
        is_one = partition in map(str, names.named) and len(told) == 1
        common.output.json({**(told[0] if is_one else {"partitions": told}), "unsearched": unsearched})
    else:
        for path, (found, rules) in audits.items():
            _tell(common.output, path, wanted, found, versions=rules.strategy != "offset")
    unread = [place for found, _ in audits.values() for place in found.unread]
    if warn_of_unsearched(common.output, unread, elsewhere):
        return CorruptionError.exit_code
    return FOUND if expect_absent and any(found.occurrences for found, _ in audits.values()) else 0


def places_elsewhere(settings: Settings, log_dirs: Sequence[Path]) -> RecordPlaces:
    """Where else records of these log directories may be (U-47)."""
    daemon = settings.daemon
    return record_places(daemon.cleanerd_state_dir, daemon.cleanerd_keep_replaced_dir, log_dirs)


def warn_of_unsearched(output: Output, unread: Iterable[str], elsewhere: RecordPlaces) -> bool:
    """Name what was not searched; whether there is any: then nothing is proven."""
    missing = [*unread, *(each.what for each in elsewhere.unsearched)]
    for what in missing:
        output.warning(f"{what}; a key may be in there")
    return bool(missing)


def _files_in(partition: Path) -> list[tuple[Path, str]]:
    try:
        return files_of(partition)
    except CleanerdError:
        return []  # the search names it


def keys_document(wanted: Sequence[bytes], occurrences: Iterable[Occurrence]) -> list[dict[str, object]]:
    """The ``keys`` of ``audit --json``, for whoever searched: each wanted key with the places where it is."""
    places: dict[bytes, list[dict[str, object]]] = {key: [] for key in wanted}
    for each in occurrences:
        places[each.key].append({
            "file": each.file,
            "state": each.state,
            "position": each.position,
            "record": each.record,
            "offset": each.offset,
            "timestamp": each.timestamp_ms,
            "value_bytes": each.value_bytes,
            "tombstone": each.is_tombstone,
            "version": each.version,
            "visible": each.visible,
        })  # fmt: skip
    return [{**bytes_fields("key", key), "occurrences": rows} for key, rows in places.items()]


def _document(path: Path, wanted: list[bytes], found: Audit) -> dict[str, object]:
    return {
        "path": str(path),
        "files": found.files,
        "bytes": found.size_bytes,
        "found": len(found.occurrences),
        "keys": keys_document(wanted, found.occurrences),
        "unread": found.unread,
    }


def _tell(output: Output, path: Path, wanted: list[bytes], found: Audit, *, versions: bool) -> None:
    if found.occurrences:
        output.table(
            [
                Column("key"),
                Column("file"),
                Column("byte", right=True),
                Column("record", right=True),
                Column("offset", right=True),
                Column("timestamp"),
                Column("value", right=True),
                *([Column("version", right=True)] if versions else []),
                Column("state"),
                Column("visible"),
            ],
            [_row(each, versions=versions) for each in found.occurrences],
        )
    present = {each.key for each in found.occurrences}
    searched = f"{human_count(found.files)} files, {human_bytes(found.size_bytes)}"
    for key in dict.fromkeys(wanted):
        if key not in present:
            output.line(f"{show_key(key)}: nowhere in {path} ({searched})")
    if present:
        output.line(f"{counted(len(found.occurrences), 'record')} with {counted(len(present), 'key')} in {searched}")


def _row(each: Occurrence, *, versions: bool) -> list[str]:
    # A tombstone may have a value, and a null may be none (R87-3, R87-6).
    size = "null" if each.value_bytes < 0 else human_bytes(each.value_bytes)
    value = size if not each.is_tombstone else "tombstone" if each.value_bytes < 0 else f"tombstone, {size}"
    return [
        show_key(each.key),
        each.file,
        str(each.position),
        str(each.record),
        str(each.offset),
        time_of(each.timestamp_ms),
        value,
        *([] if not versions else ["-" if each.version is None else str(each.version)]),
        each.state,
        "yes" if each.visible else "no",
    ]


def show_key(key: bytes) -> str:
    """A key for people: its text, else its bytes in hexadecimal digits."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
