"""``cleanerd bench``: measures the kernel's stages and whole cleanings on this machine."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleanerd.cli.options import Common, common_options
from cleanerd.cli.output import Column
from cleanerd.config.units import parse_size
from cleanerd.humanize import human_bytes, human_count, human_ms
from cleanerd_lab.bench.generate import SHAPES, LogShape, MadeLog, make_log
from cleanerd_lab.bench.stages import Stages, measure_stages
from cleanerd_lab.bench.whole import WholeClean, clean_copies, start_cost
from cleanerd_lab.bench.yardstick import copy_seconds, floor_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.cli.output import Output
    from cleanerd_lab.bench.process import Cost

SEGMENTS = 4
"""The number of segments of a log."""


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """One log and its measurements. ``floor_seconds`` and ``copy_seconds`` are the yardsticks."""

    log: MadeLog
    stages: Stages
    whole: WholeClean
    floor_seconds: float
    copy_seconds: float


def _size(_context: click.Context, _option: click.Parameter, value: str) -> int:
    try:
        return parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("bench")
@common_options
@click.option(
    "--size",
    default="256MiB",
    show_default=True,
    callback=_size,
    metavar="SIZE",
    help="Bytes of each log, uncompressed.",
)
@click.option(
    "--log",
    "names",
    multiple=True,
    type=click.Choice([shape.name for shape in SHAPES]),
    help="Only this log. Repeatable. Default: all.",
)
@click.option(
    "--repeat",
    default=3,
    show_default=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of passes; the fastest one is reported.",
)
@click.option(
    "--dir",
    "parent",
    metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Directory for the generated logs. Default: the system's temporary directory.",
)
def bench(common: Common, *, size: int, names: tuple[str, ...], repeat: int, parent: Path | None) -> int:
    """Measure this machine: steps of a cleaning, and whole cleanings compared with copying the same bytes.

    It generates logs and removes them again. It needs free space of about four times --size. A small --size and a busy
    machine give higher figures.
    """
    common.load_settings()  # not used, but a wrong --set is an error in every command
    shapes = [shape for shape in SHAPES if not names or shape.name in names]
    with tempfile.TemporaryDirectory(prefix="cleanerd-bench-", dir=parent) as work:
        start = start_cost(Path(work))
        measured = []
        with common.output.progress("measuring", len(shapes)) as advance:
            for shape in shapes:
                measured.append(measure(shape, Path(work) / shape.name, unpacked_bytes=size, repeat=repeat))
                advance(1)
    if common.output.as_json:
        common.output.json(_document(start, measured))
    else:
        _print_report(common.output, start, measured)
    return 0


def measure(shape: LogShape, work_dir: Path, *, unpacked_bytes: int, repeat: int) -> Measured:
    """Make a log of this shape in ``work_dir`` and measure with it.

    Raises:
        CleanerdError: it could not be cleaned.
        OSError: no space, or ``work_dir`` exists.
    """
    log = make_log(
        work_dir / "log", shape, unpacked_bytes=unpacked_bytes, segment_bytes=max(unpacked_bytes // SEGMENTS, 65_536)
    )
    whole = clean_copies(log, work_dir, repeat=repeat)
    return Measured(
        log=log,
        stages=measure_stages(log, repeat=repeat),
        whole=whole,
        floor_seconds=floor_seconds(log.partition_dir, repeat=repeat),
        copy_seconds=copy_seconds(
            [log.partition_dir, work_dir / "cleaned" / log.partition_dir.name], work_dir, repeat=repeat
        ),
    )


def _print_report(output: Output, start: Cost, measured: Sequence[Measured]) -> None:
    output.line("Logs")
    output.table(
        (Column("log"), Column("made of"), Column("records", right=True), Column("bytes", right=True)),
        [
            [each.log.shape.name, each.log.shape.label, human_count(each.log.records), human_bytes(each.log.log_bytes)]
            for each in measured
        ],
    )
    output.line()
    output.line("Steps of a cleaning in compiled code: CPU nanoseconds per record, data in memory")
    names = [field.name for field in dataclasses.fields(Stages)]
    output.table(
        (Column("log"), *(Column(name, right=True) for name in names)),
        [[each.log.shape.name, *(f"{getattr(each.stages, name):.1f}" for name in names)] for each in measured],
    )
    output.line("put, contains: the offset map. rewrite: new batches without the superseded records.")
    output.line()
    output.line("Whole cleanings, each in its own process, with fsync and verification")
    titles = ("CPU ns per record", "CPU / floor", "wall", "cp", "wall / cp", "MiB/s of input")
    output.table(
        (Column("log"), *(Column(title, right=True) for title in titles)),
        [_total_row(each, start) for each in measured],
    )
    output.line()
    output.line(f"CPU excludes the start of the process ({human_ms(1000 * start.cpu_seconds)}), wall includes it.")
    output.line("floor: CPU time to read the log twice and verify its checksums. cp: time to copy input and output.")


def _total_row(each: Measured, start: Cost) -> list[str]:
    cpu_seconds = each.whole.cost.cpu_seconds - start.cpu_seconds
    wall_seconds = each.whole.cost.wall_seconds
    return [
        each.log.shape.name,
        f"{each.whole.cpu_ns_per_record(start):.0f}",
        f"{cpu_seconds / each.floor_seconds:.1f}",
        human_ms(1000 * wall_seconds),
        human_ms(1000 * each.copy_seconds),
        f"{wall_seconds / each.copy_seconds:.1f}",
        f"{each.log.log_bytes / wall_seconds / 2**20:.0f}",
    ]


def _document(start: Cost, measured: Sequence[Measured]) -> dict[str, object]:
    return {
        "start_cpu_seconds": start.cpu_seconds,
        "logs": [
            {
                "name": each.log.shape.name,
                "records": each.log.records,
                "bytes": each.log.log_bytes,
                "bytes_after": each.whole.bytes_after,
                "stages_ns_per_record": dataclasses.asdict(each.stages),
                "clean_cpu_ns_per_record": each.whole.cpu_ns_per_record(start),
                "clean_cpu_seconds": each.whole.all_cpu_seconds,
                "clean_wall_seconds": each.whole.cost.wall_seconds,
                "floor_cpu_seconds": each.floor_seconds,
                "copy_wall_seconds": each.copy_seconds,
            }
            for each in measured
        ],
    }
