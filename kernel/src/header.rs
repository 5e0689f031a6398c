//! The frame that all versions share (F-1) and the header of a v2 batch (F-2).

use crate::error::Reason;

/// Bytes of the frame: offset and size.
pub const FRAME_BYTES: usize = 12;
/// Bytes from the frame's start up to and including the magic.
pub const MAGIC_END: usize = 17;
pub const HEADER_BYTES: usize = 61;
/// First byte that the CRC of a v2 batch covers.
pub const CRC_START: usize = 21;
/// First byte that the CRC-32 of a message of magic 0 or 1 covers.
pub const MESSAGE_CRC_START: usize = 16;

pub const CODEC_MASK: i16 = 0x07;
pub const LOG_APPEND_TIME: i16 = 0x08;
pub const TRANSACTIONAL: i16 = 0x10;
pub const CONTROL: i16 = 0x20;
pub const HAS_DELETE_HORIZON: i16 = 0x40;

/// Smallest value of the size field by magic: the size of an empty message or batch.
pub const SMALLEST_SIZE: [i32; 3] = [14, 22, 49];

pub const NONE: i64 = -1;

/// The header of one batch, as stored.
///
/// A legacy batch is not decompressed for it: both offsets are the frame's, and the number of records is 0.
/// [`crate::legacy::Messages::header`] has the real values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub base_offset: i64,
    /// Bytes in the file, including the frame.
    pub size: usize,
    pub leader_epoch: i32,
    pub magic: u8,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
}

impl Header {
    pub fn last_offset(&self) -> i64 {
        self.base_offset.wrapping_add(i64::from(self.last_offset_delta))
    }

    pub fn records(&self) -> usize {
        usize::try_from(self.record_count).unwrap_or(0)
    }

    pub fn is_v2(&self) -> bool {
        self.magic == 2
    }

    pub fn codec(&self) -> u8 {
        (self.attributes & CODEC_MASK) as u8
    }

    pub fn has(&self, attribute: i16) -> bool {
        self.attributes & attribute != 0
    }

    /// The timestamp that consumers see, from the base timestamp and a delta (F-2.2, F-2.6).
    #[inline(always)]
    pub fn timestamp(&self, delta: i64) -> i64 {
        if self.has(LOG_APPEND_TIME) { self.max_timestamp } else { self.base_timestamp.wrapping_add(delta) }
    }

    /// The batch's present delete horizon.
    pub fn delete_horizon(&self) -> Option<i64> {
        self.has(HAS_DELETE_HORIZON).then_some(self.base_timestamp)
    }
}

/// What some bytes begin with.
#[derive(Debug)]
pub enum Front<'a> {
    /// No bytes, or too few for a size.
    End,
    /// An incomplete batch of this many bytes.
    Cut(usize),
    Batch(Header, &'a [u8]),
}

#[inline(always)]
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Base offset and size field, unchecked; `None` if the frame is incomplete.
#[inline(always)]
pub fn read_frame(data: &[u8]) -> Option<(i64, i32)> {
    Some((i64::from_be_bytes(array(data, 0)?), i32::from_be_bytes(array(data, 8)?)))
}

/// Reads the batch header at the front of `data`, with all checks except the CRC.
///
/// A bad size or magic is reported as soon as it is readable, so the result does not depend on the end of a chunk.
#[inline(always)]
pub fn read_front(data: &[u8]) -> Result<Front<'_>, Reason> {
    let Some((base_offset, size_field)) = read_frame(data) else {
        return Ok(Front::End);
    };
    if size_field < SMALLEST_SIZE[0] {
        return Err(Reason::batch(format!("batch size {size_field} is below the smallest batch")));
    }
    if let Some(&magic) = data.get(MAGIC_END - 1) {
        let Some(&smallest) = SMALLEST_SIZE.get(usize::from(magic)) else {
            return Err(Reason::batch(format!("unknown magic {magic}")));
        };
        if size_field < smallest {
            return Err(Reason::batch(format!("batch size {size_field} is below the smallest batch of magic {magic}")));
        }
    }
    if base_offset < 0 {
        return Err(Reason::batch("negative base offset"));
    }
    let size = FRAME_BYTES + size_field as usize; // at least 14, so the cast keeps the value
    let Some(batch) = data.get(..size) else {
        return Ok(Front::Cut(size));
    };
    let header = read_header(batch, base_offset, size).ok_or_else(|| Reason::batch("batch header is truncated"))?;
    if header.is_v2() {
        check_v2(&header)?;
    }
    Ok(Front::Batch(header, batch))
}

