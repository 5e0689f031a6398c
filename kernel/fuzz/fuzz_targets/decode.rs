//! One batch of arbitrary content behind a length and a CRC that are right, so that mutations reach what is behind them.
//!
//! The first two bytes say which records are kept; the rest is the batch from its attributes on. What decodes is rewritten, and
//! what is written has to decode to exactly the kept records.

#![no_main]

use cleanerd_kernel::Error;
use cleanerd_kernel::decode::{Chunk, Options, decode_chunk};
use cleanerd_kernel::header::{CRC_START, HEADER_BYTES};
use cleanerd_kernel::rewrite::{ACTION_COPY, ACTION_EMPTY, ACTION_REBUILD, ACTION_SET_HORIZON, Request, rewrite_chunk};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 1 << 20;

fn batch(content: &[u8]) -> Vec<u8> {
    let mut batch = vec![0; CRC_START];
    batch.extend_from_slice(content);
    batch.resize(batch.len().max(HEADER_BYTES), 0);
    let size = (batch.len() - 12) as u32;
    batch[8..12].copy_from_slice(&size.to_be_bytes());
    batch[16] = 2;
    let crc = cleanerd_kernel::crc32c(&batch[CRC_START..], 0);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

fn decode(data: &[u8]) -> Result<Chunk, Error> {
    decode_chunk(data, 0, &Options { hash_key: Some([7; 16]), verify_crc: true, max_unpacked: LIMIT })
}

fn rewrite(data: &[u8], keep: &[u64], action: u8) -> Result<Vec<u8>, Error> {
    let request = Request {
        data,
        position: 0,
        keep_bits: keep,
        first_bit: 0,
        actions: &[action],
        delete_horizon: 1_700_000_000_000,
        convert_legacy: false,
        verify_crc: true,
        max_unpacked: LIMIT,
    };
    rewrite_chunk(&request).map(|written| written.data)
}

fuzz_target!(|input: &[u8]| {
    let Some((&pattern, content)) = input.split_first_chunk::<2>() else {
        return;
    };
    // The chunk itself may be anything.
    let _ = decode(content);
    let data = batch(content);
    let source = match decode(&data) {
        Ok(chunk) => chunk,
        Err(Error::Corrupt(_)) => return,
        Err(error) => panic!("{error}"),
    };
    let records = source.records.len();
    let word = u64::from(u16::from_le_bytes(pattern)).wrapping_mul(0x0001_0001_0001_0001);
    let keep = vec![word; records.div_ceil(64)];
    assert_eq!(rewrite(&data, &keep, ACTION_COPY).expect("what decodes can be copied"), data);
    let emptied = rewrite(&data, &keep, ACTION_EMPTY).expect("what decodes can be emptied");
    assert!(decode(&emptied).expect("an empty batch").records.is_empty());
    for action in [ACTION_REBUILD, ACTION_REBUILD | ACTION_SET_HORIZON] {
        match rewrite(&data, &keep, action) {
            Ok(written) => {
                let result = decode(&written).expect("what was written");
                let kept: Vec<usize> = (0..records).filter(|row| word >> (row % 64) & 1 != 0).collect();
                let pick = |column: &[i64]| kept.iter().map(|&row| column[row]).collect::<Vec<_>>();
                assert_eq!(result.records.offset, pick(&source.records.offset));
                assert_eq!(result.records.timestamp, pick(&source.records.timestamp));
            }
            Err(Error::Corrupt(_) | Error::Invalid(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
});
