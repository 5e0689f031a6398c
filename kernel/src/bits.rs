//! Bitmaps of records: u64 words, bit `i` of word `i / 64` counted from the least significant bit.

use crate::error::{Error, invalid};

const WORD_BITS: usize = 64;

/// The bits `start..end` that are in word `word`, as a mask.
fn mask(word: usize, start: usize, end: usize) -> u64 {
    let low = start.saturating_sub(word * WORD_BITS).min(WORD_BITS);
    let high = end.saturating_sub(word * WORD_BITS).min(WORD_BITS);
    ones(high) & !ones(low)
}

/// The lowest `count` bits, `count <= 64`.
fn ones(count: usize) -> u64 {
    if count >= WORD_BITS { u64::MAX } else { (1 << count) - 1 }
}

pub fn words_for(bits: usize) -> usize {
    bits.div_ceil(WORD_BITS)
}

#[inline(always)]
pub fn is_set(bits: &[u64], bit: usize) -> bool {
    bits.get(bit / WORD_BITS).is_some_and(|word| word >> (bit % WORD_BITS) & 1 != 0)
}

fn check_ascending(first_record: &[u32]) -> Result<usize, Error> {
    if first_record.is_sorted() {
        first_record.last().map_or_else(|| invalid("first_record is empty"), |&last| Ok(last as usize))
    } else {
        invalid("first_record is not ascending")
    }
}

fn count_range(bits: &[u64], start: usize, end: usize) -> u32 {
    let (first, last) = (start / WORD_BITS, words_for(end));
    let bit = start % WORD_BITS;
    if bit + (end - start) <= WORD_BITS {
        // All bits are in one word, as for one record: no loop and no masks are needed.
        return bits.get(first).map_or(0, |word| (word >> bit & ones(end - start)).count_ones());
    }
    let words = bits.get(first..last).unwrap_or_default();
    words.iter().zip(first..).map(|(word, index)| (word & mask(index, start, end)).count_ones()).sum()
}

/// Number of set bits per batch.
pub fn popcount_by_batch(bits: &[u64], first_record: &[u32]) -> Result<Vec<u32>, Error> {
    let end = check_ascending(first_record)?;
    if words_for(end) > bits.len() {
        return invalid(format!("{} words have fewer than {end} bits", bits.len()));
    }
    let Some((_, ends)) = first_record.split_first() else {
        return Ok(Vec::new());
    };
    let mut counts = Vec::with_capacity(ends.len());
    for (starts, ends) in first_record.chunks(BLOCK_BATCHES).zip(ends.chunks(BLOCK_BATCHES)) {
        if let (BLOCK_BATCHES, Some(&first)) = (ends.len(), starts.first())
            && starts.iter().zip(ends).fold(true, |single, (start, end)| single & (end - start == 1))
        {
            let records = next_bits(bits, first as usize);
            counts.extend((0..BLOCK_BATCHES).map(|record| records >> record & 1));
        } else {
            let ranges = starts.iter().zip(ends);
            counts.extend(ranges.map(|(&start, &end)| count_range(bits, start as usize, end as usize)));
        }
    }
    Ok(counts)
}

/// Batches of one record are mostly neighbours. This many are counted at once, bit by bit.
const BLOCK_BATCHES: usize = 32;

/// The next 32 bits from `start` on.
fn next_bits(bits: &[u64], start: usize) -> u32 {
    let (word, bit) = (start / WORD_BITS, start % WORD_BITS);
    let [low, high] = [word, word + 1].map(|word| u128::from(bits.get(word).copied().unwrap_or(0)));
    ((high << WORD_BITS | low) >> bit) as u32
}

/// Sets the bits of all records in the flagged batches.
pub fn fill_by_batch(flags: &[bool], first_record: &[u32]) -> Result<Vec<u64>, Error> {
    let end = check_ascending(first_record)?;
    if flags.len() + 1 != first_record.len() {
        return invalid(format!("there are {} flags for {} batches", flags.len(), first_record.len() - 1));
    }
    let mut bits = vec![0; words_for(end)];
    for ((&start, &end), _) in
        first_record.iter().zip(first_record.iter().skip(1)).zip(flags).filter(|&(_, &flag)| flag)
    {
        let (start, end) = (start as usize, end as usize);
        let (first, last) = (start / WORD_BITS, words_for(end));
        for (word, index) in bits.get_mut(first..last).unwrap_or_default().iter_mut().zip(first..) {
            *word |= mask(index, start, end);
        }
    }
    Ok(bits)
}

