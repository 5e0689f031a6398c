//! Messages of magic 0 and 1 (F-3): a batch is one message, or a wrapper around several that are compressed together.

use crate::codec::{self, Codecs, Scratch};
use crate::error::Reason;
use crate::header::{
    FRAME_BYTES, Header, LOG_APPEND_TIME, MAGIC_END, MESSAGE_CRC_START, NONE, SMALLEST_SIZE, array, check_message_crc,
    read_frame,
};

const CODEC_MASK: u8 = crate::header::CODEC_MASK as u8;

/// One message, with the offset and timestamp that consumers see.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    pub magic: u8,
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
}

/// The decompressed messages of one batch.
#[derive(Debug)]
pub struct Messages<'a> {
    /// The batch's header with its real base offset and record count.
    pub header: Header,
    plain: &'a [u8],
    /// Difference between real offsets and the stored inner ones.
    shift: i64,
    wrapped: bool,
    verify_crc: bool,
}

impl<'a> Messages<'a> {
    /// Decompresses the batch and finds its offsets and the number of its messages.
    ///
    /// [`Messages::for_each`] reads the messages inside a wrapper and checks their checksums.
    pub fn open(
        header: &Header,
        batch: &'a [u8],
        verify_crc: bool,
        max_unpacked: usize,
        codecs: &mut Codecs,
        scratch: &'a mut Scratch,
    ) -> Result<Self, Reason> {
        let message = parse(batch, verify_crc).map_err(Reason::batch)?;
        if header.codec() == codec::NONE {
            let header = Header { record_count: 1, ..header.clone() };
            return Ok(Self { header, plain: batch, shift: 0, wrapped: false, verify_crc: false });
        }
        let packed = message.value.ok_or_else(|| Reason::batch("wrapper without a value"))?;
        codecs.decompress_legacy(header.magic, header.codec(), packed, max_unpacked, scratch)?;
        let extent = Extent::of(scratch.filled())?;
        let (shift, header) = extent.place(header).map_err(Reason::batch)?;
        let plain = scratch.filled().get(..extent.bytes).unwrap_or_default();
        Ok(Self { header, plain, shift, wrapped: true, verify_crc })
    }

    /// The decompressed size of the batch.
    pub fn bytes(&self) -> usize {
        self.plain.len()
    }

    /// Checks each message and calls `visit` with it.
    pub fn for_each(&self, mut visit: impl FnMut(usize, &Message<'a>) -> Result<(), Reason>) -> Result<(), Reason> {
        let mut rest = self.plain;
        for index in 0..self.header.records() {
            let (bytes, after) = split(rest).ok_or_else(|| Reason::record("message is truncated", index))?;
            rest = after;
            let mut message = parse(bytes, self.verify_crc).map_err(|text| Reason::record(text, index))?;
            self.check(bytes, &message).map_err(|text| Reason::record(text, index))?;
            message.offset = message.offset.wrapping_add(self.shift); // at most the last offset, see below
            if message.offset > self.header.last_offset() {
                return Err(Reason::record("offset is above that of the wrapper", index));
            }
            if self.wrapped && message.magic == 1 && self.header.has(LOG_APPEND_TIME) {
                message.timestamp = self.header.max_timestamp;
            }
            visit(index, &message)?;
        }
        Ok(())
    }

    fn check(&self, bytes: &[u8], message: &Message<'_>) -> Result<(), &'static str> {
        if self.wrapped && bytes.get(MAGIC_END).is_some_and(|attributes| attributes & CODEC_MASK != codec::NONE) {
            return Err("a wrapper inside a wrapper");
        }
        match message.offset.checked_add(self.shift) {
            Some(_) => Ok(()),
            None => Err("offset exceeds 2^63-1"),
        }
    }
}

/// Offsets and sizes of the messages inside a wrapper, by their frames.
struct Extent {
    count: usize,
    /// The first offset, unless offsets decrease.
    lowest_offset: i64,
    last_offset: i64,
    /// Bytes of complete messages. As in Kafka, an incomplete one at the end is not an error.
    bytes: usize,
}

impl Extent {
    fn of(plain: &[u8]) -> Result<Self, Reason> {
        let mut extent = Self { count: 0, lowest_offset: i64::MAX, last_offset: 0, bytes: 0 };
        let mut rest = plain;
        while let Some((offset, size)) = read_frame(rest) {
            if size < SMALLEST_SIZE[0] {
                return Err(Reason::record(
                    format!("message size {size} is below the smallest possible one"),
                    extent.count,
                ));
            }
            let Some((message, after)) = split(rest) else {
                break;
            };
            extent.lowest_offset = extent.lowest_offset.min(offset);
            extent.last_offset = offset;
            extent.count += 1;
            extent.bytes += message.len();
            rest = after;
        }
        if extent.count == 0 {
            return Err(Reason::batch("wrapper without messages"));
        }
        Ok(extent)
    }

    /// The shift from stored to real offsets, and the header of the batch (F-3.1).
    ///
    /// Inner offsets of magic 0 are real; those of magic 1 are relative and end at the wrapper's. A wrapper's offset 0 is ignored,
    /// because some producers always send it.
    fn place(&self, header: &Header) -> Result<(i64, Header), &'static str> {
        let wrapper = header.base_offset;
        let shift = match header.magic {
            1 if wrapper != 0 => wrapper
                .checked_sub(self.last_offset)
                .filter(|shift| *shift >= 0)
                .ok_or("offset is below that of the last message inside")?,
            _ => 0,
        };
        let base_offset = self
            .lowest_offset
            .checked_add(shift)
            .filter(|base| *base >= 0)
            .ok_or("negative offset of a message inside")?;
        let span = wrapper.checked_sub(base_offset).and_then(|span| i32::try_from(span).ok()).filter(|span| *span >= 0);
        let last_offset_delta = span.ok_or("offset of a message inside is not within 2^31-1 of the wrapper's")?;
        let record_count = i32::try_from(self.count).map_err(|_| "more than 2^31-1 messages")?;
        Ok((shift, Header { base_offset, last_offset_delta, record_count, ..header.clone() }))
    }
}

/// The first message and the bytes after it; `None` if it is incomplete.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, size) = read_frame(bytes)?;
    bytes.split_at_checked(usize::try_from(size).ok()?.checked_add(FRAME_BYTES)?)
}

