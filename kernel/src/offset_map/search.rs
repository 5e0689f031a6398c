//! Compares keys with lines: all four entries at once if the processor supports it, and with prefetched lines.

use std::hint::black_box;

use pulp::{Arch, NullaryFnOnce};

use super::{Line, ORDINAL_MASK, OffsetMap, Probe, SLOTS, Shard, TAG_SHIFT};

/// Number of keys whose lines are read ahead, without a prefetch instruction.
const READ_AHEAD: usize = 128;
/// Number of keys whose lines are prefetched by an instruction. One more is prefetched after each comparison, because the
/// processor drops most of many prefetches at once.
const PREFETCH_AHEAD: usize = 32;

/// A way to compare a key with a line.
pub(super) trait Search: Copy {
    /// Whether [`Search::prefetch_word`] returns before the memory is in the cache.
    const NO_WAIT: bool;

    /// Brings memory into the cache. The compiler drops this call if the result is not used.
    fn prefetch_word(self, word: &u64) -> u64;

    /// (index of the first match, any match, entries in use); without a match the index is `SLOTS`.
    fn at(self, line: &Line, probe: &Probe) -> (usize, bool, usize);
}

/// Work on many lines.
pub(super) trait Task {
    type Output;

    fn run<L: Search>(self, search: L) -> Self::Output;
}

/// Work on each key.
pub(super) trait Visitor {
    /// All lines of the map.
    fn lines(&self) -> &[Line];

    /// Prefetches the memory that [`Visitor::visit`] needs.
    #[inline(always)]
    fn prefetch<L: Search>(&self, search: L, probe: &Probe) -> u64 {
        let lines = self.lines();
        search.prefetch_word(&lines[probe.home][0]) ^ search.prefetch_word(&lines[probe.other][0])
    }

    /// Handles the key of row `row`. Returns false to stop before this row.
    fn visit<L: Search>(&mut self, search: L, probe: &Probe, row: usize) -> bool;
}

/// The keys to visit, one per row.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    pub hashes: &'a [[u64; 2]],
    /// Which rows to visit.
    pub mask: &'a [bool],
    pub shard: Shard,
}

impl Keys<'_> {
    /// Visits the keys in order. Returns the number of rows before the one that stopped it.
    #[inline(always)]
    pub fn visit<L: Search>(self, search: L, visitor: &mut impl Visitor) -> usize {
        let stopped_at = if L::NO_WAIT { self.one_by_one(search, visitor) } else { self.by_blocks(search, visitor) };
        stopped_at.unwrap_or(self.mask.len())
    }

    #[inline(always)]
    fn one_by_one<L: Search>(self, search: L, visitor: &mut impl Visitor) -> Option<usize> {
        let lines = visitor.lines().len();
        let mut prefetched = [(Probe::default(), 0); PREFETCH_AHEAD];
        let mut count = 0;
        let mut seen = 0;
        for (row, (&[low, high], &wanted)) in self.hashes.iter().zip(self.mask).enumerate() {
            if !wanted || !self.shard.has(low) {
                continue;
            }
            let place = &mut prefetched[count % PREFETCH_AHEAD];
            if count >= PREFETCH_AHEAD && !visitor.visit(search, &place.0, place.1) {
                return Some(place.1);
            }
            *place = (OffsetMap::probe(lines, low, high), row);
            seen ^= visitor.prefetch(search, &place.0);
            count += 1;
        }
        black_box(seen);
        for number in count.saturating_sub(PREFETCH_AHEAD)..count {
            let (probe, row) = &prefetched[number % PREFETCH_AHEAD];
            if !visitor.visit(search, probe, *row) {
                return Some(*row);
            }
        }
        None
    }

    #[inline(always)]
    fn by_blocks<L: Search>(self, search: L, visitor: &mut impl Visitor) -> Option<usize> {
        let lines = visitor.lines().len();
        let mut probes = [(Probe::default(), 0); READ_AHEAD];
        for (block, (hashes, mask)) in self.hashes.chunks(READ_AHEAD).zip(self.mask.chunks(READ_AHEAD)).enumerate() {
            let mut count = 0;
            for (row, (&[low, high], &wanted)) in hashes.iter().zip(mask).enumerate() {
                if wanted && self.shard.has(low) {
                    probes[count] = (OffsetMap::probe(lines, low, high), block * READ_AHEAD + row);
                    count += 1;
                }
            }
            // A separate loop: with fewer instructions in between, more cache misses overlap.
            black_box(probes[..count].iter().fold(0, |seen, (probe, _)| seen ^ visitor.prefetch(search, probe)));
            for (probe, row) in &probes[..count] {
                if !visitor.visit(search, probe, *row) {
                    return Some(*row);
                }
            }
        }
        None
    }
}

