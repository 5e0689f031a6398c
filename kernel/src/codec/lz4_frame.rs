//! The lz4 frame as Kafka reads and writes it (F-4), with independent blocks. Libraries build a new table for every frame; this
//! code reuses it.

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};

use super::scratch::Scratch;
use super::xxh32::xxh32;
use crate::error::Reason;

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// Version 1, independent blocks, no optional fields.
const FLAGS: u8 = 0x60;
/// Blocks of 64 KiB, as Kafka writes them: 2^(8 + 2 id) bytes.
const SIZE_ID: u8 = 4;
/// Flags and block size with magic 0's checksum, which wrongly covers the frame magic, too (KAFKA-3160).
const DESCRIPTOR_V0: [u8; 3] = [0x60, 0x40, 0x1a];
const STORED: u32 = 1 << 31;

const VERSION_MASK: u8 = 0xc0;
const VERSION_1: u8 = 0x40;
const INDEPENDENT_BLOCKS: u8 = 0x20;
const BLOCK_CHECKSUM: u8 = 0x10;
const CONTENT_SIZE: u8 = 0x08;
const CONTENT_CHECKSUM: u8 = 0x04;
const RESERVED_FLAGS: u8 = 0x03;
const RESERVED_BLOCK_BITS: u8 = 0x8f;

/// lz4 decompresses one byte to at most 255.
const MOST_OUT_PER_BYTE: usize = 255;

#[derive(Default)]
pub struct Lz4 {
    small: Option<CompressTable>,
    large: Option<CompressTable>,
    packed: Vec<u8>,
}

struct Descriptor {
    block_checksum: bool,
    content_checksum: bool,
    block_bytes: usize,
}

impl Lz4 {
    /// Reads one frame.
    pub fn decompress(&mut self, input: &[u8], output: &mut Scratch) -> Result<(), Reason> {
        unpack_frame(input, true, output)
    }

    /// Reads one frame of magic 0, without checking its descriptor checksum (KAFKA-3160).
    pub fn decompress_v0(&mut self, input: &[u8], output: &mut Scratch) -> Result<(), Reason> {
        unpack_frame(input, false, output)
    }

