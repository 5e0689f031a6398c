//! gzip members (RFC 1952). Their frame is read here, so that all batches share one inflate state.

use flate2::{Compress, Compression, Crc, Decompress, FlushCompress, FlushDecompress, Status};

use super::scratch::Scratch;
use crate::error::Reason;

const DEFAULT_LEVEL: u32 = 6;
const OUTPUT_ROOM: usize = 16 << 10;
const WINDOW_BITS: u8 = 15;
const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
const FLAG_HEADER_CRC: u8 = 0x02;
const FLAG_EXTRA: u8 = 0x04;
const FLAG_NAME: u8 = 0x08;
const FLAG_COMMENT: u8 = 0x10;

#[derive(Default)]
pub struct Gzip {
    reader: Option<Decompress>,
    writer: Option<Compress>,
    packed: Vec<u8>,
}

impl Gzip {
    /// Reads one or more members. Like Java, it ignores bytes after a member that do not begin another one.
    pub fn decompress(&mut self, input: &[u8], output: &mut Scratch) -> Result<(), Reason> {
        let mut next = Some(skip_header(input).ok_or_else(damaged)?);
        while let Some(member) = next {
            next = skip_header(self.member(member, output)?);
        }
        Ok(())
    }

    /// Inflates one member after its header and checks its trailer. Returns the bytes that follow.
    fn member<'a>(&mut self, mut input: &'a [u8], output: &mut Scratch) -> Result<&'a [u8], Reason> {
        let state = self.reader.get_or_insert_with(|| Decompress::new(false));
        state.reset(false);
        let start = output.filled().len();
        let hint = input.len().saturating_mul(4);
        loop {
            let (in_before, out_before) = (state.total_in(), state.total_out());
            let status = state.decompress(input, output.some(hint)?, FlushDecompress::None).map_err(|_| damaged())?;
            let consumed = usize::try_from(state.total_in() - in_before).map_err(|_| damaged())?;
            let produced = usize::try_from(state.total_out() - out_before).map_err(|_| damaged())?;
            input = input.get(consumed..).ok_or_else(damaged)?;
            output.advance(produced)?;
            if status == Status::StreamEnd {
                break;
            }
            if consumed == 0 && produced == 0 {
                return Err(Reason::batch("gzip data is truncated"));
            }
        }
        let (trailer, rest) = input.split_first_chunk::<8>().ok_or_else(|| Reason::batch("gzip data is truncated"))?;
        let mut crc = Crc::new();
        crc.update(output.filled().get(start..).unwrap_or_default());
        let [c0, c1, c2, c3, s0, s1, s2, s3] = *trailer;
        if u32::from_le_bytes([c0, c1, c2, c3]) != crc.sum() || u32::from_le_bytes([s0, s1, s2, s3]) != crc.amount() {
            return Err(Reason::batch("gzip checksum or length is wrong"));
        }
        Ok(rest)
    }

    pub fn compress(&mut self, mut input: &[u8], output: &mut Vec<u8>) -> Result<(), Reason> {
        let state = self.writer.get_or_insert_with(|| Compress::new_gzip(Compression::new(DEFAULT_LEVEL), WINDOW_BITS));
        state.reset();
        // A separate buffer: flate2 would zero all spare capacity of a vector.
        self.packed.resize(OUTPUT_ROOM, 0);
        loop {
            let (in_before, out_before) = (state.total_in(), state.total_out());
            let status = state.compress(input, &mut self.packed, FlushCompress::Finish).map_err(|_| refused())?;
            let consumed = usize::try_from(state.total_in() - in_before).map_err(|_| refused())?;
            let produced = usize::try_from(state.total_out() - out_before).map_err(|_| refused())?;
            input = input.get(consumed..).ok_or_else(refused)?;
            output.extend_from_slice(self.packed.get(..produced).ok_or_else(refused)?);
            if status == Status::StreamEnd {
                return Ok(());
            }
            if consumed == 0 && produced == 0 {
                return Err(refused());
            }
        }
    }
}

/// Reserved flags are ignored, as in Java's reader.
fn skip_header(input: &[u8]) -> Option<&[u8]> {
    let (header, mut rest) = input.split_first_chunk::<10>()?;
    let flags = header[3];
    if header[..3] != MAGIC {
        return None;
    }
    if flags & FLAG_EXTRA != 0 {
        let (length, after) = rest.split_first_chunk::<2>()?;
        rest = after.get(usize::from(u16::from_le_bytes(*length))..)?;
    }
    for flag in [FLAG_NAME, FLAG_COMMENT] {
        if flags & flag != 0 {
            let end = rest.iter().position(|&byte| byte == 0)?;
            rest = rest.get(end + 1..)?;
        }
    }
    if flags & FLAG_HEADER_CRC != 0 {
        rest = rest.get(2..)?;
    }
    Some(rest)
}

#[cold]
fn damaged() -> Reason {
    Reason::batch("damaged gzip data")
}

#[cold]
fn refused() -> Reason {
    Reason::batch("gzip failed to compress a batch")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpack(input: &[u8]) -> Result<Vec<u8>, Reason> {
        let mut output = Scratch::default();
        output.start(1 << 20);
        Gzip::default().decompress(input, &mut output)?;
        Ok(output.filled().to_vec())
    }

    fn pack(input: &[u8]) -> Vec<u8> {
        let mut output = Vec::new();
        Gzip::default().compress(input, &mut output).unwrap();
        output
    }

    #[test]
    fn members_follow_each_other() {
        assert_eq!(unpack(&[pack(b"one "), pack(b""), pack(b"two")].concat()).unwrap(), b"one two");
        let cut = pack(b"two");
        assert!(unpack(&[&pack(b"one ")[..], &cut[..cut.len() - 1]].concat()).is_err());
    }

    #[test]
    fn bytes_that_begin_no_member_are_ignored() {
        for behind in [&b"x"[..], &[0; 3], &[0x1f, 0x8b], &[0; 600]] {
            assert_eq!(unpack(&[&pack(b"one")[..], behind].concat()).unwrap(), b"one");
        }
        assert!(unpack(b"x").is_err());
    }

    #[test]
    fn reserved_flags_mean_nothing() {
        let mut packed = pack(b"hello");
        packed[3] |= 0xe0;
        assert_eq!(unpack(&packed).unwrap(), b"hello");
    }

    #[test]
    fn optional_header_fields_are_skipped() {
        let plain = pack(b"hello");
        let mut fancy = vec![0x1f, 0x8b, 8, 0x1e, 0, 0, 0, 0, 0, 3];
        fancy.extend_from_slice(&[3, 0, 1, 2, 3]);
        fancy.extend_from_slice(b"name\0comment\0\x12\x34");
        fancy.extend_from_slice(&plain[10..]);
        assert_eq!(unpack(&fancy).unwrap(), b"hello");
        for cut in 0..fancy.len() {
            assert!(unpack(&fancy[..cut]).is_err());
        }
    }

    #[test]
    fn the_trailer_is_checked() {
        let mut packed = pack(b"hello");
        let end = packed.len();
        packed[end - 1] ^= 1;
        assert!(unpack(&packed).unwrap_err().text.contains("checksum"));
        packed[end - 1] ^= 1;
        packed[end - 8] ^= 1;
        assert!(unpack(&packed).unwrap_err().text.contains("checksum"));
    }
}
