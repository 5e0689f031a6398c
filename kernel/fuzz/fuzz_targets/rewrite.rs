//! A chunk of several batches of all magics and codecs, whose *decompressed* records are arbitrary. They are really compressed, so
//! that mutations get past the codec. Each batch has its own action, and the keep bits begin at any bit.
//!
//! Batches that decode are rewritten. The result has to decode to exactly the retained records, by offset and by digest of their
//! content, and its indexes can be built.

#![no_main]

use cleanerd_kernel::Error;
use cleanerd_kernel::batch_table::scan_headers;
use cleanerd_kernel::codec::{LZ4, ZSTD, with_workbench};
use cleanerd_kernel::content::{Digests, Reading, content_digest, read_contents};
use cleanerd_kernel::decode::{Chunk, Options, decode_chunk};
use cleanerd_kernel::header::CRC_START;
use cleanerd_kernel::rewrite::{
    ACTION_COPY, ACTION_DROP, ACTION_EMPTY, ACTION_REBUILD, ACTION_SET_HORIZON, ACTION_TIME_ZERO, ACTION_TIMELESS,
    Request, Written, rewrite_chunk,
};
use cleanerd_kernel::segment_index::IndexBuilder;
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 1 << 20;
const MOST_BATCHES: usize = 5;
const ACTIONS: [u8; 7] = [
    ACTION_DROP,
    ACTION_COPY,
    ACTION_REBUILD,
    ACTION_REBUILD | ACTION_SET_HORIZON,
    ACTION_EMPTY,
    ACTION_EMPTY | ACTION_TIMELESS,
    ACTION_EMPTY | ACTION_TIME_ZERO,
];
const HASH_KEY: [u8; 16] = [7; 16];

/// The rest of the input, which continues with zeros.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn number<const N: usize>(&mut self) -> [u8; N] {
        let mut number = [0; N];
        let taken = self.bytes(N);
        number[..taken.len()].copy_from_slice(taken);
        number
    }

    fn byte(&mut self) -> u8 {
        self.number::<1>()[0]
    }

    fn short(&mut self) -> u16 {
        u16::from_be_bytes(self.number())
    }
}

/// The chunk, and the action for each batch.
fn chunk(input: &mut Input<'_>) -> (Vec<u8>, Vec<u8>) {
    let (mut data, mut actions) = (Vec::new(), Vec::new());
    let mut base = u64::from(input.short());
    while !input.0.is_empty() && actions.len() < MOST_BATCHES {
        let kind = input.byte();
        actions.push(ACTIONS[usize::from(input.byte()) % ACTIONS.len()]);
        let codec = (kind >> 2) % (ZSTD + 1);
        base += match kind & 3 {
            magic @ 0..=1 => message(&mut data, base, magic, codec.min(LZ4), input),
            _ => batch(&mut data, base, codec, input),
        };
        base += 1;
    }
    (data, actions)
}

/// One batch of magic 2. Returns its number of offsets after the first one.
fn batch(data: &mut Vec<u8>, base: u64, codec: u8, input: &mut Input<'_>) -> u64 {
    let start = data.len();
    let flags = input.byte() & 0x78;
    let (last, count) = (input.short(), input.short());
    data.extend_from_slice(&base.to_be_bytes());
    data.extend_from_slice(&[0; 8]); // size, leader epoch
    data.push(2);
    data.extend_from_slice(&[0; 4]); // CRC
    data.extend_from_slice(&[0, flags | codec]);
    data.extend_from_slice(&u32::from(last).to_be_bytes());
    data.extend_from_slice(&input.number::<16>()); // timestamps
    data.extend_from_slice(&input.number::<14>()); // producer
    data.extend_from_slice(&u32::from(count).to_be_bytes());
    let length = usize::from(input.short());
    with_workbench(|bench| bench.codecs.compress(codec, input.bytes(length), data)).expect("a codec that is known");
    let size = (data.len() - start - 12) as u32;
    data[start + 8..start + 12].copy_from_slice(&size.to_be_bytes());
    let crc = cleanerd_kernel::crc32c(&data[start + CRC_START..], 0);
    data[start + 17..start + 21].copy_from_slice(&crc.to_be_bytes());
    u64::from(last)
}