/// Runs the task in the fastest way for this processor.
pub(super) fn run<T: Task>(task: T) -> T::Output {
    match Arch::new() {
        #[cfg(target_arch = "x86_64")]
        Arch::V3(simd) => simd.vectorize(Call { search: four::Four(simd), task }),
        #[cfg(target_arch = "x86_64")]
        Arch::V4(simd) => simd.vectorize(Call { search: four::Four(*simd), task }),
        other => other.dispatch(Call { search: Single, task }),
    }
}

struct Call<L, T> {
    search: L,
    task: T,
}

impl<L: Search, T: Task> NullaryFnOnce for Call<L, T> {
    type Output = T::Output;

    #[inline(always)]
    fn call(self) -> T::Output {
        self.task.run(self.search)
    }
}

/// Compares one entry after the other.
#[derive(Clone, Copy)]
pub(super) struct Single;

impl Search for Single {
    const NO_WAIT: bool = false;

    #[inline(always)]
    fn prefetch_word(self, word: &u64) -> u64 {
        *word
    }

    #[inline(always)]
    fn at(self, line: &Line, probe: &Probe) -> (usize, bool, usize) {
        let mut slot = SLOTS;
        let mut used = 0;
        for index in (0..SLOTS).rev() {
            let word = line[SLOTS + index];
            let taken = word & ORDINAL_MASK != 0;
            used += usize::from(taken);
            let same = taken & (line[index] == probe.tag_low) & (word >> TAG_SHIFT == probe.tag_high);
            slot = if same { index } else { slot };
        }
        (slot, slot < SLOTS, used)
    }
}

#[cfg(target_arch = "x86_64")]
mod four {
    use super::{Line, ORDINAL_MASK, Probe, SLOTS, Search, TAG_SHIFT};
    use pulp::x86::V3;
    use pulp::{cast, m64x4, u64x4};
    use std::arch::x86_64::_MM_HINT_T0;
    use std::ptr;

    /// A line is two registers of 256 bits.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Four(pub(in super::super) V3);

    impl Four {
        /// A bit for each entry.
        #[inline(always)]
        fn bits(self, mask: m64x4) -> u32 {
            self.0.avx._mm256_movemask_pd(cast(mask)) as u32
        }
    }

    impl Search for Four {
        const NO_WAIT: bool = true;

        #[inline(always)]
        fn prefetch_word(self, word: &u64) -> u64 {
            self.0.sse._mm_prefetch::<_MM_HINT_T0>(ptr::from_ref(word).cast());
            0
        }

        #[inline(always)]
        fn at(self, line: &Line, probe: &Probe) -> (usize, bool, usize) {
            let simd = self.0;
            let [low, words]: [u64x4; 2] = cast(*line);
            let none = self
                .bits(simd.cmp_eq_u64x4(simd.and_u64x4(words, simd.splat_u64x4(ORDINAL_MASK)), simd.splat_u64x4(0)));
            let high = simd.shr_const_u64x4::<{ TAG_SHIFT as i32 }>(words);
            let same_high = simd.cmp_eq_u64x4(high, simd.splat_u64x4(probe.tag_high));
            let same_low = simd.cmp_eq_u64x4(low, simd.splat_u64x4(probe.tag_low));
            let same = self.bits(simd.and_m64x4(same_low, same_high)) & !none;
            let slot = (same | 1 << SLOTS).trailing_zeros() as usize;
            (slot, same != 0, SLOTS - none.count_ones() as usize)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct AllOf<'a>(&'a [Line], Probe);

