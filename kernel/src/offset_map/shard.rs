//! A part of all keys, for maps that cannot contain all of them at once.

use crate::error::{Error, invalid};

/// The keys of a call: shard `number` of `count`.
#[derive(Debug, Clone, Copy)]
pub struct Shard {
    number: u64,
    count: u64,
}

impl Shard {
    pub fn new(number: i64, count: i64) -> Result<Self, Error> {
        match (u64::try_from(number), u32::try_from(count)) {
            (Ok(number), Ok(count)) if number < u64::from(count) => Ok(Self { number, count: count.into() }),
            _ => invalid(format!("shard {number} of {count} does not exist")),
        }
    }

    pub const ALL: Self = Self { number: 0, count: 1 };

    /// By the upper tag bits, which select neither line of a key.
    #[inline(always)]
    pub(super) fn has(self, low: u64) -> bool {
        self.count == 1 || Self::of(low, self.count) == self.number
    }

    /// The shard of a key, one of `count`. Shard `n` of `count` has the keys of shards `2n` and `2n + 1` of `2 * count`.
    #[inline(always)]
    pub(crate) fn of(low: u64, count: u64) -> u64 {
        ((low >> 32) * count) >> 32
    }
}
