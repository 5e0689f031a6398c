//! The header of a rebuilt batch: which fields stay, and which are computed.

use cleanerd_kernel::Error;
use cleanerd_kernel::codec::{self, Codecs};
use cleanerd_kernel::crc32c;
use cleanerd_kernel::decode::{FLAG_HAS_KEY, FLAG_TOMBSTONE, Options, decode_chunk};
use cleanerd_kernel::header::{CRC_START, HAS_DELETE_HORIZON, HEADER_BYTES, Header, LOG_APPEND_TIME, seal};
use cleanerd_kernel::legacy::{Message, write_message, write_wrapper};
use cleanerd_kernel::rewrite::{ACTION_REBUILD, ACTION_SET_HORIZON, Request, rewrite_chunk};
use cleanerd_kernel::varint::{write_varint, write_varlong};

const HORIZON: i64 = 99_000;
/// Bit 5 is that of KIP-87.
const RECORD_ATTRIBUTES: u8 = 0b1010_0101;

/// A batch at offset 500 with one record per timestamp, keys only, and the given base timestamp and attributes.
fn batch(timestamps: &[i64], base_timestamp: i64, attributes: i16) -> Vec<u8> {
    let mut log = vec![0; HEADER_BYTES];
    for (delta, timestamp) in timestamps.iter().enumerate() {
        let mut body = vec![RECORD_ATTRIBUTES];
        write_varlong(&mut body, timestamp - base_timestamp);
        write_varint(&mut body, delta as i32);
        write_varint(&mut body, 1);
        body.push(b'a' + delta as u8);
        write_varint(&mut body, -1);
        write_varint(&mut body, 0);
        write_varint(&mut log, body.len() as i32);
        log.extend_from_slice(&body);
    }
    let header = Header {
        base_offset: 500,
        size: 0,
        leader_epoch: 4,
        magic: 2,
        crc: 0,
        attributes: attributes | i16::from(codec::NONE),
        last_offset_delta: timestamps.len() as i32 - 1,
        base_timestamp,
        max_timestamp: timestamps.iter().copied().max().unwrap(),
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        record_count: timestamps.len() as i32,
    };
    seal(&header, &mut log, 0).unwrap();
    log
}

fn long(data: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(*data[at..].first_chunk().unwrap())
}

fn attributes_of(data: &[u8]) -> i16 {
    i16::from_be_bytes(*data[21..].first_chunk().unwrap())
}

fn rebuilt(data: &[u8], keep: u64, action: u8) -> Vec<u8> {
    rewritten(data, keep, action).unwrap()
}

fn rewritten(data: &[u8], keep: u64, action: u8) -> Result<Vec<u8>, Error> {
    let request = Request { keep_bits: &[keep], actions: &[action], ..request(data) };
    rewrite_chunk(data, 0, &request).map(|written| written.data)
}

/// U-14, R87-5: the attributes byte of a record does not change.
#[test]
fn record_attributes_stay() {
    for action in [ACTION_REBUILD, ACTION_REBUILD | ACTION_SET_HORIZON] {
        let data = rebuilt(&batch(&[10, 20, 30], 10, 0), 0b110, action);
        assert_eq!(data[HEADER_BYTES + 1], RECORD_ATTRIBUTES);
        let flags = decode_chunk(&data, 0, &Options::default()).unwrap().records.flags;
        assert_eq!(flags, [FLAG_HAS_KEY | FLAG_TOMBSTONE; 2]);
    }
}

/// C-52: base offset, last offset and offset deltas stay, even if the first and the last record are removed.
#[test]
fn the_base_offset_does_not_move() {
    let data = rebuilt(&batch(&[10, 20, 30, 40], 10, 0), 0b0100, ACTION_REBUILD);
    assert_eq!(long(&data, 0), 500);
    assert_eq!(data[23..27], 3i32.to_be_bytes());
    // Length, attributes, timestamp delta 0, offset delta 2.
    assert_eq!(data[HEADER_BYTES + 1..HEADER_BYTES + 4], [RECORD_ATTRIBUTES, 0, 4]);
}

