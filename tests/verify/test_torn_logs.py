"""``cleanerd verify`` on the state after a crash, and after a damaged batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.verify.finding import Severity
from tests.support.log_dirs import RECOVERY_POINTS, write_checkpoint
from tests.verify import cleaned_partition as s
from tests.verify.cleaned_partition import findings

if TYPE_CHECKING:
    from tests.verify.cleaned_partition import Scene


def test_cut_tail_of_a_crash(scene: Scene) -> None:
    """A broker that was not stopped cleanly leaves half a batch, and a preallocated segment has zeros: no errors."""
    whole = scene.file(14).read_bytes()
    (scene.log_dir / ".kafka_cleanshutdown").unlink()
    for tail in (s.END[:-1].replace(struct_offset(16), struct_offset(18)), bytes(5000)):
        scene.file(14).write_bytes(whole + tail)
        (found,) = findings(scene, None)
        assert (found.severity, found.position) == (Severity.WARNING, len(whole))
    scene.file(13).write_bytes(scene.file(13).read_bytes() + bytes(100))
    assert any(each.severity is Severity.ERROR for each in findings(scene, None)), "not in a sealed segment"


def test_torn_log(scene: Scene) -> None:
    """U-32: data that the broker truncates, and indexes that it rebuilds, are not errors; data below is."""
    (scene.log_dir / ".kafka_cleanshutdown").unlink()
    scene.file(7, ".txnindex").write_bytes(s.txn_index((9, 7, 8, 9), (9, 9, 11, 12)))
    for recovery_point, expected in ((16, Severity.ERROR), (10, Severity.WARNING), (0, Severity.WARNING)):
        write_checkpoint(scene.log_dir / RECOVERY_POINTS, {s.NAME: recovery_point})
        found = [each for each in findings(scene, None) if each.rule == "F-8"]
        assert [each.severity for each in found] == [expected], recovery_point
    scene.file(13).write_bytes(scene.file(13).read_bytes() + bytes(100))
    for recovery_point, expected in ((16, Severity.ERROR), (13, Severity.WARNING)):
        write_checkpoint(scene.log_dir / RECOVERY_POINTS, {s.NAME: recovery_point})
        assert {each.severity for each in findings(scene, None) if each.rule == "F-1"} == {expected}, recovery_point


def struct_offset(offset: int) -> bytes:
    return offset.to_bytes(8, "big")


def test_verify_continues_after_damage(scene: Scene) -> None:
    """One bad batch hides no finding after it: in its segment, and in the others."""
    flipped = bytearray(s.SECOND_CLEANED)
    flipped[-1] ^= 1
    scene.put(0, bytes(flipped) + s.LAST_OF_7)
    found = {(each.rule, each.offset) for each in findings(scene, None)}
    assert ("F-2", 3) in found
    assert ("C-45", 5) in found