/// The stored fields of the message in `bytes`.
fn parse(bytes: &[u8], verify_crc: bool) -> Result<Message<'_>, String> {
    const CUT: &str = "message ends inside a field";
    let (offset, size) = read_frame(bytes).ok_or(CUT)?;
    let &[magic, _] = bytes.get(MESSAGE_CRC_START..).and_then(<[u8]>::first_chunk).ok_or(CUT)?;
    if magic > 1 {
        return Err(format!("magic {magic} inside a wrapper"));
    }
    if SMALLEST_SIZE.get(usize::from(magic)).is_none_or(|smallest| size < *smallest) {
        return Err(format!("message size {size} is below the smallest possible one of magic {magic}"));
    }
    if verify_crc {
        check_message_crc(bytes)?;
    }
    let mut rest = bytes.get(MAGIC_END + 1..).ok_or(CUT)?;
    let mut timestamp = NONE;
    if magic == 1 {
        timestamp = i64::from_be_bytes(array(rest, 0).ok_or(CUT)?);
        rest = rest.get(8..).ok_or(CUT)?;
    }
    let key = take_field(&mut rest)?;
    let value = take_field(&mut rest)?;
    if rest.is_empty() {
        Ok(Message { magic, offset, timestamp, key, value })
    } else {
        Err(format!("{} bytes after the value of a message", rest.len()))
    }
}

/// A length and that many bytes; `None` for a negative length.
fn take_field<'a>(input: &mut &'a [u8]) -> Result<Option<&'a [u8]>, &'static str> {
    let (length, rest) = input.split_first_chunk().ok_or("message ends inside a field")?;
    *input = rest;
    match i32::from_be_bytes(*length) {
        ..0 => Ok(None),
        length => {
            let length = length as usize; // not negative
            let (field, rest) = input.split_at_checked(length).ok_or("field is longer than its message")?;
            *input = rest;
            Ok(Some(field))
        }
    }
}

/// Appends a message. Returns its size, `None` if it exceeds 2^31-1 bytes.
pub fn write_message(output: &mut Vec<u8>, message: &Message<'_>, attributes: u8) -> Option<usize> {
    let start = begin_message(output, message, attributes);
    for field in [message.key, message.value] {
        output.extend_from_slice(&field_length(field)?.to_be_bytes());
        output.extend_from_slice(field.unwrap_or_default());
    }
    seal(output, start)
}

fn field_length(field: Option<&[u8]>) -> Option<i32> {
    field.map_or(Some(-1), |field| i32::try_from(field.len()).ok())
}

/// Appends the fields before the key. Returns the position of the message. [`seal`] writes its size and CRC.
fn begin_message(output: &mut Vec<u8>, message: &Message<'_>, attributes: u8) -> usize {
    let start = output.len();
    output.extend_from_slice(&message.offset.to_be_bytes());
    output.extend_from_slice(&[0; MESSAGE_CRC_START - 8]);
    output.extend_from_slice(&[message.magic, attributes]);
    if message.magic == 1 {
        output.extend_from_slice(&message.timestamp.to_be_bytes());
    }
    start
}

/// Appends a wrapper around `plain`, with the magic, offset and timestamp of `message`.
pub fn write_wrapper(
    output: &mut Vec<u8>,
    message: &Message<'_>,
    attributes: u8,
    plain: &[u8],
    codecs: &mut Codecs,
) -> Result<usize, Reason> {
    let start = begin_message(output, message, attributes);
    output.extend_from_slice(&(-1_i32).to_be_bytes());
    let length_at = output.len();
    output.extend_from_slice(&[0; 4]);
    codecs.compress_legacy(message.magic, attributes & CODEC_MASK, plain, output)?;
    let too_large = || Reason::batch("rebuilt wrapper exceeds 2^31-1 bytes");
    let length = i32::try_from(output.len() - length_at - 4).map_err(|_| too_large())?;
    output.get_mut(length_at..length_at + 4).ok_or_else(too_large)?.copy_from_slice(&length.to_be_bytes());
    seal(output, start).ok_or_else(too_large)
}

/// Writes size and CRC of the message from `start` to the end of `output`.
fn seal(output: &mut [u8], start: usize) -> Option<usize> {
    let message = output.get_mut(start..)?;
    let size = message.len();
    i32::try_from(size).ok()?;
    let size_field = i32::try_from(size.checked_sub(FRAME_BYTES)?).ok()?;
    let crc = crate::crc32(message.get(MESSAGE_CRC_START..)?);
    message.get_mut(8..12)?.copy_from_slice(&size_field.to_be_bytes());
    message.get_mut(12..MESSAGE_CRC_START)?.copy_from_slice(&crc.to_be_bytes());
    Some(size)
}