/// C-49: an existing delete horizon does not change; a batch without one gets that of this cleaning.
#[test]
fn a_horizon_is_set_once() {
    for (source, horizon) in [(batch(&[10, 20], 10, 0), HORIZON), (batch(&[10, 20], 700, HAS_DELETE_HORIZON), 700)] {
        let data = rebuilt(&source, 0b10, ACTION_REBUILD | ACTION_SET_HORIZON);
        assert_eq!(long(&data, 27), horizon);
        assert_ne!(attributes_of(&data) & HAS_DELETE_HORIZON, 0);
    }
}

/// U-95: a batch that retains all records is copied if no delete horizon fits, unless its largest timestamp has to rise.
#[test]
fn a_batch_is_copied_where_no_horizon_fits() {
    let source = batch(&[10, 20], 5, 0);
    let action = [ACTION_REBUILD | ACTION_SET_HORIZON];
    let limited = |least_max_timestamps| Request {
        keep_bits: &[0b11],
        actions: &action,
        max_batch_bytes: source.len(),
        least_max_timestamps,
        ..request(&source)
    };
    assert_eq!(rewrite_chunk(&source, 0, &limited(None)).unwrap().data, source);
    let risen = rewrite_chunk(&source, 0, &limited(Some(&[70]))).unwrap().data;
    assert_eq!((long(&risen, 35), attributes_of(&risen) & HAS_DELETE_HORIZON), (70, 0));
}

/// C-52: with create time, the largest timestamp is computed from the retained records.
#[test]
fn the_max_timestamp_is_that_of_the_survivors() {
    let data = rebuilt(&batch(&[10, 40, 30], 10, 0), 0b101, ACTION_REBUILD);
    assert_eq!(long(&data, 35), 30);
}

/// U-65: the largest timestamp is raised to the lower bound, and the records keep theirs; with append time, the header's.
#[test]
fn the_max_timestamp_is_raised_and_the_records_keep_theirs() {
    for (attributes, stays, times) in [(0, 0, [10, 30]), (LOG_APPEND_TIME, 0, [40, 40])] {
        let source = batch(&[10, 40, 30], 10, attributes);
        let data =
            rewrite_chunk(&source, 0, &Request { least_max_timestamps: Some(&[70]), ..request(&source) }).unwrap().data;
        assert_eq!(long(&data, 35), 70);
        assert_eq!(attributes_of(&data), stays);
        assert_eq!(decode_chunk(&data, 0, &Options::default()).unwrap().records.timestamp, times);
        let data =
            rewrite_chunk(&source, 0, &Request { least_max_timestamps: Some(&[40]), ..request(&source) }).unwrap().data;
        assert_eq!((long(&data, 35), attributes_of(&data)), (40, attributes));
    }
}

/// Keeps the first and the third record.
fn request(data: &[u8]) -> Request<'static> {
    Request {
        keep_bits: &[0b101],
        first_bit: 0,
        actions: &[ACTION_REBUILD],
        delete_horizon: HORIZON,
        max_batch_bytes: 0,
        least_max_timestamps: None,
        convert_legacy: true,
        verify_crc: true,
        max_unpacked: 1 << 20,
        lead: None,
        expected_bytes: data.len(),
    }
}

/// F-2.3, in a batch with a right checksum: of a removed record only the length is checked, a retained one completely.
#[test]
fn only_the_length_of_removed_records_is_checked() {
    const RECORD: usize = 8;
    const OFFSET_DELTA: usize = 3;
    const KEY_LENGTH: usize = 4;
    let data = batch(&[10, 20, 30], 10, 0);
    let expected = rebuilt(&data, 0b101, ACTION_REBUILD);
    let damaged = |at: usize, byte: u8| {
        let mut log = data.clone();
        log[HEADER_BYTES + RECORD + at] = byte;
        let crc = crc32c(&log[CRC_START..], 0);
        log[CRC_START - 4..CRC_START].copy_from_slice(&crc.to_be_bytes());
        log
    };
    let log = damaged(KEY_LENGTH, 100);
    assert_eq!(rebuilt(&log, 0b101, ACTION_REBUILD), expected);
    for keep in [0b011, 0b111] {
        assert!(matches!(rewritten(&log, keep, ACTION_REBUILD), Err(Error::Corrupt(_))), "{keep:b}");
    }
    for delta in [0, 100] {
        let log = damaged(OFFSET_DELTA, delta);
        assert_eq!(rebuilt(&log, 0b101, ACTION_REBUILD), expected, "{delta}");
        // U-45: an offset that does not ascend, or exceeds the batch's last, does not change.
        let kept = rebuilt(&log, 0b011, ACTION_REBUILD);
        assert_eq!(kept[HEADER_BYTES..], log[HEADER_BYTES..][..kept.len() - HEADER_BYTES], "{delta}");
    }
    for length in [0, 2 * RECORD as u8, 100, 255] {
        assert!(matches!(rewritten(&damaged(0, length), 0b101, ACTION_REBUILD), Err(Error::Corrupt(_))), "{length}");
    }
}

