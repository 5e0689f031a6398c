//! Compares the offset map with `HashMap`: few lines, long chains, full maps.

use std::collections::HashMap;

use cleanerd_kernel::Error;
use cleanerd_kernel::offset_map::{MAX_ORDINAL, OffsetMap, SMALLEST_BYTES, Shard, Versions};
use proptest::prelude::*;

const SLOTS: usize = SMALLEST_BYTES / 16;

/// A key's hash with one of few home lines and steps, so that lines become full and chains long.
fn crowded(key: u16, homes: u16) -> [u64; 2] {
    let mut mixed = u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 29;
    let home = u64::from(key % homes) * ((1 << 40) / u64::from(homes));
    [mixed << 32, u64::from(key) << 40 | home]
}

/// 768 lines with the words of their slots.
const SMALLEST_VERSIONED: i64 = SMALLEST_BYTES as i64 / 2 * 3;

fn a_version() -> impl Strategy<Value = Option<i64>> {
    prop::option::of(prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(0i64), -2i64..3, any::<i64>()])
}

struct Model {
    ordinals: HashMap<[u64; 2], u64>,
    capacity: usize,
}

impl Model {
    fn put(&mut self, hashes: &[[u64; 2]], first: u64, mask: &[bool]) -> usize {
        for (row, hash) in hashes.iter().enumerate().filter(|&(row, _)| mask[row]) {
            if self.ordinals.len() == self.capacity && !self.ordinals.contains_key(hash) {
                return row;
            }
            let ordinal = self.ordinals.entry(*hash).or_default();
            *ordinal = (*ordinal).max(first + row as u64);
        }
        mask.len()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn like_a_hash_map(
        calls in prop::collection::vec((prop::collection::vec((0u16..900, any::<bool>()), 0..600), 0u64..5000), 1..6),
        homes in 1u16..6,
        capacity in prop_oneof![1usize..20, 200usize..900],
    ) {
        let load = (capacity as f64 + 0.5) / SLOTS as f64;
        let mut map = OffsetMap::new(SMALLEST_BYTES as i64, load, false).unwrap();
        prop_assert_eq!(map.capacity(), capacity);
        let mut model = Model { ordinals: HashMap::new(), capacity };
        for (rows, first) in &calls {
            let hashes: Vec<[u64; 2]> = rows.iter().map(|row| crowded(row.0, homes)).collect();
            let mask: Vec<bool> = rows.iter().map(|row| row.1).collect();
            let taken = map.put_max(hashes.as_flattened(), *first as i64, &mask, Shard::ALL).unwrap();
            prop_assert_eq!(taken, model.put(&hashes, *first, &mask));
            prop_assert_eq!(map.len(), model.ordinals.len());
        }
        let all: Vec<[u64; 2]> = (0..1000).map(|key| crowded(key, homes)).collect();
        let found = map.contains(all.as_flattened(), &vec![true; all.len()], Shard::ALL).unwrap();
        let expected: Vec<bool> = all.iter().map(|hash| model.ordinals.contains_key(hash)).collect();
        prop_assert_eq!(found, expected);
        let mut bits = vec![0u64; 6016 / 64];
        for &ordinal in model.ordinals.values() {
            bits[ordinal as usize / 64] |= 1 << (ordinal % 64);
        }
        prop_assert_eq!(map.winners(0, 6016).unwrap(), bits);
    }

    /// R280-4 to R280-6: the largest (has version, version, ordinal) is retained in any order; `update_existing` adds no key.
    #[test]
    fn with_versions_like_a_hash_map(
        calls in prop::collection::vec(
            (prop::collection::vec((0u16..300, any::<bool>(), a_version()), 0..300), 0i64..5000, any::<bool>()), 1..6,
        ),
        homes in 1u16..6,
        capacity in prop_oneof![1usize..20, 100usize..300],
    ) {
        let load = (capacity as f64 + 0.5) / SLOTS as f64;
        let mut map = OffsetMap::with_versions(SMALLEST_VERSIONED, load, false).unwrap();
        prop_assert_eq!(map.capacity(), capacity);
        let mut model: HashMap<[u64; 2], (Option<i64>, i64)> = HashMap::new();
        for (rows, first, add) in &calls {
            let hashes: Vec<[u64; 2]> = rows.iter().map(|row| crowded(row.0, homes)).collect();
            let mask: Vec<bool> = rows.iter().map(|row| row.1).collect();
            let version: Vec<i64> = rows.iter().map(|row| row.2.unwrap_or(i64::MAX)).collect();
            let has: Vec<bool> = rows.iter().map(|row| row.2.is_some()).collect();
            let versions = Versions { version: &version, has: &has };
            let (mut taken, mut held) = (mask.len(), vec![false; mask.len()]);
            for row in (0..mask.len()).filter(|&row| mask[row]) {
                held[row] = model.contains_key(&hashes[row]);
                if !held[row] && (!add || model.len() == capacity) {
                    taken = if *add { row } else { taken };
                    if *add { break } else { continue }
                }
                let rank = (rows[row].2, first + row as i64); // None is below Some
                let entry = model.entry(hashes[row]).or_insert(rank);
                *entry = rank.max(*entry);
            }
            if *add {
                let result = map.put_max_version(hashes.as_flattened(), *first, &mask, versions, Shard::ALL);
                prop_assert_eq!(result.unwrap(), taken);
            } else {
                let result = map.update_existing(hashes.as_flattened(), *first, &mask, versions, Shard::ALL);
                prop_assert_eq!(result.unwrap(), held);
            }
            prop_assert_eq!(map.len(), model.len());
        }
        let mut bits = vec![0u64; 5312 / 64];
        for &(_, ordinal) in model.values() {
            bits[ordinal as usize / 64] |= 1 << (ordinal % 64);
        }
        prop_assert_eq!(map.winners(0, 5312).unwrap(), bits);
        let all: Vec<[u64; 2]> = (0..400).map(|key| crowded(key, homes)).collect();
        let found = map.contains(all.as_flattened(), &vec![true; all.len()], Shard::ALL).unwrap();
        prop_assert_eq!(found, all.iter().map(|hash| model.contains_key(hash)).collect::<Vec<_>>());
        map.clear();
        prop_assert!(map.winners(0, 5312).unwrap().iter().all(|&word| word == 0));
    }

    #[test]
    fn shards_divide_the_keys(keys in prop::collection::vec(any::<[u64; 2]>(), 1..200), shards in 1i64..9) {
        let mask = vec![true; keys.len()];
        let mut held = vec![0; keys.len()];
        for shard in 0..shards {
            let shard = Shard::new(shard, shards).unwrap();
            let mut map = OffsetMap::new(SMALLEST_BYTES as i64, 0.85, false).unwrap();
            prop_assert_eq!(map.put_max(keys.as_flattened(), 0, &mask, shard).unwrap(), keys.len());
            let found = map.contains(keys.as_flattened(), &mask, shard).unwrap();
            let everywhere = map.contains(keys.as_flattened(), &mask, Shard::ALL).unwrap();
            prop_assert_eq!(&found, &everywhere);
            for (count, found) in held.iter_mut().zip(found) {
                *count += i32::from(found);
            }
        }
        prop_assert!(held.iter().all(|&count| count == 1));
    }
}

/// In a full map chains go around once, and a miss still ends.
#[test]
fn a_map_without_a_free_slot() {
    let mut map = OffsetMap::new(SMALLEST_BYTES as i64, 1.0, false).unwrap();
    let hashes: Vec<[u64; 2]> = (0..=SLOTS as u16).map(|key| crowded(key, 3)).collect();
    let mask = vec![true; hashes.len()];
    assert_eq!(map.put_max(hashes.as_flattened(), 0, &mask, Shard::ALL).unwrap(), SLOTS);
    let found = map.contains(hashes.as_flattened(), &mask, Shard::ALL).unwrap();
    assert_eq!(found.iter().filter(|&&found| found).count(), SLOTS);
    assert!(!found[SLOTS]);
    map.clear();
    assert_eq!(map.put_max(hashes.as_flattened(), 0, &mask, Shard::ALL).unwrap(), SLOTS);
}

#[test]
fn the_largest_ordinal() {
    let mut map = OffsetMap::new(SMALLEST_BYTES as i64, 0.85, true).unwrap();
    assert_eq!(map.put_max(&[1, 2], MAX_ORDINAL as i64, &[true], Shard::ALL).unwrap(), 1);
    assert!(matches!(map.put_max(&[1, 2], MAX_ORDINAL as i64 + 1, &[true], Shard::ALL), Err(Error::Invalid(_))));
    let bits = map.winners(MAX_ORDINAL as i64 / 64 * 64, 63).unwrap();
    assert_eq!(bits, [1 << 62]);
}

/// One ordinal fewer than without versions, whether it is stored in the line or in the word.
#[test]
fn the_largest_ordinal_with_versions() {
    for has in [true, false] {
        let mut map = OffsetMap::with_versions(SMALLEST_VERSIONED, 0.85, true).unwrap();
        let versions = Versions { version: &[i64::MIN], has: &[has] };
        let mut put = |ordinal| map.put_max_version(&[1, 2], ordinal, &[true], versions, Shard::ALL);
        assert!(matches!(put(MAX_ORDINAL as i64), Err(Error::Invalid(_))));
        assert_eq!(put(MAX_ORDINAL as i64 - 1).unwrap(), 1);
        assert_eq!(map.winners(MAX_ORDINAL as i64 / 64 * 64, 62).unwrap(), [1 << 61]);
        assert!(map.winners(MAX_ORDINAL as i64 / 64 * 64, 63).is_err());
    }
}

#[test]
fn versions_belong_to_maps_that_have_them() {
    let versions = Versions { version: &[1], has: &[true] };
    let mut plain = OffsetMap::new(SMALLEST_BYTES as i64, 0.85, false).unwrap();
    assert!(plain.put_max_version(&[1, 2], 0, &[true], versions, Shard::ALL).is_err());
    assert!(plain.update_existing(&[1, 2], 0, &[true], versions, Shard::ALL).is_err());
    let mut map = OffsetMap::with_versions(SMALLEST_VERSIONED, 0.85, false).unwrap();
    assert!(map.put_max(&[1, 2], 0, &[true], Shard::ALL).is_err());
    for (version, has) in [(&[1i64][..], &[true, true][..]), (&[], &[true])] {
        assert!(map.put_max_version(&[1, 2], 0, &[true], Versions { version, has }, Shard::ALL).is_err());
    }
    assert!(plain.is_empty() && map.is_empty());
}

#[test]
fn identity() {
    let map = OffsetMap::with_versions(SMALLEST_VERSIONED, 0.85, false).unwrap();
    assert!(map.identity_bits() >= 96.0);
    assert_eq!(map.memory_bytes() as i64, SMALLEST_VERSIONED);
    assert!(map.memory_bytes() as f64 / map.capacity() as f64 <= 30.0);
    assert!(OffsetMap::with_versions(SMALLEST_VERSIONED - 1, 0.85, false).is_err());
    let map = OffsetMap::new(SMALLEST_BYTES as i64, 0.85, false).unwrap();
    assert!(map.identity_bits() >= 96.0);
    assert!(OffsetMap::new(SMALLEST_BYTES as i64 - 1, 0.85, false).is_err());
}

#[test]
fn an_empty_slot_holds_no_key_not_even_the_one_of_all_zeros() {
    let mut map = OffsetMap::new(SMALLEST_BYTES as i64, 0.85, false).unwrap();
    // The second key has the same upper tag bits and the same lines.
    let hashes = [[0, 0], [0, 1 << 40]];
    assert_eq!(map.contains(hashes.as_flattened(), &[true; 2], Shard::ALL).unwrap(), [false; 2]);
    assert_eq!(map.put_max(hashes.as_flattened(), 7, &[false, true], Shard::ALL).unwrap(), 2);
    assert_eq!(map.contains(hashes.as_flattened(), &[true; 2], Shard::ALL).unwrap(), [false, true]);
    assert_eq!(map.put_max(hashes.as_flattened(), 9, &[true; 2], Shard::ALL).unwrap(), 2);
    assert_eq!((map.len(), map.winners(0, 64).unwrap()), (2, vec![1 << 9 | 1 << 10]));
}
