"""All kinds of findings of ``verify``: the name, and the violated rule (docs/rules.md)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

NOT_JUDGED: Final[Mapping[str, str]] = {
    ".log attributes of a record": "Kafka's cleaner sets them to 0; a tombstone flag is judged in its mode (U-14)",
    ".log timestamp type of a v1 message": "the time itself is compared",
    ".txnindex version_low": "padding, in no release's code",
    ".txnindex last_stable_offset": "it depends on when the marker was written; readers use it to stop a search",
    ".snapshot producer_epoch": "the marker that raised it above the log's may be gone; one below is reported",
    ".snapshot timestamp": "it is the time of a batch that a cleaning may have emptied",
    ".snapshot coordinator_epoch": "it is in the value of a marker that a cleaning may have removed",
    "leader-epoch-checkpoint start_offset": "in a gap between two batches, as the log does not say; in a batch it is",
    "partition.metadata topic_id": "only the cluster knows it",
    "meta.properties cluster.id": "only the cluster knows it",
    "meta.properties node.id": "only the cluster knows it",
    "meta.properties directory.id": "only the cluster knows it",
    "cleaner-offset-checkpoint partition": "the broker ignores a line of one that is not there, in each checkpoint",
}
"""Files and fields that are not compared, and why (U-56). ``docs/verify.md`` lists the same."""


class FindingKind(enum.Enum):
    """``(name, rule)``. Tables show the name; only ``--json`` has the rule's id."""

    # Batches and records of a segment
    SEGMENT_TOO_LARGE = ("segment-too-large", "F-1")
    BATCH_UNREADABLE = ("batch-unreadable", "F-1")
    BATCH_DAMAGED = ("batch-damaged", "F-2")
    RECORD_DAMAGED = ("record-damaged", "F-2.3")
    MAX_TIMESTAMP_WRONG = ("max-timestamp-wrong", "F-2")
    TIMESTAMP_NEGATIVE = ("timestamp-negative", "F-2")
    MESSAGE_DAMAGED = ("message-damaged", "F-3")
    OFFSET_OUT_OF_ORDER = ("offset-out-of-order", "F-5")
    OFFSET_OUTSIDE_SEGMENT = ("offset-outside-segment", "F-5")
    OFFSET_TOO_FAR = ("offset-too-far-from-base", "F-6")

    # Files beside the segments
    NO_SEGMENT = ("no-segment", "F-5")
    INDEX_MISSING = ("index-missing", "S-58")
    OFFSET_INDEX_WRONG = ("offset-index-wrong", "F-6")
    TIME_INDEX_WRONG = ("time-index-wrong", "F-7")
    TIME_INDEX_UNFINISHED = ("time-index-last-entry-missing", "H-25")
    TRANSACTION_INDEX_WRONG = ("transaction-index-wrong", "F-8")
    ABORTED_TRANSACTION_MISSING = ("aborted-transaction-missing", "C-69")
    LEADER_EPOCHS_WRONG = ("leader-epochs-wrong", "F-9")
    PRODUCER_SNAPSHOT_WRONG = ("producer-snapshot-wrong", "F-10")
    PARTITION_METADATA_DAMAGED = ("partition-metadata-damaged", "F-5")
    META_PROPERTIES_DAMAGED = ("meta-properties-damaged", "F-11")
    CHECKPOINT_DAMAGED = ("checkpoint-damaged", "F-11")
    CHECKPOINT_OUTSIDE_LOG = ("checkpoint-outside-log", "F-11")
    CHECKPOINT_BELOW_LOG_START = ("checkpoint-below-log-start", "C-02")
    UNFINISHED_SWAP = ("unfinished-swap", "S-21")
    DELETED_FILE_LEFT = ("deleted-file-left", "F-12")
    STAGED_FILES_LEFT = ("staged-files-left", "S-22")
    INDEX_WITHOUT_SEGMENT = ("index-without-segment", "F-6")

    # Forbidden results of a cleaning
    KEY_TWICE = ("key-twice", "C-45")
    RECORD_WITHOUT_KEY = ("record-without-key", "C-45.2")
    LAST_RECORD_OF_KEY_MISSING = ("last-record-of-key-missing", "R280-9")
    OLD_RECORD_BACK = ("old-record-back", "R534-6")
    TOMBSTONE_TOO_EARLY = ("tombstone-gone-too-early", "U-1")
    NOT_IN_COPY = ("not-in-copy", "S-08")
    RECORD_CHANGED = ("record-changed", "S-08")
    BATCHES_MERGED = ("batches-merged", "S-08")
    BATCH_HEADER_CHANGED = ("batch-header-changed", "C-52")
    DELETE_HORIZON_CHANGED = ("delete-horizon-changed", "R534-2")
    DIRTY_RECORD_MISSING = ("dirty-record-missing", "C-45.1")
    LOG_END_MISSING = ("log-end-missing", "R280-9")
    LAST_BATCH_MISSING = ("last-batch-missing", "U-13")
    PRODUCER_BATCH_MISSING = ("producer-batch-missing", "R192-1")

    # Data that could not be read
    NOT_VERIFIED = ("not-verified", "OP-10")
    NOT_COMPARED = ("not-compared", "U-28")

    @property
    def text(self) -> str:
        """The name, as in tables and ``--json``."""
        return self.value[0]

    @property
    def rule(self) -> str:
        """The id of the rule in docs/rules.md."""
        return self.value[1]
