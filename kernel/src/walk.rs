//! From batch to batch through a chunk, and from record to record through a batch.

use crate::codec::{self, Codecs, Scratch};
use crate::error::{Error, Reason, invalid};
use crate::header::{self, FRAME_BYTES, Front, Header};
use crate::record::{Record, SMALLEST_RECORD, read_record, take_stored};
use crate::record_headers::{ReadHeaders, Unread};

/// What a record of a compressed batch counts for at least, beside the bytes that the batch unpacks to: its row in the columns,
/// and what is made of them. Seven bytes are the smallest record, and they compress to next to nothing.
pub const RECORD_BYTES: usize = 32;
/// So many records are never too many.
pub const FEW_RECORDS: usize = 32 << 10;

/// A chunk of a log and how far it has been read.
pub struct Walk<'a> {
    data: &'a [u8],
    position: u64,
    pub consumed: usize,
    pub needed: usize,
}

impl<'a> Walk<'a> {
    /// File positions are 32 bits wide in the columns; Kafka's own segments end at 2^31-1.
    pub fn new(data: &'a [u8], position: i64) -> Result<Self, Error> {
        let Ok(position) = u64::try_from(position) else {
            return invalid(format!("position {position} is negative"));
        };
        match position.checked_add(data.len() as u64) {
            Some(end) if end <= u64::from(u32::MAX) => Ok(Self { data, position, consumed: 0, needed: 0 }),
            _ => invalid("the chunk ends beyond file position 2^32-1"),
        }
    }

    /// The batch at the current place. `None` at the end of the data or in front of a batch that is not whole.
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

    /// What lies behind the batches that were consumed.
    pub fn rest(&self) -> &'a [u8] {
        self.data.get(self.consumed..).unwrap_or_default()
    }

    /// File position of the current batch; `new` has checked that it fits.
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

/// The records of a v2 batch, unpacked: from the batch itself or from `scratch`.
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
        // The header that is left of an emptied batch.
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
    // A count that the bytes do not bear out is damage, which is told by whoever reads the records.
    if count <= payload_bytes / SMALLEST_RECORD && count.saturating_mul(RECORD_BYTES) > max_unpacked {
        return Err(Reason::too_large(format!(
            "unpacks to {count} records, which need more memory than {max_unpacked} bytes"
        )));
    }
    Ok(())
}

/// Calls `visit` with each record of a batch, having checked what F-2.3 demands. Returns whether their offsets rise and stay
/// within the batch's: only then is the order of the log that of the offsets.
#[inline(always)]
pub fn for_each_record<'a>(
    header: &Header,
    payload: &'a [u8],
    visit: impl FnMut(usize, &Record<'a>) -> Result<(), Reason>,
) -> Result<bool, Reason> {
    for_each_record_with(header, payload, Unread, visit)
}

/// The same, with what `reader` finds in the headers of each record.
#[inline(always)]
pub fn for_each_record_with<'a, R: ReadHeaders>(
    header: &Header,
    payload: &'a [u8],
    reader: R,
    mut visit: impl FnMut(usize, &Record<'a, R::Found>) -> Result<(), Reason>,
) -> Result<bool, Reason> {
    walk_records(header, payload, reader, |_| true, |index, _, record| visit(index, record))
}

/// Calls `visit` with each record that is `wanted` and where in the payload it begins. Of the others only the length is looked
/// at, so this is for batches that were walked through before.
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
        return Err(Reason::batch(format!("{count} records in {} bytes", payload.len())));
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
        Err(Reason::batch(format!("{} bytes behind the last record", rest.len())))
    }
}
