//! xxHash32 with seed 0: the checksums inside an lz4 frame.

const PRIMES: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];

pub fn xxh32(data: &[u8]) -> u32 {
    let [prime_1, prime_2, prime_3, prime_4, prime_5] = PRIMES;
    let (stripes, tail) = data.as_chunks::<16>();
    let mut hash = if stripes.is_empty() {
        prime_5
    } else {
        let mut lanes = [prime_1.wrapping_add(prime_2), prime_2, 0, 0u32.wrapping_sub(prime_1)];
        for stripe in stripes {
            for (lane, word) in lanes.iter_mut().zip(stripe.as_chunks::<4>().0) {
                let input = u32::from_le_bytes(*word).wrapping_mul(prime_2);
                *lane = lane.wrapping_add(input).rotate_left(13).wrapping_mul(prime_1);
            }
        }
        let turns = [1, 7, 12, 18];
        lanes.iter().zip(turns).fold(0, |sum: u32, (lane, turn)| sum.wrapping_add(lane.rotate_left(turn)))
    };
    hash = hash.wrapping_add(data.len() as u32); // the length modulo 2^32, by definition
    let (words, bytes) = tail.as_chunks::<4>();
    for word in words {
        let input = u32::from_le_bytes(*word).wrapping_mul(prime_3);
        hash = hash.wrapping_add(input).rotate_left(17).wrapping_mul(prime_4);
    }
    for &byte in bytes {
        hash = hash.wrapping_add(u32::from(byte).wrapping_mul(prime_5)).rotate_left(11).wrapping_mul(prime_1);
    }
    hash = (hash ^ (hash >> 15)).wrapping_mul(prime_2);
    hash = (hash ^ (hash >> 13)).wrapping_mul(prime_3);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::xxh32;

    #[test]
    fn known_values() {
        assert_eq!(xxh32(b""), 0x02cc_5d05);
        assert_eq!(xxh32(b"abc"), 0x32d1_53ff);
        assert_eq!(xxh32(b"Nobody inspects the spammish repetition"), 0xe229_3b2f);
        // F-4: Kafka's frame descriptor 60 40 has the checksum byte 82, with the frame magic before it 1a (KAFKA-3160).
        assert_eq!((xxh32(&[0x60, 0x40]) >> 8) as u8, 0x82);
        assert_eq!((xxh32(&[0x04, 0x22, 0x4d, 0x18, 0x60, 0x40]) >> 8) as u8, 0x1a);
    }
}
