//! SipHash-1-3-128 of record keys, eight at a time.
//!
//! One hash is a chain of some forty dependent steps. Eight of them in a vector register take the same time. So keys wait in a
//! [`Lanes`] until there are eight with the same number of words. Longer keys are hashed at once.

#[cfg(target_arch = "x86_64")]
mod halves;

use pulp::Arch;
use siphasher::sip128::SipHasher13;

/// Keys that are hashed together, in one register of 512 bits.
const LANES: usize = 8;
/// Keys with up to this many whole words of 8 bytes wait for others.
const MOST_WORDS: usize = 5;

type Row = [u64; LANES];

/// Waiting keys with the same number of whole words and a rest of up to 7 bytes, and the rows for their hashes.
#[derive(Clone, Copy, Default)]
struct Lanes {
    count: usize,
    rows: [usize; LANES],
    /// The whole words, then the last word: the rest of the key and its length.
    words: [Row; MOST_WORDS + 1],
}

/// Hashes keys into a column with two words per row.
pub struct KeyHasher {
    alone: SipHasher13,
    start: [u64; 4],
    arch: Arch,
    waiting: [Lanes; MOST_WORDS + 1],
}

impl KeyHasher {
    /// `key`: the key of SipHash.
    pub fn new(key: &[u8; 16]) -> Self {
        let (k0, k1) = (word(&key[..8]), word(&key[8..]));
        Self {
            alone: SipHasher13::new_with_key(key),
            start: [
                k0 ^ 0x736f_6d65_7073_6575,
                k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
                k0 ^ 0x6c79_6765_6e65_7261,
                k1 ^ 0x7465_6462_7974_6573,
            ],
            arch: Arch::new(),
            waiting: [Lanes::default(); MOST_WORDS + 1],
        }
    }

    /// Appends a row to `column`; 0 without a key. Its hash is written by [`KeyHasher::finish`] at the latest.
    #[inline(always)]
    pub fn push(&mut self, key: Option<&[u8]>, column: &mut Vec<u64>) {
        let at = column.len();
        column.extend_from_slice(&[0, 0]);
        let Some(key) = key else { return };
        let (whole, rest) = key.as_chunks::<8>();
        let Some(lanes) = self.waiting.get_mut(whole.len()) else {
            let hash = self.alone.hash(key).as_u64();
            column[at] = hash.0;
            column[at + 1] = hash.1;
            return;
        };
        let lane = lanes.count % LANES;
        for (words, bytes) in lanes.words.iter_mut().zip(whole) {
            words[lane] = u64::from_le_bytes(*bytes);
        }
        lanes.words[whole.len()][lane] = last_word(key, rest);
        lanes.rows[lane] = at;
        lanes.count += 1;
        if lanes.count == LANES {
            flush(self.arch, &self.start, lanes, whole.len(), column);
        }
    }

    /// Hashes the waiting keys. Every key was pushed with this `column`.
    pub fn finish(&mut self, column: &mut [u64]) {
        for (words, lanes) in self.waiting.iter_mut().enumerate() {
            if lanes.count > 0 {
                flush(self.arch, &self.start, lanes, words, column);
            }
        }
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// The rest of the key after its whole words, with the low byte of its length on top.
#[inline(always)]
fn last_word(key: &[u8], rest: &[u8]) -> u64 {
    let length = (key.len() as u64) << 56;
    // Reading the last 8 bytes at once and shifting them is cheaper than single bytes.
    match key.last_chunk::<8>() {
        Some(_) if rest.is_empty() => length,
        Some(bytes) => length | u64::from_le_bytes(*bytes) >> (64 - 8 * rest.len()),
        None => length | word(rest),
    }
}

/// Writes the hashes of all used lanes to their rows, and frees the lanes.
#[inline(never)]
fn flush(arch: Arch, start: &[u64; 4], lanes: &mut Lanes, words: usize, column: &mut [u64]) {
    let (low, high) = hash(arch, start, &lanes.words[..=words]);
    for ((&at, low), high) in lanes.rows.iter().zip(low).zip(high).take(lanes.count) {
        column[at] = low;
        column[at + 1] = high;
    }
    lanes.count = 0;
}

/// The two words per key. Compilers rotate the words of arrays one by one if the processor cannot rotate vectors. So
/// registers of 256 bits have their own code.
#[inline(always)]
fn hash(arch: Arch, start: &[u64; 4], words: &[Row]) -> (Row, Row) {
    #[cfg(target_arch = "x86_64")]
    if let Arch::V3(simd) = arch {
        return simd.vectorize(Hash { on: halves::Halves(simd), start, words });
    }
    arch.dispatch(Hash { on: Plain, start, words })
}

/// Eight words, and SipHash's operations on them.
trait Words: Copy {
    type Row: Copy;

    fn load(self, words: &Row) -> Self::Row;
    fn store(self, row: Self::Row) -> Row;
    fn splat(self, word: u64) -> Self::Row;
    fn add(self, left: Self::Row, right: Self::Row) -> Self::Row;
    fn xor(self, left: Self::Row, right: Self::Row) -> Self::Row;
    /// Rotates to the left by `LEFT` bits, which is `64 - RIGHT`.
    fn turn<const LEFT: i32, const RIGHT: i32>(self, row: Self::Row) -> Self::Row;
}

struct Hash<'a, W> {
    on: W,
    start: &'a [u64; 4],
    words: &'a [Row],
}

impl<W: Words> pulp::NullaryFnOnce for Hash<'_, W> {
    type Output = (Row, Row);