/// The batch with its payload compressed, and then changed.
fn packed(codec: u8, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let plain = batch(&[10, 20, 30], 10, i16::from(codec));
    let mut payload = codec::compress(codec.into(), &plain[HEADER_BYTES..]).unwrap();
    change(&mut payload);
    let mut log = [&plain[..HEADER_BYTES], &payload].concat();
    let size = (log.len() - 12) as i32;
    log[8..12].copy_from_slice(&size.to_be_bytes());
    let crc = crc32c(&log[CRC_START..], 0);
    log[CRC_START - 4..CRC_START].copy_from_slice(&crc.to_be_bytes());
    log
}

/// U-52: bytes that Kafka's readers ignore are accepted, and a rebuilt batch does not have them.
#[test]
fn bytes_after_a_compressed_payload_are_ignored() {
    for (codec, behind) in [(codec::GZIP, 3), (codec::GZIP, 600), (codec::LZ4, 3), (codec::SNAPPY, 3)] {
        let odd = packed(codec, |payload| payload.resize(payload.len() + behind, 0));
        let sound = packed(codec, |_| ());
        assert_eq!(rebuilt(&odd, 0b101, ACTION_REBUILD), rebuilt(&sound, 0b101, ACTION_REBUILD), "{codec}");
    }
    let flags = packed(codec::GZIP, |payload| payload[3] |= 0xe0);
    let sound = packed(codec::GZIP, |_| ());
    assert_eq!(rebuilt(&flags, 0b101, ACTION_REBUILD), rebuilt(&sound, 0b101, ACTION_REBUILD));
}

/// U-53: with smaller blocks a batch can grow.
#[test]
fn lz4_blocks_are_as_large_as_the_source() {
    let large = packed(codec::LZ4, |payload| payload[5..7].copy_from_slice(&[0x70, 0x73]));
    assert_eq!(rebuilt(&large, 0b101, ACTION_REBUILD)[HEADER_BYTES + 5], 0x70);
    assert_eq!(rebuilt(&packed(codec::LZ4, |_| ()), 0b101, ACTION_REBUILD)[HEADER_BYTES + 5], 0x40);
}

/// U-45: readers of v1 compute offsets backwards from the wrapper's, so the last message has to have the highest offset.
#[test]
fn a_wrapper_ends_with_its_highest_offset() {
    for magic in [0, 1] {
        let mut plain = Vec::new();
        for offset in [2, 1, 3] {
            let message = Message { magic, offset, timestamp: 10, key: Some(b"k"), value: None };
            write_message(&mut plain, &message, 0).unwrap();
        }
        let wrapper = Message { magic, offset: 3, timestamp: 10, key: None, value: None };
        let mut log = Vec::new();
        write_wrapper(&mut log, &wrapper, codec::GZIP, &plain, &mut Codecs::default()).unwrap();
        for (keep, convert_legacy) in [(0b101, true), (0b101, false), (0b011, true), (0b011, false)] {
            let request = Request { keep_bits: &[keep], convert_legacy, ..request(&log) };
            let found = rewrite_chunk(&log, 0, &request);
            if magic == 1 && keep == 0b011 && !convert_legacy {
                assert!(matches!(found, Err(Error::Corrupt(_))));
                continue;
            }
            let offsets = decode_chunk(&found.unwrap().data, 0, &Options::default()).unwrap().records.offset;
            assert_eq!(offsets, if keep == 0b101 { [2, 3] } else { [2, 1] }, "{magic} {convert_legacy}");
        }
    }
}