    impl Task for AllOf<'_> {
        type Output = Vec<(usize, bool, usize)>;

        fn run<L: Search>(self, search: L) -> Self::Output {
            self.0.iter().map(|line| search.at(line, &self.1)).collect()
        }
    }

    /// Collects the visited rows, up to `most`.
    struct Noted<'a> {
        lines: &'a [Line],
        rows: Vec<usize>,
        most: usize,
    }

    impl Visitor for Noted<'_> {
        fn lines(&self) -> &[Line] {
            self.lines
        }

        fn visit<L: Search>(&mut self, _: L, probe: &Probe, row: usize) -> bool {
            assert_eq!(probe.tag_low, row as u64);
            let room = self.rows.len() < self.most;
            if room {
                self.rows.push(row);
            }
            room
        }
    }

    struct Visit<'a>(Keys<'a>, Noted<'a>);

    impl Task for Visit<'_> {
        type Output = (usize, Vec<usize>);

        fn run<L: Search>(mut self, search: L) -> Self::Output {
            (self.0.visit(search, &mut self.1), self.1.rows)
        }
    }

    /// Few tags, so that entries are similar; with and without an ordinal and the spare bit.
    fn entry() -> impl Strategy<Value = (u64, u64)> {
        let ordinal = prop_oneof![Just(0), Just(1), Just(ORDINAL_MASK), 0..=ORDINAL_MASK];
        let high = prop_oneof![0u64..2, Just((1 << 24) - 1)];
        (prop_oneof![0u64..2, Just(u64::MAX)], high, any::<bool>(), ordinal)
            .prop_map(|(low, high, spare, ordinal)| (low, high << TAG_SHIFT | u64::from(spare) << 39 | ordinal))
    }

    proptest! {
        /// Comparing several entries at once gives the same result as one after the other.
        #[test]
        fn all_ways_to_look_agree(
            lines in prop::collection::vec(prop::array::uniform4(entry()), 0..40), tag in entry(),
        ) {
            let lines: Vec<Line> = lines
                .iter()
                .map(|entries| std::array::from_fn(|word| {
                    let (low, high) = entries[word % SLOTS];
                    if word < SLOTS { low } else { high }
                }))
                .collect();
            let probe = Probe { tag_low: tag.0, tag_high: tag.1 >> TAG_SHIFT, home: 0, other: 0 };
            prop_assert_eq!(run(AllOf(&lines, probe)), AllOf(&lines, probe).run(Single));
        }

        /// One by one or block by block: visits the keys in order, and none after the one that stopped it.
        #[test]
        fn keys_come_in_order(mask in prop::collection::vec(prop::bool::weighted(0.8), 0..1500), most in 0usize..1500) {
            let lines = [[0; 8]; 8];
            let hashes: Vec<[u64; 2]> = (0..mask.len() as u64).map(|row| [row, 7]).collect();
            let keys = Keys { hashes: &hashes, mask: &mask, shard: Shard::ALL };
            let wanted: Vec<usize> = (0..mask.len()).filter(|&row| mask[row]).collect();
            let stopped_at = wanted.get(most).copied().unwrap_or(mask.len());
            let expected = (stopped_at, wanted[..most.min(wanted.len())].to_vec());
            let visit = || Visit(keys, Noted { lines: &lines, rows: vec![], most });
            prop_assert_eq!(&visit().run(Single), &expected);
            prop_assert_eq!(run(visit()), expected);
        }
    }
}
