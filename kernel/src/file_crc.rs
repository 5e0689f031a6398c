//! The CRC-32C of a file from the checksums of its batches.
//!
//! `crc(A + B)` is `crc(A) * x^(8 * len(B)) + crc(B)` over GF(2), modulo the polynomial. So bytes under a batch's own CRC, which
//! was just checked, need not be read again: one multiplication replaces that.

use crate::crc32c;
use crate::header::{CRC_START, FRAME_BYTES, MAGIC_END, array, read_frame};

/// Castagnoli's polynomial in the CRC's bit order: x^0 is the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;
const ONE: u32 = 1 << 31;

/// Fewer bytes are read again, which costs less than the multiplication.
const WORTH_BYTES: usize = 1024;

/// From this many bytes on it is faster to compute a CRC without a seed and to combine both values.
const MANY_BYTES: usize = 16 << 10;

const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = ONE;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = b >> 1 ^ if b & 1 == 1 { POLYNOMIAL } else { 0 };
        bit >>= 1;
    }
    product
}

/// Products of one factor with all values of every half byte. The sum of eight of them is the product with any value.
type Products = [[u32; 16]; 8];

const fn products(factor: u32) -> Products {
    let mut products = [[0; 16]; 8];
    let mut half = 0;
    while half < products.len() {
        let mut value = 1;
        while value < 16 {
            // A value is the sum of its lowest bit and a smaller value.
            let less = value & (value - 1);
            products[half][value] = if less == 0 {
                multiply((value as u32) << (4 * half), factor)
            } else {
                products[half][less] ^ products[half][value ^ less]
            };
            value += 1;
        }
        half += 1;
    }
    products
}

/// Products with `x^(8 * 2^k)`.
static BY_POWER: [Products; 32] = {
    let mut tables = [[[0; 16]; 8]; 32];
    let mut power = ONE >> 8;
    let mut k = 0;
    while k < tables.len() {
        tables[k] = products(power);
        power = multiply(power, power);
        k += 1;
    }
    tables
};

/// `crc * x^(8 * bytes)`.
fn shift(crc: u32, bytes: u32) -> u32 {
    BY_POWER.iter().enumerate().filter(|(k, _)| bytes >> k & 1 == 1).fold(crc, |crc, (_, products)| {
        products.iter().enumerate().fold(0, |sum, (half, values)| sum ^ values[(crc >> (4 * half) & 15) as usize])
    })
}

/// CRC-32C of `data`, whose batches have verified CRCs; `seed` is the value of the bytes before.
///
/// Reads small batches, and bytes that are not a complete v2 batch; neighbouring ones at once.
pub fn crc32c_of_batches(data: &[u8], seed: u32) -> u32 {
    let mut crc = seed;
    // `crc` does not cover the bytes of `to_read` before `rest` yet.
    let mut to_read = data;
    let mut rest = data;
    while let Some((batch, after)) = split_batch(rest) {
        if let (Some(2), Some(stored), Some((front, covered))) =
            (batch.get(MAGIC_END - 1), stored_crc(batch), batch.split_at_checked(CRC_START))
            && covered.len() >= WORTH_BYTES
        {
            let (before, _) = to_read.split_at(to_read.len() - rest.len() + front.len());
            // `split_batch` limits it to less than 2^31 bytes.
            crc = shift(read_on(crc, before), covered.len() as u32) ^ stored;
            to_read = after;
        }
        rest = after;
    }
    read_on(crc, to_read)
}

/// The CRC-32C of bytes whose CRC is `seed`, followed by `data`.
fn read_on(seed: u32, data: &[u8]) -> u32 {
    // A computation with a seed takes twice the time, so many bytes are computed without one.
    if data.len() < MANY_BYTES { crc32c(data, seed) } else { combine(seed, crc32c(data, 0), data.len() as u64) }
}

/// The CRC-32C of bytes whose CRC is `first`, followed by `second_bytes` bytes whose CRC is `second`.
pub fn combine(first: u32, second: u32, second_bytes: u64) -> u32 {
    let mut shifted = first;
    let mut rest = second_bytes;
    while rest > 0 {
        let part = rest.min(u64::from(u32::MAX)) as u32;
        shifted = shift(shifted, part);
        rest -= u64::from(part);
    }
    shifted ^ second
}

fn split_batch(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, size) = read_frame(data)?;
    data.split_at_checked(usize::try_from(size.checked_add(FRAME_BYTES as i32)?).ok()?)
}

fn stored_crc(batch: &[u8]) -> Option<u32> {
    array(batch, CRC_START - 4).map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{self, Header};
    use proptest::prelude::*;

    /// A sealed v2 batch with that many payload bytes.
    fn batch(payload: usize, fill: u8) -> Vec<u8> {
        let mut bytes = vec![fill; header::HEADER_BYTES + payload];
        let header = Header {
            base_offset: 7,
            size: 0,
            leader_epoch: 3,
            magic: 2,
            crc: 0,
            attributes: 0,
            last_offset_delta: 0,
            base_timestamp: 1,
            max_timestamp: 2,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: 1,
        };
        header::seal(&header, &mut bytes, 0).expect("small enough");
        bytes
    }

    proptest! {
        #[test]
        fn equals_the_crc_of_the_bytes(
            sizes in prop::collection::vec(0usize..20_000, 0..12),
            fill in any::<u8>(),
            seed in any::<u32>(),
            tail in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut data: Vec<u8> = sizes.iter().flat_map(|&size| batch(size, fill)).collect();
            data.extend(tail);
            prop_assert_eq!(crc32c_of_batches(&data, seed), crc32c(&data, seed));
        }

        #[test]
        fn two_parts_make_a_whole(data in prop::collection::vec(any::<u8>(), 0..3_000), cut in any::<prop::sample::Index>()) {
            let (first, second) = data.split_at(cut.index(data.len() + 1));
            prop_assert_eq!(combine(crc32c(first, 0), crc32c(second, 0), second.len() as u64), crc32c(&data, 0));
        }

        #[test]
        fn bytes_that_are_no_batches_are_read(data in prop::collection::vec(any::<u8>(), 0..4_000), seed in any::<u32>()) {
            let mut data = data;
            // Batches of any magic, but all with a right CRC.
            if let Some(magic) = data.get_mut(MAGIC_END - 1) {
                *magic = 1;
            }
            if data.len() < WORTH_BYTES {
                prop_assert_eq!(crc32c_of_batches(&data, seed), crc32c(&data, seed));
            }
        }
    }

    #[test]
    fn a_batch_that_is_not_what_its_crc_says_shows() {
        let mut data = batch(5_000, 9);
        let right = crc32c(&data, 0);
        data[4_000] ^= 1;
        assert_eq!(crc32c_of_batches(&data, 0), right, "the covered bytes are not read: scan_headers has checked them");
        data[2] ^= 1;
        assert_ne!(crc32c_of_batches(&data, 0), right, "what no CRC of a batch covers is");
    }
}
