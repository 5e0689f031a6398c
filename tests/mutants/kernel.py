"""Mistakes in the kernel, judged by ``cargo test``."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

REWRITE = "kernel/src/rewrite.rs"
SURVIVORS = "kernel/src/survivors.rs"
BATCH_TABLE = "kernel/src/batch_table.rs"
SEGMENT_INDEX = "kernel/src/segment_index.rs"
RECORD_HEADERS = "kernel/src/record_headers.rs"
VERSIONED_MAP = "kernel/src/offset_map/versioned.rs"
LIKE_A_VERSIONED_HASH_MAP = ("kernel/tests/offset_map.rs::with_versions_like_a_hash_map",)

KERNEL = (
    Mutant(
        "a-batch-that-gets-no-horizon-is-written-differently",
        "U-95",
        REWRITE,
        "if kept == header.records() && self.least_max_timestamp() == header::NONE {",
        "if kept == 0 {",
        ("kernel/tests/rewrite.rs::a_batch_is_copied_where_no_horizon_fits",),
    ),
    Mutant(
        "a-wrapper-ends-below-an-offset-inside",
        "U-45",
        "kernel/src/rewrite_legacy.rs",
        "if relative && kept.last()",
        "if !wrapped && kept.last()",
        ("kernel/tests/rewrite.rs::a_wrapper_ends_with_its_highest_offset",),
    ),
    Mutant(
        "base-offset-from-the-first-retained-record",
        "C-52",
        SURVIVORS,
        "record_count: i32::try_from(self.count).unwrap_or(i32::MAX), // at most the source's count\n",
        "base_offset: self.source.base_offset + i64::from(self.source.record_count) - self.count as i64,\n"
        "            record_count: i32::try_from(self.count).unwrap_or(i32::MAX),\n",
        ("kernel/tests/rewrite.rs::the_base_offset_does_not_move",),
    ),
    Mutant(
        "horizon-moved-by-the-rewrite",
        "C-49",
        REWRITE,
        "header.delete_horizon().unwrap_or(horizon)",
        "if horizon == header::NONE { header.delete_horizon().unwrap_or(horizon) } else { horizon }",
        ("kernel/tests/rewrite.rs::a_horizon_is_set_once",),
    ),
    Mutant(
        "max-timestamp-of-removed-records",
        "C-52",
        SURVIVORS,
        "        (0, of_records.max(least))\n",
        "        (0, source.max_timestamp.max(least))\n",
        ("kernel/tests/rewrite.rs::the_max_timestamp_is_that_of_the_survivors",),
    ),
    Mutant(
        "v0-has-the-time-of-v1-inside",
        "F-3.2",
        "kernel/src/rewrite_legacy.rs",
        "            header.max_timestamp = header::NONE;\n",
        "            header.max_timestamp = header.max_timestamp.max(header::NONE);\n",
        ("kernel/tests/hostile.rs::exactly_the_kept_survive",),
    ),
    Mutant(
        "equal-record-offsets-count-as-rising",
        "U-45",
        "kernel/src/walk.rs",
        "        ordered &= record.offset_delta > previous &&",
        "        ordered &= record.offset_delta >= previous &&",
        ("kernel/tests/batch_table.rs::descending_offsets_are_reported",),
    ),
    Mutant(
        "the-crc-of-a-file-is-moved-too-little",
        "F-2",
        "kernel/src/file_crc.rs",
        "        power = multiply(power, power);\n",
        "        power = if k < 20 { multiply(power, power) } else { power };\n",
        ("kernel/tests/file_crc.rs::long_ways_are_made_of_short_ones",),
    ),
    Mutant(
        "row-lost-where-a-block-ends",
        "F-2",
        BATCH_TABLE,
        "        if self.in_block == BLOCK_ROWS {\n",
        "        if self.in_block + 1 == BLOCK_ROWS {\n            self.in_block -= 1;\n",
        ("kernel/tests/batch_table.rs::every_row_is_there_at_the_borders_of_blocks",),
    ),
    Mutant(
        "index-entry-at-batch-end",
        "F-6",
        SEGMENT_INDEX,
        "&(self.position as i32).to_be_bytes()",
        "&(self.position as i32 + size as i32).to_be_bytes()",
        ("kernel/tests/segment_index.rs::an_entry_names_where_its_batch_begins",),
    ),
    Mutant(
        "time-entry-of-the-latest-batch",
        "F-7",
        SEGMENT_INDEX,
        "if max_timestamp > self.max_timestamp {",
        "if max_timestamp >= self.max_timestamp {",
        ("kernel/tests/segment_index.rs::the_earliest_batch_with_the_largest_timestamp",),
    ),
    Mutant(
        "older-record-wins",
        "C-20",
        "kernel/src/offset_map.rs",
        "if *word & ORDINAL_MASK < stored {",
        "if *word & ORDINAL_MASK > stored {",
        ("kernel/tests/offset_map.rs::like_a_hash_map",),
    ),
    Mutant(
        "an-empty-slot-holds-a-key",
        "C-20",
        "kernel/src/offset_map/search.rs",
        "let same = self.bits(simd.and_m64x4(same_low, same_high)) & !none;",
        "let same = self.bits(simd.and_m64x4(same_low, same_high));",
        ("kernel/tests/offset_map.rs::an_empty_slot_holds_no_key_not_even_the_one_of_all_zeros",),
    ),
    Mutant(
        "lower-version-wins",
        "R280-5",
        VERSIONED_MAP,
        ".rank() < entry.rank()",
        ".rank() > entry.rank()",
        LIKE_A_VERSIONED_HASH_MAP,
    ),
    Mutant(
        "offset-before-version",
        "R280-5",
        VERSIONED_MAP,
        "version << ORDINAL_BITS | i128::from(self.ordinal)",
        "i128::from(self.ordinal) << 66 | version & 0xFFFF_FFFF_FFFF_FFFF",
        LIKE_A_VERSIONED_HASH_MAP,
    ),
    Mutant(
        "equal-versions-keep-the-first-put",
        "R280-5",
        VERSIONED_MAP,
        "version << ORDINAL_BITS | i128::from(self.ordinal)",
        "version",
        LIKE_A_VERSIONED_HASH_MAP,
    ),
    Mutant(
        "absent-is-the-lowest-version",
        "R280-6",
        VERSIONED_MAP,
        "i64::MIN as i128 - 1",
        "i64::MIN as i128",
        LIKE_A_VERSIONED_HASH_MAP,
    ),
    Mutant(
        "absent-is-version-zero",
        "R280-6",
        VERSIONED_MAP,
        "i64::MIN as i128 - 1",
        "0",
        LIKE_A_VERSIONED_HASH_MAP,
    ),
    Mutant(
        "first-header-counts",
        "R280-5",
        RECORD_HEADERS,
        "version = Some(value);",
        "version = version.or(Some(value));",
        ("kernel/tests/record_headers.rs::the_last_header_of_the_name",),
    ),
    Mutant(
        "bytes-behind-a-varlong",
        "R280-6",
        RECORD_HEADERS,
        "read_varlong(&mut value).filter(|_| value.is_empty())",
        "read_varlong(&mut value)",
        ("kernel/tests/record_headers.rs::a_varlong_uses_exactly_its_bytes",),
    ),
    Mutant(
        "null-header-marks-a-tombstone",
        "R87-4",
        RECORD_HEADERS,
        'None | Some(b"" | b"0" | b"false")',
        'Some(b"" | b"0" | b"false")',
        ("kernel/tests/record_headers.rs::which_header_values_mark_a_tombstone",),
    ),
    Mutant(
        "record-attributes-zeroed",
        "U-14",
        SURVIVORS,
        "output.push(record.attributes);",
        "output.push(0);",
        ("kernel/tests/rewrite.rs::record_attributes_stay",),
    ),
    Mutant(
        "lz4-blocks-smaller-than-the-source",
        "U-53",
        "kernel/src/codec/lz4_frame.rs",
        "(block >> 4 & 7).max(SIZE_ID)",
        "(block >> 4 & 7).min(SIZE_ID)",
        ("kernel/tests/rewrite.rs::lz4_blocks_are_as_large_as_the_source",),
    ),
    Mutant(
        "bytes-behind-a-gzip-member-are-damage",
        "U-52",
        "kernel/src/codec/gzip.rs",
        "next = skip_header(self.member(member, output)?);",
        "let rest = self.member(member, output)?;\n"
        "            next = if rest.is_empty() { None } else { Some(skip_header(rest).ok_or_else(damaged)?) };",
        ("kernel/tests/rewrite.rs::bytes_after_a_compressed_payload_are_ignored",),
    ),
)