/// Bytes and records of the complete v2 batch at the front of `data`; `None` if [`read_front`] would find anything else.
///
/// For callers that only skip the batch: the rest of the header is not read.
#[inline(always)]
pub(crate) fn extent_of_v2(data: &[u8]) -> Option<(usize, usize)> {
    let header: &[u8; HEADER_BYTES] = data.first_chunk()?;
    let (base_offset, size_field) = read_frame(header)?;
    let last_offset_delta = i32::from_be_bytes(array(header, 23)?);
    let record_count = i32::from_be_bytes(array(header, 57)?);
    let size = FRAME_BYTES + usize::try_from(size_field).ok()?;
    let sound = header[MAGIC_END - 1] == 2
        && size >= HEADER_BYTES
        && size <= data.len()
        && (base_offset | i64::from(last_offset_delta) | i64::from(record_count)) >= 0
        && base_offset.checked_add(i64::from(last_offset_delta)).is_some();
    sound.then_some((size, record_count as usize)) // not negative
}

#[inline(always)]
fn read_header(batch: &[u8], base_offset: i64, size: usize) -> Option<Header> {
    let magic = *batch.get(MAGIC_END - 1)?;
    if magic < 2 {
        // The other bits have a meaning only in a v2 batch.
        let legacy_attributes = if magic == 1 { CODEC_MASK | LOG_APPEND_TIME } else { CODEC_MASK };
        return Some(Header {
            base_offset,
            size,
            leader_epoch: -1,
            magic,
            crc: u32::from_be_bytes(array(batch, 12)?),
            attributes: i16::from(*batch.get(MAGIC_END)?) & legacy_attributes,
            last_offset_delta: 0,
            base_timestamp: NONE,
            max_timestamp: if magic == 1 { i64::from_be_bytes(array(batch, MAGIC_END + 1)?) } else { NONE },
            producer_id: NONE,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: 0,
        });
    }
    let header: &[u8; HEADER_BYTES] = batch.first_chunk()?;
    Some(Header {
        base_offset,
        size,
        leader_epoch: i32::from_be_bytes(array(header, 12)?),
        magic,
        crc: u32::from_be_bytes(array(header, 17)?),
        attributes: i16::from_be_bytes(array(header, 21)?),
        last_offset_delta: i32::from_be_bytes(array(header, 23)?),
        base_timestamp: i64::from_be_bytes(array(header, 27)?),
        max_timestamp: i64::from_be_bytes(array(header, 35)?),
        producer_id: i64::from_be_bytes(array(header, 43)?),
        producer_epoch: i16::from_be_bytes(array(header, 51)?),
        base_sequence: i32::from_be_bytes(array(header, 53)?),
        record_count: i32::from_be_bytes(array(header, 57)?),
    })
}

#[inline(always)]
fn check_v2(header: &Header) -> Result<(), Reason> {
    if header.record_count < 0 {
        return Err(Reason::batch(format!("negative record count {}", header.record_count)));
    }
    if header.last_offset_delta < 0 {
        return Err(Reason::batch(format!("negative last offset delta {}", header.last_offset_delta)));
    }
    if header.base_offset.checked_add(i64::from(header.last_offset_delta)).is_none() {
        return Err(Reason::batch("last offset exceeds 2^63-1"));
    }
    Ok(())
}

