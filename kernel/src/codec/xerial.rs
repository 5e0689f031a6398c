//! snappy in the framing of the xerial library, which Kafka writes, or one bare block, which other clients write.

use super::scratch::Scratch;
use crate::error::Reason;

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// Version 1, compatible with version 1.
const VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
const BLOCK_BYTES: usize = 32 << 10;
const MOST_BLOCK_BYTES: usize = 4 << 20;
/// snappy decompresses 3 bytes to at most 64.
const MOST_OUT_PER_BYTE: usize = 22;

#[derive(Default)]
pub struct Xerial {
    writer: Option<snap::raw::Encoder>,
    packed: Vec<u8>,
}

impl Xerial {
    /// Reads framed streams, one after the other, or one bare block if there is no magic.
    ///
    /// Like Kafka's library, it ignores fewer than four bytes at the end, which cannot be the length of a block.
    pub fn decompress(&mut self, mut input: &[u8], output: &mut Scratch) -> Result<(), Reason> {
        if !input.starts_with(&MAGIC) {
            return block(input, output);
        }
        while !input.is_empty() {
            if let Some(rest) = input.strip_prefix(&MAGIC) {
                input = rest.get(VERSIONS.len()..).ok_or_else(cut)?;
                continue;
            }
            let Some((length, rest)) = input.split_first_chunk::<4>() else {
                break;
            };
            let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| damaged())?;
            let (packed, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
            block(packed, output)?;
            input = rest;
        }
        Ok(())
    }

    pub fn compress(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<(), Reason> {
        self.compress_like(&[], input, output)
    }

    /// Uses blocks at least as large as the first one of `source`: with smaller ones the payload could grow.
    pub fn compress_like(&mut self, source: &[u8], input: &[u8], output: &mut Vec<u8>) -> Result<(), Reason> {
        let block_bytes = first_block(source).clamp(BLOCK_BYTES, MOST_BLOCK_BYTES);
        output.extend_from_slice(&MAGIC);
        output.extend_from_slice(&VERSIONS);
        let writer = self.writer.get_or_insert_with(snap::raw::Encoder::new);
        self.packed.resize(snap::raw::max_compress_len(block_bytes.min(input.len())), 0);
        for chunk in input.chunks(block_bytes) {
            let refused = || Reason::batch("snappy failed to compress a batch");
            let length = writer.compress(chunk, &mut self.packed).map_err(|_| refused())?;
            let packed = self.packed.get(..length).ok_or_else(refused)?;
            output.extend_from_slice(&(length as u32).to_be_bytes()); // below 2^23
            output.extend_from_slice(packed);
        }
        Ok(())
    }
}

/// Decompressed size of a payload's first block, 0 if there is none.
fn first_block(source: &[u8]) -> usize {
    let framed = MAGIC.len() + VERSIONS.len() + 4;
    let packed = if source.starts_with(&MAGIC) { source.get(framed..).unwrap_or_default() } else { source };
    snap::raw::decompress_len(packed).unwrap_or(0)
}

fn block(packed: &[u8], output: &mut Scratch) -> Result<(), Reason> {
    let length = snap::raw::decompress_len(packed).map_err(|_| damaged())?;
    if packed.is_empty() || length / MOST_OUT_PER_BYTE > packed.len() {
        return Err(damaged());
    }
    let count = snap::raw::Decoder::new().decompress(packed, output.exactly(length)?).map_err(|_| damaged())?;
    output.advance(count)
}

#[cold]
fn damaged() -> Reason {
    Reason::batch("damaged snappy data")
}

#[cold]
fn cut() -> Reason {
    Reason::batch("snappy data is truncated")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpack(input: &[u8]) -> Result<Vec<u8>, Reason> {
        let mut output = Scratch::default();
        output.start(1 << 20);
        Xerial::default().decompress(input, &mut output)?;
        Ok(output.filled().to_vec())
    }

    fn pack(input: &[u8]) -> Vec<u8> {
        let mut output = Vec::new();
        Xerial::default().compress(input, &mut output).unwrap();
        output
    }

    #[test]
    fn a_bare_block_is_read() {
        let bare = snap::raw::Encoder::new().compress_vec(b"hello hello hello").unwrap();
        assert_eq!(unpack(&bare).unwrap(), b"hello hello hello");
    }

    #[test]
    fn framed_streams_follow_each_other() {
        assert_eq!(unpack(&[pack(b"one "), pack(b"two")].concat()).unwrap(), b"one two");
    }

    #[test]
    fn a_rebuilt_payload_has_blocks_as_large_as_the_source() {
        let data: Vec<u8> = (0..100_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
        let bare = snap::raw::Encoder::new().compress_vec(&data).unwrap();
        let mut like = Vec::new();
        Xerial::default().compress_like(&bare, &data, &mut like).unwrap();
        assert_eq!(snap::raw::decompress_len(&like[20..]).unwrap(), data.len());
        assert_eq!(unpack(&like).unwrap(), data);
        let mut usual = Vec::new();
        Xerial::default().compress_like(&pack(&data), &data, &mut usual).unwrap();
        assert_eq!(usual, pack(&data));
    }

    #[test]
    fn what_is_too_short_for_a_length_is_ignored() {
        for length in 0..4 {
            assert_eq!(unpack(&[&pack(b"one")[..], &[0; 4][..length]].concat()).unwrap(), b"one");
        }
        assert!(unpack(&[&pack(b"one")[..], &[0; 4]].concat()).is_err());
    }

    #[test]
    fn blocks_are_32_kib() {
        let data: Vec<u8> = (0..100_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
        let packed = pack(&data);
        let first = u32::from_be_bytes(packed[16..20].try_into().unwrap()) as usize;
        assert_eq!(snap::raw::decompress_len(&packed[20..20 + first]).unwrap(), 32768);
        assert_eq!(unpack(&packed).unwrap(), data);
    }

    #[test]
    fn a_length_that_the_bytes_do_not_bear_out_is_refused_before_memory_is_taken() {
        let mut output = Scratch::default();
        output.start(1 << 30);
        let claims_512_mib = [0x80, 0x80, 0x80, 0x80, 0x02, 0, 0];
        assert!(Xerial::default().decompress(&claims_512_mib, &mut output).is_err());
        assert_eq!(output.capacity(), 0);
    }
}
