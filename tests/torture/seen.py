"""The observed steps of one cleaning beside a broker, and the look of a half-finished swap on the disk."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleanerd.cleaner.manifest import KINDS
from cleanerd.format.names import SWAP_SUFFIX, file_name
from tests.crash.live_swap import LiveSwap
from tests.crash.volume import State

if TYPE_CHECKING:
    from cleanerd.cleaner.manifest import FileKind


@dataclass
class Seen:
    """One cleaning: the log before the last requested plan, the requests to the agent, the end of the log."""

    old: State
    end: int
    plan: str = ""
    outputs: dict[int, dict[FileKind, bytes]] = field(default_factory=dict)
    groups: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)

    def note(self, request: dict[str, Any]) -> None:
        """Note a requested swap before the agent gets it."""
        directory = Path(request["dir"])
        if request["plan"] != self.plan:  # a failed cleaning plans again, from its own results
            self.plan, self.outputs, self.groups = request["plan"], {}, {}
            self.old = state_of(directory)
        for group in request["groups"]:
            folder = directory / ".kstage" / request["plan"]
            if all(
                (folder / name).exists() for name in group["files"].values()
            ):  # otherwise a retry: some files have moved
                self.outputs[group["base"]] = {
                    kind: (folder / name).read_bytes() for kind, name in group["files"].items()
                }
                self.groups[group["base"]] = (group["end"], tuple(each["base"] for each in group["sources"]))

    def swap(self) -> LiveSwap:
        """The states that Kafka's loader may find: some first groups new, the others old."""
        active = max(int(name[:20]) for name in self.old.files if name.endswith(".log") and name[:20].isdigit())
        return LiveSwap(self.old, self.outputs, self.groups, (), self.end, active)

    def is_mixed(self, directory: Path) -> bool:
        """Whether a source still has its own name, and the new log has no final name yet."""
        names = {path.name for path in directory.iterdir()}
        return any(
            file_name(base, f".log{SWAP_SUFFIX}") in names
            and any(file_name(source, f".{kind}") in names for source in sources for kind in KINDS)
            for base, (_, sources) in self.groups.items()
        )


def state_of(directory: Path) -> State:
    """The present files, without those that the broker removes meanwhile."""
    while True:
        with suppress(FileNotFoundError):
            return State.read(directory)
