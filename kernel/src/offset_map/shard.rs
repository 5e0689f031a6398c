//! A part of all keys, for maps that do not hold them all at once.

use crate::error::{Error, invalid};

/// Which keys a call is about.
#[derive(Debug, Clone, Copy)]
pub struct Shard {
    number: u64,
    count: u64,
}

impl Shard {
    pub fn new(number: i64, count: i64) -> Result<Self, Error> {
        match (u64::try_from(number), u32::try_from(count)) {
            (Ok(number), Ok(count)) if number < u64::from(count) => Ok(Self { number, count: count.into() }),
            _ => invalid(format!("no shard {number} of {count}")),
        }
    }

    pub const ALL: Self = Self { number: 0, count: 1 };

    /// From the upper tag bits, which decide over neither line of a key.
    #[inline(always)]
    pub(super) fn has(self, low: u64) -> bool {
        self.count == 1 || Self::of(low, self.count) == self.number
    }

    /// The shard of a key, one of `count`. Shard `n` of `count` is made of the shards `2n` and `2n + 1` of twice as many.
    #[inline(always)]
    pub(crate) fn of(low: u64, count: u64) -> u64 {
        ((low >> 32) * count) >> 32
    }
}
