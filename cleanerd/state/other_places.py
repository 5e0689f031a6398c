"""Facts about a log from the state of other partitions, places and copies (U-6, U-46)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.fsio.safe_open import MAX_FACTS_BYTES
from cleanerd.fsio.state_files import DAMAGE, UnreadableState, read_state_file
from cleanerd.state.cleaner_checkpoint import STATE, CleanerdCheckpoint, PartitionState, StateStore, topic_part
from cleanerd.state.first_dirty_offset import may_descend_from
from cleanerd.state.last_settings import first
from cleanerd.state.places import PARTITIONS

if TYPE_CHECKING:
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.segments.partition import PartitionLog


def rules_of(
    store: StateStore, log_dir: LogDir, log: PartitionLog, state: PartitionState | None
) -> str | UnreadableState | None:
    """The fingerprint of the rules that the topic was last cleaned by; None: no cleaning is known.

    ``state`` is the partition's own state. Without it, the state of another partition of the topic is used, if
    necessary in another log directory: a topic has the same rules everywhere. From a place with the same directory id
    only the state of the log that this may be a copy of is used (U-46). Unreadable state is ``UnreadableState``.
    """
    if state is not None and state.cleaned_by is not None:
        return state.cleaned_by
    rules, topic = store.rules, topic_part(log.name.topic, log.topic_id)
    stem = f"{topic}-{log.name.partition}"
    place = store.directory_name(log_dir)
    own = rules.of_partition(place, stem)
    if own is None:
        own = rules.of_topic(place, topic)
    elif not isinstance(own, str):
        return own
    if isinstance(own, str) or rules.is_empty():
        return own
    beside, same = store.places.other_places(log_dir.place)
    answers: list[str | UnreadableState | None] = [own]
    if log.topic_id is not None:  # without ids, the name may belong to another topic there
        answers += [rules.of_topic(each, topic) for each in beside]
    for name, known in same.items():
        if may_descend_from(_point_in(store, name, stem), log, known.since_ns):
            answers.append(rules.of_partition(name, stem) or rules.of_topic(name, topic))
    return first(answers)


def copied_point(store: StateStore, log_dir: LogDir, log: PartitionLog) -> CleanerdCheckpoint | None:
    """The checkpoint of the log from which ``log`` may have been copied, or None. ``log`` has no state of its own."""
    stem = store.path(log_dir, log).stem
    for name, known in store.places.other_places(log_dir.place)[1].items():
        point = _point_in(store, name, stem)
        if point is not None and may_descend_from(point, log, known.since_ns):
            return point
    return None


def _point_in(store: StateStore, place: str, stem: str) -> CleanerdCheckpoint | None:
    path = store.root / PARTITIONS / place / f"{stem}.json"
    try:
        return STATE.parse(read_state_file(path, store.root, max_bytes=MAX_FACTS_BYTES)).cleanerd_checkpoint
    except (OSError, *DAMAGE):
        return None
