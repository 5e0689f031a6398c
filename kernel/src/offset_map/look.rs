//! Looking at a line: all four entries at once where the processor can.

use pulp::{Arch, NullaryFnOnce};

use super::{Line, ORDINAL_MASK, Probe, SLOTS, TAG_SHIFT};

/// A way to look at a line.
pub(super) trait Look: Copy {
    /// (index of the first match, any match, entries in use); the index is `SLOTS` where there is none.
    fn at(self, line: &Line, probe: &Probe) -> (usize, bool, usize);
}

/// What looks at many lines.
pub(super) trait Task {
    type Output;

    fn run<L: Look>(self, look: L) -> Self::Output;
}

/// Runs it in the way that this processor is best at.
pub(super) fn run<T: Task>(task: T) -> T::Output {
    match Arch::new() {
        #[cfg(target_arch = "x86_64")]
        Arch::V3(simd) => simd.vectorize(Call { look: four::Four(simd), task }),
        #[cfg(target_arch = "x86_64")]
        Arch::V4(simd) => simd.vectorize(Call { look: four::Four(*simd), task }),
        other => other.dispatch(Call { look: Single, task }),
    }
}

struct Call<L, T> {
    look: L,
    task: T,
}

impl<L: Look, T: Task> NullaryFnOnce for Call<L, T> {
    type Output = T::Output;

    #[inline(always)]
    fn call(self) -> T::Output {
        self.task.run(self.look)
    }
}

/// One entry after the other.
#[derive(Clone, Copy)]
pub(super) struct Single;

impl Look for Single {
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
    use super::{Line, Look, ORDINAL_MASK, Probe, SLOTS, TAG_SHIFT};
    use pulp::x86::V3;
    use pulp::{cast, m64x4, u64x4};

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

    impl Look for Four {
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

        fn run<L: Look>(self, look: L) -> Self::Output {
            self.0.iter().map(|line| look.at(line, &self.1)).collect()
        }
    }

    /// Of few tags, so that entries are alike; with and without an ordinal, and the spare bit.
    fn entry() -> impl Strategy<Value = (u64, u64)> {
        let ordinal = prop_oneof![Just(0), Just(1), Just(ORDINAL_MASK), 0..=ORDINAL_MASK];
        let high = prop_oneof![0u64..2, Just((1 << 24) - 1)];
        (prop_oneof![0u64..2, Just(u64::MAX)], high, any::<bool>(), ordinal)
            .prop_map(|(low, high, spare, ordinal)| (low, high << TAG_SHIFT | u64::from(spare) << 39 | ordinal))
    }

    proptest! {
        /// However many entries are looked at in one go, the answer is that of one after the other.
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
    }
}