/// Checks the stored checksum: CRC-32C in a v2 batch, CRC-32 in a legacy one.
pub fn check_crc(header: &Header, batch: &[u8]) -> Result<(), Reason> {
    if !header.is_v2() {
        return check_message_crc(batch).map_err(Reason::batch);
    }
    let computed = crate::crc32c(batch.get(CRC_START..).unwrap_or_default(), 0);
    if computed == header.crc {
        Ok(())
    } else {
        Err(Reason::batch(format!("CRC-32C is {computed:#010x}, the batch header has {:#010x}", header.crc)))
    }
}

/// Checks the stored CRC-32 of a message of magic 0 or 1.
pub(crate) fn check_message_crc(message: &[u8]) -> Result<(), String> {
    let stored = array(message, FRAME_BYTES).map(u32::from_be_bytes).ok_or("message ends inside a field")?;
    let computed = crate::crc32(message.get(MESSAGE_CRC_START..).unwrap_or_default());
    if computed == stored { Ok(()) } else { Err(format!("CRC-32 is {computed:#010x}, the message has {stored:#010x}")) }
}

/// Writes `header` over the 61 bytes at `start` of `output`, with the CRC of the bytes up to the end.
///
/// `size` and `crc` are computed from the bytes, not taken from `header`. Returns the size, `None` if it exceeds 2^31-1.
pub fn seal(header: &Header, output: &mut [u8], start: usize) -> Option<usize> {
    let batch = output.get_mut(start..)?;
    let size = batch.len();
    let size_field = i32::try_from(size.checked_sub(FRAME_BYTES)?).ok()?;
    i32::try_from(size).ok()?;
    let bytes: &mut [u8; HEADER_BYTES] = batch.first_chunk_mut()?;
    bytes[0..8].copy_from_slice(&header.base_offset.to_be_bytes());
    bytes[8..12].copy_from_slice(&size_field.to_be_bytes());
    bytes[12..16].copy_from_slice(&header.leader_epoch.to_be_bytes());
    bytes[16] = header.magic;
    bytes[21..23].copy_from_slice(&header.attributes.to_be_bytes());
    bytes[23..27].copy_from_slice(&header.last_offset_delta.to_be_bytes());
    bytes[27..35].copy_from_slice(&header.base_timestamp.to_be_bytes());
    bytes[35..43].copy_from_slice(&header.max_timestamp.to_be_bytes());
    bytes[43..51].copy_from_slice(&header.producer_id.to_be_bytes());
    bytes[51..53].copy_from_slice(&header.producer_epoch.to_be_bytes());
    bytes[53..57].copy_from_slice(&header.base_sequence.to_be_bytes());
    bytes[57..61].copy_from_slice(&header.record_count.to_be_bytes());
    let crc = crate::crc32c(batch.get(CRC_START..)?, 0);
    batch.get_mut(CRC_START - 4..CRC_START)?.copy_from_slice(&crc.to_be_bytes());
    Some(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Skipping a batch and reading it agree, for any header.
        #[test]
        fn the_extent_is_that_of_the_batch_that_is_read(
            base_offset in prop_oneof![0i64..3, any::<i64>(), Just(i64::MAX), Just(i64::MAX - 5)],
            size in prop_oneof![4 => -2i32..120, 1 => any::<i32>()],
            magic in prop_oneof![6 => Just(2u8), 1 => 0u8..5],
            last_offset_delta in prop_oneof![0i32..10, any::<i32>()],
            record_count in prop_oneof![0i32..10, any::<i32>()],
            bytes in 0usize..130,
        ) {
            let mut data = [0; 130];
            data[0..8].copy_from_slice(&base_offset.to_be_bytes());
            data[8..12].copy_from_slice(&size.to_be_bytes());
            data[16] = magic;
            data[23..27].copy_from_slice(&last_offset_delta.to_be_bytes());
            data[57..61].copy_from_slice(&record_count.to_be_bytes());
            let data = &data[..bytes];
            let expected = match read_front(data) {
                Ok(Front::Batch(header, batch)) if header.is_v2() => Some((batch.len(), header.records())),
                _ => None,
            };
            prop_assert_eq!(extent_of_v2(data), expected);
        }
    }
}
