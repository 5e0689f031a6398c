//! Eight words in two registers of 256 bits.

use pulp::x86::V3;
use pulp::{cast, u64x4};

use super::{Row, Words};

#[derive(Clone, Copy)]
pub(super) struct Halves(pub(super) V3);

impl Words for Halves {
    type Row = [u64x4; 2];

    #[inline(always)]
    fn load(self, words: &Row) -> [u64x4; 2] {
        cast(*words)
    }

    #[inline(always)]
    fn store(self, row: [u64x4; 2]) -> Row {
        cast(row)
    }

    #[inline(always)]
    fn splat(self, word: u64) -> [u64x4; 2] {
        [self.0.splat_u64x4(word); 2]
    }

    #[inline(always)]
    fn add(self, [left, right]: [u64x4; 2], [more_left, more_right]: [u64x4; 2]) -> [u64x4; 2] {
        [self.0.wrapping_add_u64x4(left, more_left), self.0.wrapping_add_u64x4(right, more_right)]
    }

    #[inline(always)]
    fn xor(self, [left, right]: [u64x4; 2], [more_left, more_right]: [u64x4; 2]) -> [u64x4; 2] {
        [self.0.xor_u64x4(left, more_left), self.0.xor_u64x4(right, more_right)]
    }

    #[inline(always)]
    fn turn<const LEFT: i32, const RIGHT: i32>(self, row: [u64x4; 2]) -> [u64x4; 2] {
        let simd = self.0;
        row.map(|half| simd.or_u64x4(simd.shl_const_u64x4::<LEFT>(half), simd.shr_const_u64x4::<RIGHT>(half)))
    }
}
