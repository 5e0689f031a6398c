//! Random and damaged logs: no panic, no overflow, and a rewrite retains exactly the requested records.

use cleanerd_kernel::Error;
use cleanerd_kernel::batch_table::scan_headers;
use cleanerd_kernel::codec::{self, Codecs};
use cleanerd_kernel::decode::{
    Chunk, FLAG_HAS_KEY, FLAG_HAS_VALUE, FLAG_HAS_VERSION, FLAG_TOMBSTONE, Options, decode_chunk,
};
use cleanerd_kernel::header::{HEADER_BYTES, Header, seal};
use cleanerd_kernel::legacy::{Message, write_message, write_wrapper};
use cleanerd_kernel::record_headers::{HeaderNames, VersionEncoding};
use cleanerd_kernel::rewrite::{
    ACTION_COPY, ACTION_DROP, ACTION_EMPTY, ACTION_REBUILD, Request, Written, rewrite_chunk,
};
use cleanerd_kernel::varint::{write_varint, write_varlong};
use proptest::prelude::*;
use proptest::sample::Index;

type TestRecord = (i64, i32, Option<Vec<u8>>, Option<Vec<u8>>);

fn write_field(output: &mut Vec<u8>, field: Option<&Vec<u8>>) {
    match field {
        None => write_varint(output, -1),
        Some(bytes) => {
            write_varint(output, bytes.len() as i32);
            output.extend_from_slice(bytes);
        }
    }
}

fn encode(log: &mut Vec<u8>, base_offset: i64, codec: u8, records: &[TestRecord]) {
    let (mut payload, mut delta) = (Vec::new(), -1);
    for (timestamp_delta, step, key, value) in records {
        delta += step;
        let mut body = vec![0];
        write_varlong(&mut body, *timestamp_delta);
        write_varint(&mut body, delta);
        write_field(&mut body, key.as_ref());
        write_field(&mut body, value.as_ref());
        write_varint(&mut body, 2);
        write_field(&mut body, Some(&b"header".to_vec()));
        write_field(&mut body, None);
        write_field(&mut body, Some(&b"version".to_vec()));
        write_field(&mut body, Some(&timestamp_delta.to_be_bytes().to_vec()));
        write_varint(&mut payload, body.len() as i32);
        payload.extend_from_slice(&body);
    }
    let start = log.len();
    log.extend_from_slice(&[0; HEADER_BYTES]);
    log.extend_from_slice(&codec::compress(codec.into(), &payload).unwrap());
    let header = Header {
        base_offset,
        size: 0,
        leader_epoch: 4,
        magic: 2,
        crc: 0,
        attributes: codec.into(),
        last_offset_delta: delta.max(0),
        base_timestamp: 1_700_000_000_000,
        max_timestamp: 1_700_000_000_000,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        record_count: records.len() as i32,
    };
    seal(&header, log, start).unwrap();
}

/// One message of magic 0 or 1 per record, or a wrapper around all of them. Some messages have the other magic.
fn encode_legacy(log: &mut Vec<u8>, base_offset: i64, magic: u8, codec: u8, records: &[TestRecord]) {
    let (mut plain, mut delta) = (Vec::new(), -1);
    let relative = magic == 1 && codec != 0;
    for (timestamp, step, key, value) in records {
        delta += i64::from(*step);
        let message = Message {
            magic: if codec != 0 && *step == 3 { 1 - magic } else { magic },
            offset: if relative { delta } else { base_offset + delta },
            timestamp: *timestamp,
            key: key.as_deref(),
            value: value.as_deref(),
        };
        write_message(if codec == 0 { log } else { &mut plain }, &message, 0).unwrap();
    }
    if codec != 0 && !records.is_empty() {
        let wrapper = Message { magic, offset: base_offset + delta, timestamp: 100_000, key: None, value: None };
        write_wrapper(log, &wrapper, codec, &plain, &mut Codecs::default()).unwrap();
    }
}

fn a_log() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || prop::option::of(prop::collection::vec(any::<u8>(), 0..60));
    let record = (0i64..100_000, 1i32..4, bytes(), bytes());
    let batch = (prop_oneof![Just(2u8), 0u8..2], 0u8..=4, prop::collection::vec(record, 0..6));
    prop::collection::vec(batch, 0..5).prop_map(|batches| {
        let mut log = Vec::new();
        for (index, (magic, codec, records)) in batches.iter().enumerate() {
            let base_offset = 1000 * index as i64;
            match magic {
                2 => encode(&mut log, base_offset, *codec, records),
                _ => encode_legacy(&mut log, base_offset, *magic, codec % 4, records),
            }
        }
        log
    })
}