/// Overwrites the bits from `first_bit` on with `values`.
pub fn store_bits(bits: &mut [u64], first_bit: i64, values: &[bool]) -> Result<(), Error> {
    let Ok(first_bit) = usize::try_from(first_bit) else {
        return invalid(format!("first_bit {first_bit} is negative"));
    };
    if first_bit.checked_add(values.len()).is_none_or(|end| words_for(end) > bits.len()) {
        return invalid(format!("{} words have fewer than {} bits from bit {first_bit} on", bits.len(), values.len()));
    }
    let (head, body) = values.split_at(values.len().min((WORD_BITS - first_bit % WORD_BITS) % WORD_BITS));
    store_word(bits, first_bit, head);
    let mut bit = first_bit + head.len();
    for word in body.chunks(WORD_BITS) {
        store_word(bits, bit, word);
        bit += word.len();
    }
    Ok(())
}

/// Overwrites bits of one word.
fn store_word(bits: &mut [u64], first_bit: usize, values: &[bool]) {
    if values.is_empty() {
        return;
    }
    let mut packed = 0;
    for (index, &value) in values.iter().enumerate() {
        packed |= u64::from(value) << index;
    }
    let shift = first_bit % WORD_BITS;
    if let Some(word) = bits.get_mut(first_bit / WORD_BITS) {
        *word = *word & !(ones(values.len()) << shift) | packed << shift;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table() -> impl Strategy<Value = Vec<(u32, bool)>> {
        prop::collection::vec((prop_oneof![0u32..5, 60u32..70, 0u32..300], any::<bool>()), 0..12)
    }

    fn first_record(batches: &[(u32, bool)]) -> Vec<u32> {
        let counts = batches.iter().scan(0, |sum, (count, _)| {
            *sum += count;
            Some(*sum)
        });
        std::iter::once(0).chain(counts).collect()
    }

    proptest! {
        #[test]
        fn filled_batches_count_all_their_records(batches in table()) {
            let first = first_record(&batches);
            let flags: Vec<bool> = batches.iter().map(|batch| batch.1).collect();
            let bits = fill_by_batch(&flags, &first).unwrap();
            prop_assert_eq!(bits.len(), first[batches.len()].div_ceil(64) as usize);
            let expected: Vec<u32> = batches.iter().map(|&(count, flag)| if flag { count } else { 0 }).collect();
            prop_assert_eq!(popcount_by_batch(&bits, &first).unwrap(), expected);
        }

        #[test]
        fn records_are_counted_batch_by_batch(
            counts in prop::collection::vec(prop_oneof![200 => Just(1u32), 1 => Just(0), 1 => 2u32..200], 0..600),
            words in prop::collection::vec(any::<u64>(), 700),
        ) {
            let table: Vec<(u32, bool)> = counts.iter().map(|&count| (count, true)).collect();
            let first = first_record(&table);
            let words = words.repeat(1 + first[counts.len()] as usize / 64 / 700);
            let expected: Vec<u32> = first
                .iter()
                .zip(first.iter().skip(1))
                .map(|(&start, &end)| (start..end).filter(|&record| is_set(&words, record as usize)).count() as u32)
                .collect();
            prop_assert_eq!(popcount_by_batch(&words, &first).unwrap(), expected);
        }

        #[test]
        fn stored_bits_are_read_and_others_stay(
            old in prop::collection::vec(any::<u64>(), 1..6), first in 0usize..400, values in prop::collection::vec(any::<bool>(), 0..300),
        ) {
            let mut bits = old.clone();
            let fits = first + values.len() <= old.len() * 64;
            let result = store_bits(&mut bits, first as i64, &values);
            prop_assert_eq!(result.is_ok(), fits || (values.is_empty() && first.div_ceil(64) <= old.len()));
            for bit in 0..old.len() * 64 {
                let expected = match bit.checked_sub(first).and_then(|index| values.get(index)) {
                    Some(&value) if fits => value,
                    _ => is_set(&old, bit),
                };
                prop_assert_eq!(is_set(&bits, bit), expected);
            }
        }
    }

    #[test]
    fn a_table_that_is_not_ascending_is_refused() {
        assert!(popcount_by_batch(&[0; 2], &[0, 5, 4]).is_err());
        assert!(popcount_by_batch(&[0; 2], &[]).is_err());
        assert!(popcount_by_batch(&[0; 2], &[0, 129]).is_err());
        assert!(fill_by_batch(&[true], &[0, 1, 2]).is_err());
        assert!(store_bits(&mut [0], -1, &[true]).is_err());
    }
}
