//! The CRC-32C of a file, combined from those of its parts.

use cleanerd_kernel::crc32c;
use cleanerd_kernel::file_crc::combine;

#[test]
fn two_parts_of_any_size_make_a_whole() {
    let data: Vec<u8> = (0..70_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for cut in (0..17).map(|k| 1 << k).chain([0, 255, 4_095, 65_535, data.len()]) {
        let (first, second) = data.split_at(data.len() - cut);
        assert_eq!(combine(crc32c(first, 0), crc32c(second, 0), cut as u64), crc32c(&data, 0), "{cut}");
    }
}

/// One shift by 2n bytes equals two shifts by n bytes, so long shifts are right if short ones are.
#[test]
fn long_ways_are_made_of_short_ones() {
    for k in 1..40 {
        for crc in [1 << 31, 1, 0xdead_beef] {
            let half = 1 << (k - 1);
            assert_eq!(combine(crc, 0, 2 * half), combine(combine(crc, 0, half), 0, half), "{k}");
        }
    }
}
