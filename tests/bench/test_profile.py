"""``make profile``: samples are parsed from the output of ``perf script``, and assigned to phases."""

from __future__ import annotations

import pytest

from tests.bench.profiled import Passes
from tests.bench.samples import Sample, parse, phase_of

PRINTED = """\
  1234.500000:
\tffffffff81000010 _copy_to_iter ([kernel.kallsyms])
\tffffffff81000020 __x64_sys_preadv ([kernel.kallsyms])

  1235.250000:
\t    7f0000001000 cleanerd_kernel::offset_map::OffsetMap::put_max (/somewhere/_kernel.abi3.so)

"""


def test_samples_as_perf_prints_them() -> None:
    first, second = parse(PRINTED)
    assert first == Sample(1234.5, "_copy_to_iter", "[kernel.kallsyms]", ("__x64_sys_preadv",))
    assert (second.function, second.binary) == ("cleanerd_kernel::offset_map::OffsetMap::put_max", "_kernel.abi3.so")


@pytest.mark.parametrize(
    ("function", "binary", "chain", "phase"),
    [
        ("_copy_to_iter", "[kernel.kallsyms]", ("__x64_sys_preadv",), "read"),
        ("filemap_get_read_batch", "[kernel.kallsyms]", ("filemap_read", "vfs_readv"), "read"),
        ("gup_fast_fallback", "[kernel.kallsyms]", ("__iomap_dio_rw", "__x64_sys_preadv"), "read back"),
        ("gup_fast_fallback", "[kernel.kallsyms]", ("__iomap_dio_rw", "__x64_sys_write"), "write"),
        ("clear_page_erms", "[kernel.kallsyms]", ("asm_exc_page_fault",), "fresh pages"),
        ("cleanerd_kernel::file_crc::FileCrc::add", "_kernel.abi3.so", (), "CRC of the file"),
        ("crc_fast::crc32::crc32_iscsi", "_kernel.abi3.so", (), "CRC"),
        ("pulp::x86::v4::V4::vectorize::imp", "_kernel.abi3.so", (), "map"),
        ("pulp::x86::v4::V4::vectorize::imp_fastcall", "_kernel.abi3.so", (), "key hash"),
        ("_PyEval_EvalFrameDefault", "python3.11", (), "Python"),
        ("UINT_subtract_X86_V3", "_multiarray_umath.cpython-311-x86_64-linux-gnu.so", (), "NumPy"),
    ],
)
def test_phases(function: str, binary: str, chain: tuple[str, ...], phase: str) -> None:
    """Time in the system belongs to the call that caused it, whatever its own functions are called."""
    assert phase_of(Sample(0.0, function, binary, chain)) == phase


def test_only_measured_passes_count() -> None:
    """A start and the warm-up pass are not part of a record's cost."""
    passes = Passes(cpu_seconds=[2.0], spans=[(10.0, 20.0)], moved_bytes=0.0, phases=[])
    assert [passes.has(moment) for moment in (9.9, 10.0, 20.0, 20.1)] == [False, True, True, False]
    assert passes.cpu_ns_per_record(1_000_000_000) == [2.0]
