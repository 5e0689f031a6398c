"""One note about all of Kafka's settings that have no effect on cleanerd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cleanerd.config.kafka_names import INSTEAD

if TYPE_CHECKING:
    from cleanerd.config.load import Settings

_MOST_NAMES: Final = 5


def unused_note(settings: Settings) -> str | None:
    """The note, or None without such settings. It names cleanerd's key for the same purpose if there is one."""
    names = list(dict.fromkeys(each.key for each in settings.unused))
    if not names:
        return None
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    origins = ", ".join(dict.fromkeys(each.origin for each in settings.unused))
    instead = "".join(f"; for {name} there is {INSTEAD[name]} here" for name in names if name in INSTEAD)
    listed = ", ".join(names[:_MOST_NAMES])
    return f"settings of Kafka that mean nothing to cleanerd are ignored: {listed}{more} ({origins}){instead}"
