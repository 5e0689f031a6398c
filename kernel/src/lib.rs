//! Bytes, keys and bits of Kafka logs, without policy, paths, clock or configuration. `cleanerd/_kernel.pyi` is the contract. The
//! Python module in `python/` only converts arguments and results.

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
/// `crc_fast` is four times as fast for bytes in the CPU's cache, but cannot cheaply continue from a seed. So `crc32c` does that.
pub fn crc32c(data: &[u8], seed: u32) -> u32 {
    if seed == 0 { crc_fast::crc32_iscsi(data) } else { ::crc32c::crc32c_append(seed, data) }
}

/// CRC-32, the checksum of messages of magic 0 and 1.
pub(crate) fn crc32(data: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(data);
    crc.sum()
}

/// Makes glibc keep freed memory of this size in the heap instead of returning it to the system. Call it once.
///
/// Columns and output of every chunk are allocated and freed again; new pages for them would cost a third of a decode. glibc
/// raises its thresholds when a block this large is freed. The block is never used, so this is only a hint.
pub fn keep_freed_memory() {
    const KEPT_BYTES: usize = 16 << 20;
    drop(std::hint::black_box(Vec::<u8>::with_capacity(KEPT_BYTES)));
}