fn decode(data: &[u8], verify_crc: bool) -> Result<Chunk, Error> {
    decode_chunk(
        data,
        50,
        &Options { hash_key: Some([1; 16]), verify_crc, max_unpacked: 1 << 20, ..Options::default() },
    )
}

fn rewrite(
    data: &[u8],
    keep_bits: &[u64],
    actions: &[u8],
    verify_crc: bool,
    convert_legacy: bool,
) -> Result<Written, Error> {
    rewrite_chunk(
        data,
        0,
        &Request {
            keep_bits,
            first_bit: 0,
            actions,
            delete_horizon: 5,
            max_batch_bytes: 0,
            least_max_timestamps: None,
            convert_legacy,
            verify_crc,
            max_unpacked: 1 << 20,
            lead: None,
            expected_bytes: data.len(),
        },
    )
}

/// Reading headers, too, gives the same records or the same error.
fn check_headers_change_nothing(data: &[u8], verify_crc: bool) -> Result<(), TestCaseError> {
    for encoding in [VersionEncoding::Long, VersionEncoding::Varlong] {
        let names = HeaderNames { version: Some(b"version".to_vec()), encoding, tombstone: Some(b"header".to_vec()) };
        let options = Options { hash_key: Some([1; 16]), headers: Some(names), verify_crc, max_unpacked: 1 << 20 };
        let plain = decode(data, verify_crc);
        match decode_chunk(data, 50, &options) {
            Ok(mut chunk) => {
                prop_assert_eq!(chunk.records.version.len(), chunk.records.len());
                chunk.records.version.clear();
                for flags in &mut chunk.records.flags {
                    *flags &= FLAG_HAS_KEY | FLAG_HAS_VALUE | FLAG_TOMBSTONE;
                }
                prop_assert_eq!(plain.ok(), Some(chunk));
            }
            Err(error) => prop_assert_eq!(plain.unwrap_err().to_string(), error.to_string()),
        }
    }
    Ok(())
}

