"""``cleanerd audit``: which files still have the keys, or bytes in values, of an erasure request. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from cleanerd.cli.key_options import find_terms
from cleanerd.cli.output import Column, Output
from cleanerd.cli.scope import key_rules, select_in
from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.humanize import counted, human_bytes, human_count
from cleanerd.inspection.report import bytes_fields, time_of
from cleanerd.segments.log_dir import LOG_START_CHECKPOINT, partition_names
from cleanerd.verify.audit import LIVE, KeySearchResult, Occurrence, Term, audit_place, files_of
from cleanerd.verify.audit import audit as search
from cleanerd.verify.finding import Findings
from cleanerd.verify.log_dir import read_surroundings
from cleanerd.verify.record_places import RecordPlaces, record_places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from cleanerd.cli.options import Common
    from cleanerd.config.load import Settings
    from cleanerd.format.names import TopicPartition
    from cleanerd.resolution.selection import PartitionSelection
    from cleanerd.verify.rules import KeyRules

FOUND: Final = 1
"""Exit code of ``--expect-absent`` when a record matches."""

NEVER_SEARCHED: Final = ("other hosts", "tiered storage", "backups", "archives and tables that you made")
"""Copies that no search of a host finds. A proof of absence names them (U-47)."""


def audit(
    common: Common,
    partition: str,
    log_dirs: tuple[Path, ...],
    *,
    expect_absent: bool,
    **search_terms: Any,
) -> int:
    """Run ``cleanerd audit``; its options are in ``reading_commands.py``."""
    log_dirs = common.log_dirs(log_dirs)
    terms = find_terms(**search_terms)
    if not terms:
        raise click.UsageError("no key to find: give --key, --keys-file, --key-prefix or --value-contains")
    host = search_host(common, common.load_settings(), partition, log_dirs, terms)
    audits, elsewhere = host.by_owner(), host.elsewhere
    if common.output.as_json:
        documents = [_document(path, terms, found) for path, (found, _) in audits.items()]
        unsearched = [each.what for each in elsewhere.unsearched]
        # A partition's name gives its fields; a topic's name or a pattern gives a list. During a move a partition is in
        # two places.
        is_one = partition in map(str, host.names.named) and len(documents) == 1
        fields = documents[0] if is_one else {"partitions": documents}
        common.output.json({**fields, "unsearched": unsearched, "never_searched": NEVER_SEARCHED})
    whole = KeySearchResult()
    for found, _ in audits.values():
        whole.add(found)
    if not common.output.as_json:
        where = next(iter(audits)) if len(audits) == 1 else counted(len(audits), "partition")
        searched = f"{human_count(whole.files)} files, {human_bytes(whole.size_bytes)}"
        versions = any(rules.strategy != "offset" for _, rules in audits.values())
        show_found(common.output, terms, whole.occurrences, searched, where=f" in {where}", versions=versions)
        if len({number for each in whole.occurrences for number in each.terms}) < len(terms):
            common.output.line(f"not searched: {', '.join(NEVER_SEARCHED)}")
    if warn_of_unsearched(common.output, whole.unread, elsewhere):
        return CorruptionError.exit_code
    return FOUND if expect_absent and whole.occurrences else 0


@dataclass(frozen=True, slots=True)
class SearchedPlace:
    """A directory with records of partition ``name``, and its search result. ``state``: live, or why it exists."""

    path: Path
    name: TopicPartition
    state: str
    rules: KeyRules
    found: KeySearchResult


@dataclass(frozen=True, slots=True)
class HostSearch:
    """A search of every place of some partitions on this host (U-47). ``names``: those partitions."""

    places: tuple[SearchedPlace, ...]
    elsewhere: RecordPlaces
    names: PartitionSelection

    def by_owner(self) -> dict[Path, tuple[KeySearchResult, KeyRules]]:
        """The results by directory.

        Backups and directories moved aside belong to the partition's directory, if it exists.
        """
        live = {each.name: each.path for each in reversed(self.places) if each.state == LIVE}
        owners: dict[Path, tuple[KeySearchResult, KeyRules]] = {}
        for each in self.places:
            owner = each.path if each.state == LIVE else live.setdefault(each.name, each.path)
            owners.setdefault(owner, (KeySearchResult(), each.rules))[0].add(each.found)
        return owners


def search_host(
    common: Common,
    settings: Settings,
    word: str,
    log_dirs: Sequence[Path],
    terms: Sequence[Term],
    before: Callable[[Path], None] = lambda _place: None,
) -> HostSearch:
    """Search ``terms`` in all places of the partitions that ``word`` selects; calls ``before`` for each place first.

    Raises:
        ConfigError: there is no such partition.
    """
    elsewhere = other_record_places(settings, log_dirs)
    also = [each.name for each in elsewhere.places]
    also += [each.name for each in elsewhere.unsearched if each.name is not None]
    names = select_in([word], log_dirs, also=also)
    elsewhere = elsewhere.of(names.names)
    paths = {path / str(name): name for path in log_dirs for name in names.names.intersection(partition_names(path))}
    around = {path: read_surroundings(path, Findings()) for path in log_dirs}
    for place in elsewhere.places:
        common.output.note(f"{place.path}: has segments of {place.name} ({place.state}); it is searched too")
    places = [*paths, *(place.path for place in elsewhere.places)]
    total = sum(file.stat().st_size for path in places for file, _ in _files_in(path) if file.exists())
    searched = []
    with common.output.progress("audit", total=total) as advance:
        for path, name in sorted(paths.items()):
            before(path)
            rules = key_rules(settings, name.topic)
            log_start = around[path.parent].of(LOG_START_CHECKPOINT, name) or 0
            searched.append(SearchedPlace(path, name, LIVE, rules, _search(path, terms, advance, log_start, rules)))
        for place in elsewhere.places:
            before(place.path)
            rules = key_rules(settings, place.name.topic)
            found = audit_place(place, terms, advance, rules=rules)
            searched.append(SearchedPlace(place.path, place.name, place.state, rules, found))
    return HostSearch(tuple(searched), elsewhere, names)


def _search(
    path: Path, terms: Sequence[Term], advance: Callable[[int], None], start: int, rules: KeyRules
) -> KeySearchResult:
    try:
        return search(path, terms, advance, log_start=start, rules=rules)
    except CleanerdError as error:
        return KeySearchResult(unread=[str(error)])  # the broker has deleted or moved it, or it cannot be listed


def other_record_places(settings: Settings, log_dirs: Sequence[Path]) -> RecordPlaces:
    """Further places that may have records of these log directories (U-47)."""
    daemon = settings.daemon
    return record_places(daemon.cleanerd_state_dir, daemon.cleanerd_keep_replaced_dir, log_dirs)


def warn_of_unsearched(output: Output, unread: Iterable[str], elsewhere: RecordPlaces) -> bool:
    """Warn of places that were not searched; returns whether there are any: then nothing is proven."""
    missing = [*unread, *(each.what for each in elsewhere.unsearched)]
    for what in missing:
        output.warning(f"{what}; a key may be in there")
    return bool(missing)


def _files_in(partition: Path) -> list[tuple[Path, str]]:
    try:
        return files_of(partition)
    except CleanerdError:
        return []  # the search reports it


def terms_document(terms: Sequence[Term], occurrences: Sequence[Occurrence]) -> dict[str, list[dict[str, object]]]:
    """For ``audit --json`` and ``spark audit --json``: each term with the records that match it."""
    document: dict[str, list[dict[str, object]]] = {"keys": [], "key_prefixes": [], "value_contains": []}
    for number, term in enumerate(terms):
        is_key = term.kind == "key"
        rows = [_occurrence(each, with_key=not is_key) for each in occurrences if number in each.terms]
        places = document[term.kind if term.kind == "value_contains" else "keys" if is_key else "key_prefixes"]
        places.append({**bytes_fields(term.kind, term.data), "occurrences": rows})
    return document


def _occurrence(each: Occurrence, *, with_key: bool) -> dict[str, object]:
    return {
        **(bytes_fields("key", each.key) if with_key else {}),
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
    }


def _document(path: Path, terms: Sequence[Term], found: KeySearchResult) -> dict[str, object]:
    return {
        "path": str(path),
        "files": found.files,
        "bytes": found.size_bytes,
        "found": len(found.occurrences),
        **terms_document(terms, found.occurrences),
        "unread": found.unread,
    }


def show_found(
    output: Output,
    terms: Sequence[Term],
    occurrences: Sequence[Occurrence],
    searched: str,
    *,
    where: str = "",
    count: int | None = None,
    versions: bool = False,
) -> None:
    """A table of ``occurrences``, a line per term without matches, and the ``count`` of matches if it is higher."""
    if occurrences:
        several = any(term.kind != "key" for term in terms)
        columns = [
            Column("key"),
            *([Column("matches")] if several else []),
            Column("file"),
            Column("byte", right=True, spare=2),
            Column("record", right=True, spare=3),
            Column("offset", right=True),
            Column("timestamp"),
            Column("value", right=True, spare=1),
            *([Column("version", right=True)] if versions else []),
            Column("state"),
            Column("visible"),
        ]
        output.table(columns, [_row(each, terms if several else (), versions=versions) for each in occurrences])
    present = {number for each in occurrences for number in each.terms}
    for number, term in enumerate(terms):
        if number not in present:
            output.line(f"{_show_term(term)}: nowhere{where} ({searched})")
    if occurrences:
        keys = len({each.key for each in occurrences})
        output.line(f"{counted(count or len(occurrences), 'record')} with {counted(keys, 'key')} in {searched}")


def _row(each: Occurrence, terms: Sequence[Term], *, versions: bool) -> list[str]:
    # A tombstone may have a value, and a null value may be a normal record (R87-3, R87-6).
    size = "null" if each.value_bytes < 0 else human_bytes(each.value_bytes)
    value = size if not each.is_tombstone else "tombstone" if each.value_bytes < 0 else f"tombstone, {size}"
    return [
        "-" if each.key is None else show_key(each.key),
        *([", ".join(_show_term(terms[number]) for number in each.terms)] if terms else []),
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


def _show_term(term: Term) -> str:
    name = {"key": "", "key_prefix": "key prefix ", "value_contains": "value with "}[term.kind]
    return name + show_key(term.data)


def show_key(key: bytes) -> str:
    """A key to show: its text, else its bytes in hexadecimal digits."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