    #[inline(always)]
    fn call(self) -> (Row, Row) {
        let on = self.on;
        let mut state = self.start.map(|word| on.splat(word));
        for words in self.words {
            let words = on.load(words);
            state[3] = on.xor(state[3], words);
            round(on, &mut state);
            state[0] = on.xor(state[0], words);
        }
        state[2] = on.xor(state[2], on.splat(0xee));
        for _ in 0..3 {
            round(on, &mut state);
        }
        let low = all(on, &state);
        state[1] = on.xor(state[1], on.splat(0xdd));
        for _ in 0..3 {
            round(on, &mut state);
        }
        (on.store(low), on.store(all(on, &state)))
    }
}

#[inline(always)]
fn round<W: Words>(on: W, state: &mut [W::Row; 4]) {
    let [mut a, mut b, mut c, mut d] = *state;
    a = on.add(a, b);
    b = on.xor(on.turn::<13, 51>(b), a);
    a = on.turn::<32, 32>(a);
    c = on.add(c, d);
    d = on.xor(on.turn::<16, 48>(d), c);
    a = on.add(a, d);
    d = on.xor(on.turn::<21, 43>(d), a);
    c = on.add(c, b);
    b = on.xor(on.turn::<17, 47>(b), c);
    c = on.turn::<32, 32>(c);
    *state = [a, b, c, d];
}

#[inline(always)]
fn all<W: Words>(on: W, state: &[W::Row; 4]) -> W::Row {
    on.xor(on.xor(state[0], state[1]), on.xor(state[2], state[3]))
}

/// Arrays, which the compiler puts into registers of 512 bits if the processor has them.
#[derive(Clone, Copy)]
struct Plain;

impl Words for Plain {
    type Row = Row;

    #[inline(always)]
    fn load(self, words: &Row) -> Row {
        *words
    }

    #[inline(always)]
    fn store(self, row: Row) -> Row {
        row
    }

    #[inline(always)]
    fn splat(self, word: u64) -> Row {
        [word; LANES]
    }

    #[inline(always)]
    fn add(self, mut left: Row, right: Row) -> Row {
        for (left, right) in left.iter_mut().zip(right) {
            *left = left.wrapping_add(right);
        }
        left
    }

    #[inline(always)]
    fn xor(self, mut left: Row, right: Row) -> Row {
        for (left, right) in left.iter_mut().zip(right) {
            *left ^= right;
        }
        left
    }

    #[inline(always)]
    fn turn<const LEFT: i32, const RIGHT: i32>(self, mut row: Row) -> Row {
        for word in &mut row {
            *word = *word << LEFT | *word >> RIGHT;
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// For keys of any lengths in any order, the words equal those of the crate's SipHash-1-3-128.
        #[test]
        fn equals_one_by_one(
            key in any::<[u8; 16]>(),
            keys in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..70)), 0..200),
        ) {
            let mut hasher = KeyHasher::new(&key);
            let mut column = vec![];
            for each in &keys {
                hasher.push(each.as_deref(), &mut column);
            }
            hasher.finish(&mut column);
            let alone = SipHasher13::new_with_key(&key);
            let wanted: Vec<u64> = keys
                .iter()
                .map(|each| each.as_ref().map_or((0, 0), |bytes| alone.hash(bytes).as_u64()))
                .flat_map(|(low, high)| [low, high])
                .collect();
            prop_assert_eq!(column, wanted);
        }

        /// The code for registers and the code for arrays give the same words.
        #[test]
        fn all_ways_to_hash_agree(
            start in any::<[u64; 4]>(), words in prop::collection::vec(any::<Row>(), 1..=MOST_WORDS + 1),
        ) {
            let plain = Hash { on: Plain, start: &start, words: &words };
            prop_assert_eq!(hash(Arch::new(), &start, &words), pulp::NullaryFnOnce::call(plain));
        }
    }
}