/// One message of magic 0 or 1. With a codec its value is the messages of a wrapper. Its CRC is not checked.
fn message(data: &mut Vec<u8>, base: u64, magic: u8, codec: u8, input: &mut Input<'_>) -> u64 {
    let start = data.len();
    let (flags, last) = (input.byte() & 8, u64::from(input.byte()));
    data.extend_from_slice(&(base + last).to_be_bytes());
    data.extend_from_slice(&[0; 8]); // size, CRC
    data.extend_from_slice(&[magic, flags | codec]);
    if magic == 1 {
        data.extend_from_slice(&input.number::<8>());
    }
    let key = input.byte();
    if key & 1 == 0 || codec != 0 {
        data.extend_from_slice(&[0xff; 4]);
    } else {
        let key = input.bytes(usize::from(key >> 5));
        data.extend_from_slice(&(key.len() as u32).to_be_bytes());
        data.extend_from_slice(key);
    }
    let (length, at) = (usize::from(input.short()), data.len());
    data.extend_from_slice(&[0; 4]);
    if codec == 0 {
        data.extend_from_slice(input.bytes(length));
    } else {
        with_workbench(|bench| bench.codecs.compress_legacy(magic, codec.max(1), input.bytes(length), data))
            .expect("a codec that is known");
    }
    let value = (data.len() - at - 4) as u32;
    data[at..at + 4].copy_from_slice(&value.to_be_bytes());
    let size = (data.len() - start - 12) as u32;
    data[start + 8..start + 12].copy_from_slice(&size.to_be_bytes());
    last
}

fn decode(data: &[u8]) -> Option<Chunk> {
    let options = Options { hash_key: Some(HASH_KEY), headers: None, verify_crc: false, max_unpacked: LIMIT };
    value_of(decode_chunk(data, 0, &options))
}

fn digests(data: &[u8]) -> Digests {
    let reading = Reading { verify_crc: false, max_unpacked: LIMIT };
    content_digest(data, 0, &HASH_KEY, reading).expect("what decodes has digests")
}

/// None for invalid bytes. Any other error is a bug of the kernel.
fn value_of<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(Error::Corrupt(_) | Error::Invalid(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let (pattern, first_bit, convert_legacy) = (input.short(), input.byte() % 100, input.byte() & 1 != 0);
    let (data, actions) = chunk(&mut input);
    let headers = value_of(scan_headers(&data, 0, false));
    let Some(source) = decode(&data) else {
        return;
    };
    assert_eq!(headers.expect("what decodes has headers").len(), source.batches.len());
    let records = source.records.len();
    let word = u64::from(pattern).wrapping_mul(0x0001_0001_0001_0001);
    let keep = vec![word; (usize::from(first_bit) + records).div_ceil(64)];
    let request = Request {
        keep_bits: &keep,
        first_bit: i64::from(first_bit),
        actions: &actions,
        delete_horizon: 1_700_000_000_000,
        max_batch_bytes: 0,
        least_max_timestamps: None,
        convert_legacy,
        verify_crc: false,
        max_unpacked: LIMIT,
        lead: None,
        expected_bytes: data.len(),
    };
    if let Some(written) = value_of(rewrite_chunk(&data, 0, &request)) {
        let stays = |row: usize| {
            let bit = usize::from(first_bit) + row;
            word >> (bit % 64) & 1 != 0
        };
        check(&data, &source, &actions, &written, stays);
        let mut index = IndexBuilder::new(0, 64, 100, 100).expect("an index of a segment that begins at 0");
        let _ = value_of(index.append(&written));
        index.finish();
    }
});

/// Checks that exactly the retained records are there, unchanged.
fn check(data: &[u8], source: &Chunk, actions: &[u8], written: &Written, stays: impl Fn(usize) -> bool) {
    let found = decode(written.output()).expect("what was written");
    let mut rows = Vec::new();
    for (at, &first) in source.batches.first_record.iter().enumerate().take(source.batches.len()) {
        let end = source.batches.first_record.get(at + 1).map_or(source.records.len(), |&next| next as usize);
        match actions[at] & 0xf {
            ACTION_COPY => rows.extend(first as usize..end),
            ACTION_REBUILD => rows.extend((first as usize..end).filter(|&row| stays(row))),
            _ => {}
        }
    }
    let offsets: Vec<i64> = rows.iter().map(|&row| source.records.offset[row]).collect();
    assert_eq!(found.records.offset, offsets);
    assert_eq!(found.batches.last_offset, written.last_offset);
    assert_eq!(found.batches.max_timestamp, written.max_timestamp);
    let (before, after) = (digests(data), digests(written.output()));
    // Messages of another magic than their wrapper's do not keep their timestamp (KAFKA-4298).
    if source.batches.mixed_magic.is_empty() {
        let kept: Vec<u64> = rows.iter().flat_map(|&row| before.digest[2 * row..2 * row + 2].to_vec()).collect();
        assert_eq!(after.digest, kept);
    }
    let all = vec![true; found.records.len()];
    let reading = Reading { verify_crc: false, max_unpacked: LIMIT };
    let contents = read_contents(written.output(), 0, &all, reading).expect("what was written can be read");
    assert_eq!(contents.key.null.len(), found.records.len());
}

