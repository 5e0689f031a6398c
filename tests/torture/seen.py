"""What was seen of one round beside a broker, and what a swap that stopped half-way looks like on the disk."""

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
    """One round: the log before the plan that was asked for last, what was asked of the agent, the log's end."""

    old: State
    end: int
    plan: str = ""
    outputs: dict[int, dict[FileKind, bytes]] = field(default_factory=dict)
    groups: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)

    def note(self, request: dict[str, Any]) -> None:
        """A swap that is asked for, before the agent knows."""
        directory = Path(request["dir"])
        if request["plan"] != self.plan:  # a round that failed plans again, on what it has done
            self.plan, self.outputs, self.groups = request["plan"], {}, {}
            self.old = state_of(directory)
        for group in request["groups"]:
            folder = directory / ".kstage" / request["plan"]
            if all((folder / name).exists() for name in group["files"].values()):  # else a repeat: some have moved
                self.outputs[group["base"]] = {
                    kind: (folder / name).read_bytes() for kind, name in group["files"].items()
                }
                self.groups[group["base"]] = (group["end"], tuple(each["base"] for each in group["sources"]))

    def swap(self) -> LiveSwap:
        """What Kafka's loader may find: some first groups new, the others old."""
        active = max(int(name[:20]) for name in self.old.files if name.endswith(".log") and name[:20].isdigit())
        return LiveSwap(self.old, self.outputs, self.groups, (), self.end, active)

    def is_mixed(self, directory: Path) -> bool:
        """Whether a source has a file by its own name there, and the new log none yet."""
        names = {path.name for path in directory.iterdir()}
        return any(
            file_name(base, f".log{SWAP_SUFFIX}") in names
            and any(file_name(source, f".{kind}") in names for source in sources for kind in KINDS)
            for base, (_, sources) in self.groups.items()
        )


def state_of(directory: Path) -> State:
    """What lies there; of what the broker removes meanwhile nothing."""
    while True:
        with suppress(FileNotFoundError):
            return State.read(directory)