    pub fn compress(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<(), Reason> {
        self.compress_like(&[], input, output)
    }

    /// Uses blocks as large as those of the frame `source`: with smaller ones the result could be many times larger.
    pub fn compress_like(&mut self, source: &[u8], input: &[u8], output: &mut Vec<u8>) -> Result<(), Reason> {
        let size_id = source.get(MAGIC.len() + 1).map_or(SIZE_ID, |block| (block >> 4 & 7).max(SIZE_ID));
        let descriptor = [FLAGS, size_id << 4];
        let checksum = (xxh32(&descriptor) >> 8) as u8;
        self.pack_frame(input, &[descriptor[0], descriptor[1], checksum], block_bytes(size_id), output)
    }

    /// Writes a frame for magic 0.
    pub fn compress_v0(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<(), Reason> {
        self.pack_frame(input, &DESCRIPTOR_V0, block_bytes(SIZE_ID), output)
    }

    fn pack_frame(
        &mut self,
        input: &[u8],
        descriptor: &[u8],
        block_bytes: usize,
        output: &mut Vec<u8>,
    ) -> Result<(), Reason> {
        output.extend_from_slice(&MAGIC);
        output.extend_from_slice(descriptor);
        self.packed.resize(get_maximum_output_size(block_bytes.min(input.len())), 0);
        for chunk in input.chunks(block_bytes) {
            let table = if chunk.len() < usize::from(u16::MAX) {
                self.small.get_or_insert_with(CompressTable::small)
            } else {
                self.large.get_or_insert_with(CompressTable::large)
            };
            let refused = || Reason::batch("lz4 failed to compress a batch");
            let length = compress_into_with_table(chunk, &mut self.packed, table).map_err(|_| refused())?;
            // Both lengths are at most 4 MiB: the casts keep the values.
            if length < chunk.len() {
                output.extend_from_slice(&(length as u32).to_le_bytes());
                output.extend_from_slice(self.packed.get(..length).ok_or_else(refused)?);
            } else {
                output.extend_from_slice(&(chunk.len() as u32 | STORED).to_le_bytes());
                output.extend_from_slice(chunk);
            }
        }
        output.extend_from_slice(&[0; 4]);
        Ok(())
    }
}

fn block_bytes(size_id: u8) -> usize {
    1 << (8 + 2 * u32::from(size_id))
}

fn unpack_frame(input: &[u8], check_descriptor: bool, output: &mut Scratch) -> Result<(), Reason> {
    let (descriptor, mut input) = read_descriptor(input, check_descriptor)?;
    loop {
        let (word, rest) = input.split_first_chunk::<4>().ok_or_else(cut)?;
        let word = u32::from_le_bytes(*word);
        input = rest;
        if word == 0 {
            break;
        }
        let length = (word & !STORED) as usize;
        if length > descriptor.block_bytes {
            return Err(damaged("block is larger than the frame allows"));
        }
        let (block, rest) = input.split_at_checked(length).ok_or_else(cut)?;
        input = rest;
        if descriptor.block_checksum {
            let (checksum, rest) = input.split_first_chunk::<4>().ok_or_else(cut)?;
            input = rest;
            if u32::from_le_bytes(*checksum) != xxh32(block) {
                return Err(damaged("block checksum is wrong"));
            }
        }
        if word & STORED != 0 {
            output.push(block)?;
        } else {
            unpack_block(block, descriptor.block_bytes, output)?;
        }
    }
    // Kafka skips the content checksum without checking it, and reads nothing after it.
    let trailer = if descriptor.content_checksum { 4 } else { 0 };
    if input.len() < trailer { Err(cut()) } else { Ok(()) }
}

fn unpack_block(block: &[u8], block_bytes: usize, output: &mut Scratch) -> Result<(), Reason> {
    let most = block_bytes.min(block.len().saturating_mul(MOST_OUT_PER_BYTE));
    let allowed = most.min(output.left());
    match decompress_into(block, output.exactly(allowed)?) {
        Ok(count) => output.advance(count),
        Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) if allowed < most => Err(output.too_much()),
        Err(_) => Err(damaged("block")),
    }
}

fn read_descriptor(input: &[u8], check: bool) -> Result<(Descriptor, &[u8]), Reason> {
    let rest = input.strip_prefix(&MAGIC).ok_or_else(|| damaged("no frame magic"))?;
    let &[flags, block, ..] = rest else {
        return Err(cut());
    };
    if flags & VERSION_MASK != VERSION_1 || flags & RESERVED_FLAGS != 0 || block & RESERVED_BLOCK_BITS != 0 {
        return Err(damaged("frame descriptor"));
    }
    if flags & INDEPENDENT_BLOCKS == 0 {
        return Err(damaged("blocks depend on each other"));
    }
    let size_id = block >> 4;
    if size_id < 4 {
        return Err(damaged("frame descriptor"));
    }
    let length = if flags & CONTENT_SIZE != 0 { 10 } else { 2 };
    let (descriptor, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
    let (&checksum, rest) = rest.split_first().ok_or_else(cut)?;
    if check && checksum != (xxh32(descriptor) >> 8) as u8 {
        return Err(damaged("descriptor checksum is wrong"));
    }
    let descriptor = Descriptor {
        block_checksum: flags & BLOCK_CHECKSUM != 0,
        content_checksum: flags & CONTENT_CHECKSUM != 0,
        block_bytes: block_bytes(size_id),
    };
    Ok((descriptor, rest))
}

#[cold]
fn damaged(what: &str) -> Reason {
    Reason::batch(format!("damaged lz4 data: {what}"))
}

#[cold]
fn cut() -> Reason {
    Reason::batch("lz4 data is truncated")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpack(input: &[u8]) -> Result<Vec<u8>, Reason> {
        let mut output = Scratch::default();
        output.start(1 << 24);
        Lz4::default().decompress(input, &mut output)?;
        Ok(output.filled().to_vec())
    }

    fn pack(input: &[u8]) -> Vec<u8> {
        let mut output = Vec::new();
        Lz4::default().compress(input, &mut output).unwrap();
        output
    }

    fn frame(flags: u8, block: u8, optional: &[u8], blocks: &[u8]) -> Vec<u8> {
        let descriptor = [&[flags, block][..], optional].concat();
        let checksum = (xxh32(&descriptor) >> 8) as u8;
        [&MAGIC[..], &descriptor, &[checksum], blocks].concat()
    }

    #[test]
    fn frames_begin_as_kafkas_do() {
        assert_eq!(pack(b"")[..7], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82]);
        assert_eq!(pack(b"")[7..], [0; 4]);
    }

    #[test]
    fn what_does_not_shrink_is_stored() {
        let packed = pack(b"abc");
        assert_eq!(packed[7..], [3, 0, 0, 0x80, b'a', b'b', b'c', 0, 0, 0, 0]);
        assert_eq!(unpack(&packed).unwrap(), b"abc");
    }

    #[test]
    fn optional_fields() {
        let stored = [&[3, 0, 0, 0x80][..], b"abc"].concat();
        let checksum = xxh32(b"abc").to_le_bytes();
        let size = 3u64.to_le_bytes();
        let blocks = [&stored[..], &checksum, &[0; 4], &[9; 4]].concat();
        assert_eq!(unpack(&frame(0x7c, 0x70, &size, &blocks)).unwrap(), b"abc");
        let wrong = [&stored[..], &[1; 4], &[0; 4], &[9; 4]].concat();
        assert!(unpack(&frame(0x7c, 0x70, &size, &wrong)).unwrap_err().text.contains("block checksum"));
        assert!(unpack(&frame(0x7c, 0x70, &size, &blocks[..blocks.len() - 1])).is_err());
    }

    #[test]
    fn bad_descriptors() {
        let blocks = [0; 4];
        assert!(unpack(&frame(0x60, 0x40, &[], &blocks)).is_ok());
        for (flags, block) in [(0x40, 0x40), (0x61, 0x40), (0xa0, 0x40), (0x60, 0x30), (0x60, 0x41), (0x60, 0xc0)] {
            assert!(unpack(&frame(flags, block, &[], &blocks)).is_err(), "{flags:x} {block:x}");
        }
        // KAFKA-3160's checksum belongs to magic 0 only.
        let mut old = frame(0x60, 0x40, &[], &blocks);
        old[6] = 0x1a;
        assert!(unpack(&old).unwrap_err().text.contains("descriptor checksum"));
        let mut output = Scratch::default();
        output.start(0);
        assert!(Lz4::default().decompress_v0(&old, &mut output).is_ok());
        let mut packed = Vec::new();
        Lz4::default().compress_v0(b"", &mut packed).unwrap();
        assert_eq!(packed, old);
    }

    #[test]
    fn bytes_after_the_frame() {
        assert_eq!(unpack(&[&pack(b"abc")[..], b"x"].concat()).unwrap(), b"abc");
        assert_eq!(unpack(&[pack(b"abc"), pack(b"def")].concat()).unwrap(), b"abc");
    }

    #[test]
    fn a_rebuilt_frame_has_blocks_as_large_as_the_source() {
        let mut seed = 1u32;
        let mut noise = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        };
        let period: Vec<u8> = (0..65_000).map(|_| noise()).collect();
        let data = period.repeat(40);
        let source = frame(0x60, 0x70, &[], &[0; 4]);
        let mut like = Vec::new();
        Lz4::default().compress_like(&source, &data, &mut like).unwrap();
        assert_eq!(like[5], 0x70);
        assert_eq!(unpack(&like).unwrap(), data);
        assert!(like.len() < data.len() / 10 && pack(&data).len() > data.len() / 2, "{}", like.len());
        let small = frame(0x60, 0x40, &[], &[0; 4]);
        let mut usual = Vec::new();
        Lz4::default().compress_like(&small, &data, &mut usual).unwrap();
        assert_eq!(usual, pack(&data));
    }

    #[test]
    fn blocks_of_64_kib_and_a_rest() {
        for length in [65_534, 65_535, 65_536, 65_537, 200_000] {
            let data: Vec<u8> = (0..length).map(|i: usize| (i / 100 % 251) as u8).collect();
            assert_eq!(unpack(&pack(&data)).unwrap(), data);
        }
    }
}
