//! A map that is filled from rows by shard equals a map that is filled directly.

use cleanerd_kernel::key_rows::KeyRows;
use cleanerd_kernel::offset_map::Columns;
use cleanerd_kernel::offset_map::{OffsetMap, SMALLEST_BYTES, Shard, Versions};
use proptest::prelude::*;

const COUNT: usize = 500;
const SMALLEST_VERSIONED: i64 = SMALLEST_BYTES as i64 / 2 * 3;

fn a_map(versions: bool) -> OffsetMap {
    if versions {
        OffsetMap::with_versions(SMALLEST_VERSIONED, 0.85, false).unwrap()
    } else {
        OffsetMap::new(SMALLEST_BYTES as i64, 0.85, false).unwrap()
    }
}

fn hash(key: u16) -> [u64; 2] {
    let mixed = (u64::from(key) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [mixed ^ mixed >> 31, mixed.rotate_left(17)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Shard by shard and all at once give the same found keys and retained records.
    #[test]
    fn like_records_that_were_put(
        records in prop::collection::vec((0u16..200, prop::bool::weighted(0.9), prop::option::of(-3i64..3)), 1..COUNT),
        dirty_from in 0..COUNT,
        room in 1i64..600,
        shards in 1i64..9,
        versioned in any::<bool>(),
    ) {
        let dirty_from = dirty_from.min(records.len());
        let hashes: Vec<u64> = records.iter().flat_map(|record| hash(record.0)).collect();
        let mask: Vec<bool> = records.iter().map(|record| record.1).collect();
        let version: Vec<i64> = records.iter().map(|record| record.2.unwrap_or(7)).collect();
        let has: Vec<bool> = records.iter().map(|record| record.2.is_some()).collect();
        let of = |from: usize, to: usize| Versions { version: &version[from..to], has: &has[from..to] };
        let end = records.len();

        let mut direct = a_map(versioned);
        let (clean, dirty) = ((0, dirty_from), (dirty_from, end));
        let part = |(from, to): (usize, usize)| (&hashes[2 * from..2 * to], from as i64, &mask[from..to]);
        let (keys, first, rows) = part(dirty);
        let met = if versioned {
            direct.put_max_version(keys, first, rows, of(dirty.0, dirty.1), Shard::ALL).unwrap();
            let (keys, first, rows) = part(clean);
            direct.update_existing(keys, first, rows, of(clean.0, clean.1), Shard::ALL).unwrap()
        } else {
            direct.put_max(keys, first, rows, Shard::ALL).unwrap();
            let (keys, _, rows) = part(clean);
            direct.contains(keys, rows, Shard::ALL).unwrap()
        };

        let dealt = |(from, to): (usize, usize)| {
            let mut key_rows = KeyRows::new(room, versioned).unwrap();
            let mut found: Vec<Vec<u64>> = vec![Vec::new(); shards as usize];
            let mut at = from;
            while at < to {
                let versions = versioned.then(|| of(at, to));
                let (keys, first, rows) = part((at, to));
                at += key_rows.add(keys, first, rows, versions).unwrap();
                assert!(key_rows.len() <= room as usize);
                let width = if versioned { 4 } else { 3 };
                let (words, counts) = key_rows.deal(shards).unwrap();
                let mut next = 0;
                for (shard, count) in counts.iter().enumerate() {
                    found[shard].extend(&words[next * width..(next + *count as usize) * width]);
                    next += *count as usize;
                }
                assert_eq!((next * width, key_rows.is_empty()), (words.len(), true));
            }
            found
        };
        let (clean, dirty) = (dealt(clean), dealt(dirty));
        let mut winners = vec![0u64; end.div_ceil(64)];
        let mut met_rows = vec![false; dirty_from];
        let mut entries = 0;
        for shard in 0..shards as usize {
            let mut map = a_map(versioned);
            let rows = Columns::of(&dirty[shard], versioned).unwrap();
            prop_assert_eq!(map.put_rows(&rows, Shard::ALL).unwrap(), rows.ordinals.len());
            let rows = Columns::of(&clean[shard], versioned).unwrap();
            for (&ordinal, is_met) in rows.ordinals.iter().zip(map.meet_rows(&rows, Shard::ALL).unwrap()) {
                met_rows[ordinal as usize] = is_met;
            }
            map.mark_winners(0, end as i64, &mut winners).unwrap();
            entries += map.len();
        }
        prop_assert_eq!(met_rows, met);
        prop_assert_eq!(winners, direct.winners(0, end as i64).unwrap());
        prop_assert_eq!(entries, direct.len());
    }
}

/// A shard has the keys of two shards if there are twice as many.
#[test]
fn a_shard_has_two_halves() {
    for count in [1i64, 3, 8] {
        let hashes: Vec<u64> = (0..1000).flat_map(hash).collect();
        let mask = vec![true; 1000];
        let of = |shards: i64| {
            let mut rows = KeyRows::new(1000, false).unwrap();
            rows.add(&hashes, 0, &mask, None).unwrap();
            rows.deal(shards).unwrap().1
        };
        let halves: Vec<u64> = of(2 * count).chunks(2).map(|two| two.iter().sum()).collect();
        assert_eq!(halves, of(count));
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    assert!(KeyRows::new(0, false).is_err());
    let mut rows = KeyRows::new(5, false).unwrap();
    assert!(rows.add(&[1, 2], 0, &[true, true], None).is_err());
    assert!(rows.add(&[1, 2], -1, &[true], None).is_err());
    assert!(rows.add(&[1, 2], 0, &[true], Some(Versions { version: &[1], has: &[true] })).is_err());
    assert!(rows.deal(0).is_err());
    assert!(Columns::of(&[1, 2], false).is_err());
    let too_high = Columns::of(&[1, 2, 1 << 39], false).unwrap();
    assert!(a_map(false).put_rows(&too_high, Shard::ALL).is_err());
    let plain = Columns::of(&[1, 2, 3], false).unwrap();
    assert!(a_map(true).put_rows(&plain, Shard::ALL).is_err());
    assert!(a_map(true).meet_rows(&plain, Shard::ALL).is_err());
    assert!(a_map(false).mark_winners(0, 65, &mut [0]).is_err());
}
