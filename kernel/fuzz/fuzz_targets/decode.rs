//! One batch with arbitrary content, but a right length and CRC, so that mutations get past these checks.
//!
//! The first two bytes select the retained records. The rest is the batch from its attributes on, as a v2 batch and as a message of
//! magic 0 or 1. Batches that decode are rewritten. The result has to decode to exactly the retained records.

#![no_main]

use cleanerd_kernel::Error;
use cleanerd_kernel::decode::{Chunk, FLAG_HAS_KEY, FLAG_HAS_VALUE, FLAG_TOMBSTONE, Options, decode_chunk};
use cleanerd_kernel::header::{CRC_START, HEADER_BYTES, MESSAGE_CRC_START};
use cleanerd_kernel::record_headers::{HeaderNames, VersionEncoding};
use cleanerd_kernel::rewrite::{ACTION_COPY, ACTION_EMPTY, ACTION_REBUILD, ACTION_SET_HORIZON, Request, rewrite_chunk};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 1 << 20;
/// Frame, CRC, magic, attributes, timestamp and two lengths.
const SMALLEST_MESSAGE: usize = 34;

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

/// The batch as a message of magic 0 or 1. Its CRC and those inside a wrapper are not checked.
fn message(magic: u8, content: &[u8]) -> Vec<u8> {
    let mut message = vec![0; MESSAGE_CRC_START];
    message.push(magic);
    message.extend_from_slice(content);
    message.resize(message.len().max(SMALLEST_MESSAGE), 0);
    let size = (message.len() - 12) as u32;
    message[7] = 200;
    message[8..12].copy_from_slice(&size.to_be_bytes());
    message
}

fn decode(data: &[u8], verify_crc: bool) -> Result<Chunk, Error> {
    let options = Options { hash_key: Some([7; 16]), headers: None, verify_crc, max_unpacked: LIMIT };
    let chunk = decode_chunk(data, 0, &options);
    for encoding in [VersionEncoding::Long, VersionEncoding::Varlong] {
        let names = HeaderNames { version: Some(b"v".to_vec()), encoding, tombstone: Some(Vec::new()) };
        let versioned = decode_chunk(data, 0, &Options { headers: Some(names), ..options.clone() });
        check_versioned(&chunk, versioned);
    }
    chunk
}

/// Reading headers, too, gives the same records or the same error.
fn check_versioned(plain: &Result<Chunk, Error>, versioned: Result<Chunk, Error>) {
    match (plain, versioned) {
        (Ok(plain), Ok(mut versioned)) => {
            assert_eq!(versioned.records.version.len(), plain.records.len());
            versioned.records.version.clear();
            for flags in &mut versioned.records.flags {
                *flags &= FLAG_HAS_KEY | FLAG_HAS_VALUE | FLAG_TOMBSTONE;
            }
            assert_eq!(*plain, versioned);
        }
        (Err(plain), Err(versioned)) => assert_eq!(plain.to_string(), versioned.to_string()),
        (plain, versioned) => panic!("{plain:?} without versions, {versioned:?} with them"),
    }
}

fn rewrite(data: &[u8], keep: &[u64], action: u8, convert_legacy: bool) -> Result<Vec<u8>, Error> {
    let request = Request {
        keep_bits: keep,
        first_bit: 0,
        actions: &[action],
        delete_horizon: 1_700_000_000_000,
        max_batch_bytes: 0,
        least_max_timestamps: None,
        convert_legacy,
        verify_crc: data[16] == 2,
        max_unpacked: LIMIT,
        lead: None,
        expected_bytes: data.len(),
    };
    rewrite_chunk(data, 0, &request).map(|written| written.data)
}

fuzz_target!(|input: &[u8]| {
    let Some((&pattern, content)) = input.split_first_chunk::<2>() else {
        return;
    };
    // The chunk itself may be anything.
    let _ = decode(content, true);
    let word = u64::from(u16::from_le_bytes(pattern)).wrapping_mul(0x0001_0001_0001_0001);
    check(&batch(content), word, false);
    for convert in [false, true] {
        check(&message(pattern[0] & 1, content), word, convert);
    }
});

/// Batches that decode can be copied, emptied and rebuilt, and then have exactly the retained records.
fn check(data: &[u8], word: u64, convert: bool) {
    let is_v2 = data[16] == 2;
    let source = match decode(data, is_v2) {
        Ok(chunk) => chunk,
        Err(Error::Corrupt(_)) => return,
        Err(error) => panic!("{error}"),
    };
    let records = source.records.len();
    let keep = vec![word; records.div_ceil(64)];
    if !convert {
        assert_eq!(rewrite(data, &keep, ACTION_COPY, convert).expect("what decodes can be copied"), data);
    }
    let emptied = rewrite(data, &keep, ACTION_EMPTY, convert).expect("what decodes can be emptied");
    assert!(decode(&emptied, true).expect("an empty batch").records.is_empty());
    for action in [ACTION_REBUILD, ACTION_REBUILD | ACTION_SET_HORIZON] {
        match rewrite(data, &keep, action, convert) {
            Ok(written) => {
                let result = decode(&written, true).expect("what was written");
                let kept: Vec<usize> = (0..records).filter(|row| word >> (row % 64) & 1 != 0).collect();
                let pick = |column: &[i64]| kept.iter().map(|&row| column[row]).collect::<Vec<_>>();
                assert_eq!(result.records.offset, pick(&source.records.offset));
                // Messages of another magic than their wrapper's do not keep their timestamp (KAFKA-4298).
                if source.batches.mixed_magic.is_empty() {
                    assert_eq!(result.records.timestamp, pick(&source.records.timestamp));
                }
            }
            Err(Error::Corrupt(_) | Error::Invalid(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
