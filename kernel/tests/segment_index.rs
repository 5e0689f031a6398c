//! Both indexes of a segment, entry by entry.

use cleanerd_kernel::rewrite::Written;
use cleanerd_kernel::segment_index::IndexBuilder;

/// (relative offset, position), and (timestamp, relative offset).
type Entries = (Vec<(i32, i32)>, Vec<(i64, i32)>);

/// Batches of 100 bytes; a row is (last offset, largest timestamp). An entry every 150 bytes, base offset 1000.
fn indexes(batches: &[(i64, i64)], max_time_entries: i64) -> Entries {
    let mut builder = IndexBuilder::new(1000, 150, 100, max_time_entries).unwrap();
    let written = Written {
        position: (0..batches.len() as u32).map(|row| 100 * row).collect(),
        size: vec![100; batches.len()],
        last_offset: batches.iter().map(|batch| batch.0).collect(),
        max_timestamp: batches.iter().map(|batch| batch.1).collect(),
        record_count: vec![1; batches.len()],
        ..Written::default()
    };
    builder.append(&written).unwrap();
    let (offsets, times) = builder.finish();
    let offsets = offsets.as_chunks::<4>().0.iter().map(|bytes| i32::from_be_bytes(*bytes)).collect::<Vec<_>>();
    let times = times.as_chunks::<12>().0.iter().map(|entry| {
        let (timestamp, offset) = entry.split_at(8);
        (i64::from_be_bytes(timestamp.try_into().unwrap()), i32::from_be_bytes(offset.try_into().unwrap()))
    });
    (offsets.as_chunks::<2>().0.iter().map(|&[offset, position]| (offset, position)).collect(), times.collect())
}

/// F-6: the last offset of the batch, and the position at which that batch begins.
#[test]
fn an_entry_names_where_its_batch_begins() {
    let batches = [(1000, 1), (1010, 2), (1020, 3), (1030, 4), (1040, 5)];
    assert_eq!(indexes(&batches, 100).0, [(20, 200), (40, 400)]);
}

/// F-7: if several batches have the largest timestamp, the entry has the last offset of the first one.
#[test]
fn the_earliest_batch_with_the_largest_timestamp() {
    let batches = [(1000, 5), (1010, 9), (1020, 9), (1030, 4), (1040, 9)];
    assert_eq!(indexes(&batches, 100).1, [(9, 10)]);
}

/// F-7: a full time index still has room for its closing entry.
#[test]
fn the_last_place_is_for_the_closing_entry() {
    let batches: Vec<(i64, i64)> = (0..9).map(|row| (1000 + row, row)).collect();
    assert_eq!(indexes(&batches, 3).1, [(2, 2), (4, 4), (8, 8)]);
}