/// An error must not be a kernel bug, and its position must be in the data.
fn check_decodes_or_is_refused(data: &[u8], verify_crc: bool) -> Result<(), TestCaseError> {
    check_headers_change_nothing(data, verify_crc)?;
    match decode(data, verify_crc) {
        Ok(chunk) => {
            prop_assert!(chunk.batches.consumed <= data.len());
            prop_assert_eq!(chunk.records.len(), *chunk.batches.first_record.last().unwrap() as usize);
            prop_assert_eq!(chunk.records.key_hash.len(), 2 * chunk.records.len());
        }
        Err(Error::Corrupt(corrupt)) => {
            prop_assert!((50..50 + data.len() as i64).contains(&corrupt.position));
        }
        Err(error) => prop_assert!(false, "{error}"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn garbage(data in prop::collection::vec(any::<u8>(), 0..400)) {
        check_decodes_or_is_refused(&data, false)?;
        check_decodes_or_is_refused(&data, true)?;
    }

    #[test]
    fn damage_and_cuts(mut log in a_log(), place in any::<Index>(), byte: u8, cut in any::<Index>(), verify_crc: bool) {
        prop_assume!(!log.is_empty());
        log.truncate(1 + cut.index(2 * log.len()));
        let place = place.index(log.len());
        log[place] = byte;
        check_decodes_or_is_refused(&log, verify_crc)?;
        for action in [ACTION_DROP, ACTION_COPY, ACTION_REBUILD, ACTION_EMPTY] {
            for convert in [false, true] {
                match rewrite(&log, &[u64::MAX; 4], &[action; 32], verify_crc, convert) {
                    Ok(_) | Err(Error::Corrupt(_) | Error::Invalid(_)) => {}
                    Err(error) => prop_assert!(false, "{error}"),
                }
            }
        }
    }

    #[test]
    fn chunks_join_up(log in a_log(), cut in any::<Index>()) {
        let cut = cut.index(log.len() + 1);
        let whole = scan_headers(&log, 0, true).unwrap();
        prop_assert_eq!(decode(&log, true).unwrap().batches.size, whole.size.clone());
        prop_assert_eq!((whole.consumed, whole.needed), (log.len(), 0));
        let front = scan_headers(&log[..cut], 0, true).unwrap();
        let back = scan_headers(&log[front.consumed..], front.consumed as i64, true).unwrap();
        prop_assert_eq!([front.position, back.position].concat(), whole.position);
        if front.needed > 0 {
            prop_assert_eq!(front.needed, back.size[0] as usize);
        }
    }

    #[test]
    fn exactly_the_kept_survive(
        log in a_log(), keep: u64, convert: bool, choices in prop::collection::vec(0u8..4, 30),
    ) {
        let source = decode(&log, true).unwrap();
        let edges = &source.batches.first_record;
        let mut actions = Vec::new();
        let mut rows = Vec::new();
        let (mut row_is_mixed, mixed) = (Vec::new(), &source.batches.mixed_magic);
        for (index, (range, mut choice)) in edges.windows(2).zip(choices).enumerate() {
            if convert && choice == ACTION_COPY && source.batches.magic[index] < 2 {
                choice = ACTION_REBUILD;
            }
            let range = range[0] as usize..range[1] as usize;
            let kept: Vec<usize> = range.clone().filter(|row| keep >> row & 1 != 0).collect();
            let action = if choice == ACTION_REBUILD && kept.is_empty() { ACTION_EMPTY } else { choice };
            actions.push(action);
            match action {
                ACTION_COPY => rows.extend(range),
                ACTION_REBUILD => rows.extend(kept),
                _ => {}
            }
            // Messages of another magic than their wrapper's do not keep their timestamp (KAFKA-4298).
            row_is_mixed.resize(rows.len(), action == ACTION_REBUILD && mixed.contains(&(index as u32)));
        }
        let written = rewrite(&log, &[keep], &actions, true, convert).unwrap();
        let result = decode(&written.data, true).unwrap();
        let pick = |column: &[i64]| rows.iter().map(|&row| column[row]).collect::<Vec<_>>();
        prop_assert_eq!(&result.records.offset, &pick(&source.records.offset));
        let unchanged = |column: &[i64]| {
            column.iter().zip(&row_is_mixed).filter(|(_, mixed)| !**mixed).map(|(time, _)| *time).collect::<Vec<_>>()
        };
        prop_assert_eq!(unchanged(&result.records.timestamp), unchanged(&pick(&source.records.timestamp)));
        prop_assert!(!convert || result.batches.magic.iter().all(|&magic| magic == 2));
        let hashes: Vec<u64> = rows.iter().flat_map(|row| source.records.key_hash[2 * row..2 * row + 2].to_vec()).collect();
        prop_assert_eq!(&result.records.key_hash, &hashes);
        prop_assert_eq!(&result.batches.size, &written.size);
        prop_assert_eq!(&result.batches.last_offset, &written.last_offset);
        prop_assert_eq!(&result.batches.max_timestamp, &written.max_timestamp);
        prop_assert_eq!(written.size.len(), actions.iter().filter(|&&action| action != ACTION_DROP).count());
    }
}

/// R280-5, for every codec: `encode` writes the timestamp delta into the header.
#[test]
fn versions_come_from_their_header() {
    for codec in 0..=4 {
        let mut log = Vec::new();
        encode(&mut log, 0, codec, &[(7, 1, None, None), (-7, 1, None, None)]);
        let names = HeaderNames { version: Some(b"version".to_vec()), ..HeaderNames::default() };
        let chunk = decode_chunk(&log, 0, &Options { headers: Some(names), ..Options::default() }).unwrap();
        assert_eq!(chunk.records.version, [7, -7]);
        assert_eq!(chunk.records.flags, [FLAG_HAS_VERSION; 2]);
    }
}

#[test]
fn a_record_count_reserves_no_memory_before_the_bytes_bear_it_out() {
    let mut log = Vec::new();
    encode(&mut log, 0, 0, &[(0, 1, None, None)]);
    for codec in [0u8, 4] {
        log[22] = codec;
        log[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
        assert!(matches!(decode(&log, false), Err(Error::Corrupt(_))));
        assert_eq!(scan_headers(&log, 0, false).unwrap().first_record, [0, i32::MAX as u32]);
    }
}

#[test]
fn record_counts_that_pass_32_bits_end_a_scan() {
    let mut log = Vec::new();
    encode(&mut log, 0, 0, &[(0, 1, None, None)]);
    log[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
    let three = scan_headers(&log.repeat(3), 0, false).unwrap();
    assert_eq!((three.len(), three.consumed, three.needed), (2, 2 * log.len(), 0));
}
