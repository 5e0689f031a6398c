//! The batch table is built in blocks of rows: each row is in its columns, for any number of rows.

use cleanerd_kernel::batch_table::scan_headers;
use cleanerd_kernel::decode::{Options, decode_chunk};
use cleanerd_kernel::header::{HEADER_BYTES, Header, seal};

/// A batch of one record without content. Each field has a different value that depends on the batch's number.
fn header(number: usize) -> Header {
    let wide = number as i64;
    Header {
        base_offset: 2 * wide,
        size: HEADER_BYTES + 7,
        leader_epoch: 3 + number as i32,
        magic: 2,
        crc: 0,
        attributes: (number % 2) as i16 * 0x10,
        last_offset_delta: 1,
        base_timestamp: 1_000 + wide,
        max_timestamp: 2_000 + wide,
        producer_id: 50_000 + wide,
        producer_epoch: (number % 100) as i16,
        base_sequence: 7 * number as i32,
        record_count: 1,
    }
}

fn log(batches: usize) -> Vec<u8> {
    let mut log = Vec::new();
    for number in 0..batches {
        let start = log.len();
        log.extend_from_slice(&[0; HEADER_BYTES]);
        // Length 6; no attributes, deltas of 0, neither key nor value, no headers.
        log.extend_from_slice(&[12, 0, 0, 0, 1, 1, 0]);
        assert_eq!(seal(&header(number), &mut log, start), Some(HEADER_BYTES + 7));
    }
    log
}

/// U-45: rows of batches whose records' offsets do not ascend, or exceed the batch's last offset.
#[test]
fn descending_offsets_are_reported() {
    let mut log = log(1);
    for (deltas, last) in [([0u8, 2], 1), ([0, 0], 1), ([2, 0], 1), ([0, 2], 0)] {
        let start = log.len();
        log.extend_from_slice(&[0; HEADER_BYTES]);
        for delta in deltas {
            log.extend_from_slice(&[12, 0, 0, delta, 1, 1, 0]);
        }
        let header = Header { record_count: 2, last_offset_delta: last, ..header(9) };
        seal(&header, &mut log, start).unwrap();
    }
    let chunk = decode_chunk(&log, 0, &Options::default()).unwrap();
    assert_eq!(chunk.batches.unordered, [2, 3, 4]);
}

#[test]
fn every_row_is_there_at_the_borders_of_blocks() {
    for batches in [0, 1, 63, 64, 65, 127, 128, 129, 200] {
        let log = log(batches);
        let scanned = scan_headers(&log, 100, true).unwrap();
        let decoded = decode_chunk(&log, 100, &Options::default()).unwrap().batches;
        assert_eq!(scanned, decoded, "of {batches}");
        assert_eq!((scanned.len(), scanned.consumed), (batches, log.len()));
        let headers: Vec<Header> = (0..batches).map(header).collect();
        let column = |of: fn(&Header) -> i64| headers.iter().map(of).collect::<Vec<_>>();
        assert_eq!(scanned.base_offset, column(|header| header.base_offset));
        assert_eq!(scanned.last_offset, column(|header| header.base_offset + 1));
        assert_eq!(scanned.base_timestamp, column(|header| header.base_timestamp));
        assert_eq!(scanned.max_timestamp, column(|header| header.max_timestamp));
        assert_eq!(scanned.producer_id, column(|header| header.producer_id));
        let narrow = |column: Vec<i64>| column.into_iter().map(|value| value as i32).collect::<Vec<_>>();
        assert_eq!(scanned.base_sequence, narrow(column(|header| header.base_sequence.into())));
        assert_eq!(scanned.leader_epoch, narrow(column(|header| header.leader_epoch.into())));
        let short = |column: Vec<i64>| column.into_iter().map(|value| value as i16).collect::<Vec<_>>();
        assert_eq!(scanned.attributes, short(column(|header| header.attributes.into())));
        assert_eq!(scanned.producer_epoch, short(column(|header| header.producer_epoch.into())));
        let size = HEADER_BYTES + 7;
        assert_eq!(scanned.position, (0..batches).map(|number| (100 + number * size) as u32).collect::<Vec<_>>());
        assert_eq!(scanned.size, vec![size as u32; batches]);
        assert_eq!(scanned.magic, vec![2; batches]);
        assert_eq!(scanned.control_type, vec![-1; batches]);
        assert_eq!(scanned.first_record, (0..=batches as u32).collect::<Vec<_>>());
        let crcs = log.chunks(size).map(|batch| u32::from_be_bytes(*batch[17..].first_chunk().unwrap()));
        assert_eq!(scanned.crc, crcs.collect::<Vec<_>>());
    }
}
