//! Bytes, keys and bits of Kafka logs. No policy, no path, no clock, no configuration: `cleanerd/_kernel.pyi` is the contract,
//! and the Python module in `python/` adds nothing to what is here.

#![forbid(unsafe_code)]

pub mod batch_table;
pub mod bits;
pub mod codec;
pub mod content;
pub mod control;
pub mod decode;
pub mod error;
pub mod file_crc;
pub mod header;
mod key_hash;
pub mod key_rows;
pub mod legacy;
pub mod offset_map;
pub mod record;
pub mod record_headers;
pub mod rewrite;
mod rewrite_legacy;
pub mod segment_index;
mod survivors;
pub mod varint;
mod walk;

pub use error::{Corrupt, Error, guard};

/// Crate versions that the output of this kernel depends on.
pub const CODEC_CRATES: [(&str, &str); 8] = [
    ("crc-fast", "1.10.0"),
    ("crc32c", "0.6.9"),
    ("flate2", "1.1.10"),
    ("lz4_flex", "0.14.0"),
    ("pulp", "0.22.3"),
    ("siphasher", "1.0.4"),
    ("snap", "1.1.2"),
    ("zstd", "0.14.3"),
];

/// CRC-32C; `seed` is the value of the bytes before.
///
/// Two crates: what is in the CPU's cache one of them does four times as fast, but it has no cheap way to go on from a value.
pub fn crc32c(data: &[u8], seed: u32) -> u32 {
    if seed == 0 { crc_fast::crc32_iscsi(data) } else { ::crc32c::crc32c_append(seed, data) }
}

/// CRC-32, which messages of magic 0 and 1 have.
pub(crate) fn crc32(data: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(data);
    crc.sum()
}

/// Tells glibc to keep freed memory of this size in the heap instead of giving it back to the system.
///
/// Columns and output of every chunk are allocated and freed again; fresh pages for each of them cost a third of a decode. glibc
/// raises its thresholds when a block this large is freed, and it is never touched, so this is only a hint. Call it once.
pub fn keep_freed_memory() {
    const KEPT_BYTES: usize = 16 << 20;
    drop(std::hint::black_box(Vec::<u8>::with_capacity(KEPT_BYTES)));
}
