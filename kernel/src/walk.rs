//! Reads the batches of a chunk and the records of a batch, in order.

use crate::codec::{self, Codecs, Scratch};
use crate::error::{Error, Reason, invalid};
use crate::header::{self, FRAME_BYTES, Front, Header};
use crate::record::{Record, SMALLEST_RECORD, read_record, take_stored};
use crate::record_headers::{ReadHeaders, Unread};

/// Memory per record of a compressed batch, in addition to its decompressed bytes: its row in the columns and their results.
/// The smallest record has seven bytes, which compress to almost nothing.
pub const RECORD_BYTES: usize = 32;
/// A batch of up to this many records never counts as too large.
pub const FEW_RECORDS: usize = 32 << 10;

/// A chunk of a log, and how much of it was read.
pub struct Walk<'a> {
    data: &'a [u8],
    position: u64,
    pub consumed: usize,
    pub needed: usize,
}

impl<'a> Walk<'a> {
    /// File positions have 32 bits in the columns; Kafka's own segments end at 2^31-1.
    pub fn new(data: &'a [u8], position: i64) -> Result<Self, Error> {
        let Ok(position) = u64::try_from(position) else {
            return invalid(format!("position {position} is negative"));
        };
        match position.checked_add(data.len() as u64) {
            Some(end) if end <= u64::from(u32::MAX) => Ok(Self { data, position, consumed: 0, needed: 0 }),
            _ => invalid("the chunk ends beyond file position 2^32-1"),
        }
    }

    /// The batch at the current position. `None` at the end of the data or before an incomplete batch.
    #[inline(always)]
    pub fn peek(&mut self) -> Result<Option<(Header, &'a [u8])>, Error> {
        let rest = self.rest();
        let front = match header::read_front(rest) {
            Ok(front) => front,
            Err(reason) => return Err(self.locate(reason, rest)),
        };
        match front {
            Front::End => Ok(None),
            Front::Cut(size) => {
                self.needed = size;
                Ok(None)
            }
            Front::Batch(header, batch) => Ok(Some((header, batch))),
        }
    }

    pub fn advance(&mut self, batch: &[u8]) {
        self.consumed += batch.len();
    }

    /// The bytes after the consumed batches.
    pub fn rest(&self) -> &'a [u8] {
        self.data.get(self.consumed..).unwrap_or_default()
    }

    /// File position of the current batch, which `new` has checked.
    pub fn position(&self) -> u32 {
        (self.position + self.consumed as u64) as u32
    }

    /// The error for the current batch.
    #[cold]
    pub fn corrupt(&self, reason: Reason) -> Error {
        let rest = self.rest();
        self.locate(reason, rest)
    }

    #[cold]
    fn locate(&self, mut reason: Reason, rest: &[u8]) -> Error {
        let (base_offset, size) = header::read_frame(rest).unwrap_or((-1, 0));
        if reason.too_large {
            reason.text = format!("a batch of {} bytes {}", i64::from(size) + FRAME_BYTES as i64, reason.text);
        }
        reason.at(self.position + self.consumed as u64, base_offset)
    }
}

/// The decompressed records of a v2 batch, from the batch itself or from `scratch`.
pub fn unpack<'a>(
    header: &Header,
    batch: &'a [u8],
    max_unpacked: usize,
    codecs: &mut Codecs,
    scratch: &'a mut Scratch,
) -> Result<&'a [u8], Reason> {
    let payload = batch.get(header::HEADER_BYTES..).unwrap_or_default();
    let payload = match header.codec() {
        codec::NONE => payload,
        codec if codec > codec::ZSTD => return Err(codec::unknown(codec)),
        // An emptied batch has only its header.
        _ if payload.is_empty() && header.record_count == 0 => payload,
        codec => {
            codecs.decompress(codec, payload, max_unpacked, scratch)?;
            scratch.filled()
        }
    };
    if header.records() > FEW_RECORDS {
        require_room(header.records(), payload.len(), max_unpacked)?;
    }
    Ok(payload)
}

#[cold]
#[inline(never)]
fn require_room(count: usize, payload_bytes: usize, max_unpacked: usize) -> Result<(), Reason> {
    // A count that does not fit the bytes is damage, which the reader of the records reports.
    if count <= payload_bytes / SMALLEST_RECORD && count.saturating_mul(RECORD_BYTES) > max_unpacked {
        return Err(Reason::too_large(format!(
            "decompresses to {count} records, which need more memory than {max_unpacked} bytes"
        )));
    }
    Ok(())
}

/// Checks each record of a batch by F-2.3 and calls `visit` with it. Returns whether their offsets ascend within the batch's
/// offsets. Otherwise the order in the log differs from the order of the offsets.
#[inline(always)]
pub fn for_each_record<'a>(
    header: &Header,
    payload: &'a [u8],
    visit: impl FnMut(usize, &Record<'a>) -> Result<(), Reason>,
) -> Result<bool, Reason> {
    for_each_record_with(header, payload, Unread, visit)
}

/// [`for_each_record`], with the result of `reader` for every record's headers.
#[inline(always)]
pub fn for_each_record_with<'a, R: ReadHeaders>(
    header: &Header,
    payload: &'a [u8],
    reader: R,
    mut visit: impl FnMut(usize, &Record<'a, R::Found>) -> Result<(), Reason>,
) -> Result<bool, Reason> {
    walk_records(header, payload, reader, |_| true, |index, _, record| visit(index, record))
}

/// Calls `visit` with each `wanted` record and its position in the payload. Of the other records it reads only the length, so
/// the batch must have been checked before.
#[inline(always)]
pub fn for_each_wanted_record<'a>(
    header: &Header,
    payload: &'a [u8],
    wanted: impl Fn(usize) -> bool,
    visit: impl FnMut(usize, usize, &Record<'a>) -> Result<(), Reason>,
) -> Result<bool, Reason> {
    walk_records(header, payload, Unread, wanted, visit)
}

#[inline(always)]
fn walk_records<'a, R: ReadHeaders>(
    header: &Header,
    payload: &'a [u8],
    reader: R,
    wanted: impl Fn(usize) -> bool,
    mut visit: impl FnMut(usize, usize, &Record<'a, R::Found>) -> Result<(), Reason>,
) -> Result<bool, Reason> {
    let count = header.records();
    if count > payload.len() / SMALLEST_RECORD {
        return Err(Reason::batch(format!("{count} records do not fit in {} bytes", payload.len())));
    }
    let (mut previous, mut ordered) = (-1, true);
    let mut rest = payload;
    for index in 0..count {
        let start = payload.len() - rest.len();
        let stored = take_stored(&mut rest).map_err(|text| Reason::record(text, index))?;
        if !wanted(index) {
            continue;
        }
        let record = read_record(stored, reader).map_err(|text| Reason::record(text, index))?;
        ordered &= record.offset_delta > previous && record.offset_delta <= header.last_offset_delta;
        previous = record.offset_delta;
        visit(index, start, &record)?;
    }
    if rest.is_empty() {
        Ok(ordered)
    } else {
        Err(Reason::batch(format!("{} bytes after the last record", rest.len())))
    }
}
