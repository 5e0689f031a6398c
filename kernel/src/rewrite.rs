//! Drops, copies, empties or rebuilds each batch with fewer records. The actions decide everything; there is no policy here.

use crate::codec::{self, Workbench, with_workbench};
use crate::error::{Error, Reason, invalid};
use crate::header::{self, CONTROL, HEADER_BYTES, Header, LOG_APPEND_TIME, TRANSACTIONAL, check_crc};
use crate::survivors::Survivors;
use crate::walk::{Walk, unpack};

pub const ACTION_DROP: u8 = 0;
pub const ACTION_COPY: u8 = 1;
pub const ACTION_REBUILD: u8 = 2;
pub const ACTION_EMPTY: u8 = 3;
pub const ACTION_SET_HORIZON: u8 = 0x10;
/// Only with `ACTION_EMPTY`: the largest timestamp becomes -1, so the batch has no effect on its segment's time.
pub const ACTION_TIMELESS: u8 = 0x20;
/// Only with `ACTION_EMPTY`: the largest timestamp becomes 0, below every timestamp of a search.
pub const ACTION_TIME_ZERO: u8 = 0x40;
pub(crate) const ACTION_EMPTY_TIMELESS: u8 = ACTION_EMPTY | ACTION_TIMELESS;
pub(crate) const ACTION_EMPTY_TIME_ZERO: u8 = ACTION_EMPTY | ACTION_TIME_ZERO;
pub(crate) const ACTION_REBUILD_SET_HORIZON: u8 = ACTION_REBUILD | ACTION_SET_HORIZON;

/// A call ends after the batch with which the output has this size.
pub const MUCH_OUTPUT_BYTES: usize = 64 << 20;
/// If the limit per batch is lower, a call ends at that limit, but not below this.
const LEAST_OUTPUT_BYTES: usize = 4 << 20;

/// The lead in `Written::data` begins at a multiple of this address, for direct I/O.
pub const PAGE_BYTES: usize = 4096;

/// The output bytes, and one row per written batch.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Written {
    /// The output from `output_start` on; before it the lead from `lead_start` on.
    pub data: Vec<u8>,
    pub lead_start: usize,
    pub output_start: usize,
    /// Relative to the first byte of the output.
    pub position: Vec<u32>,
    pub size: Vec<u32>,
    /// Size of the source batch.
    pub source_size: Vec<u32>,
    pub last_offset: Vec<i64>,
    pub max_timestamp: Vec<i64>,
    pub record_count: Vec<u32>,
    pub consumed: usize,
    pub needed: usize,
    pub batches_read: usize,
    pub records_read: usize,
    /// Batches that would be too large with their new delete horizon, so they have none (U-95).
    pub without_horizon: usize,
    /// The output is full at this size; 0 before the first call of `feed`.
    pub much_output: usize,
}

/// What to do with a chunk.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub keep_bits: &'a [u64],
    /// The first record's bit in `keep_bits`.
    pub first_bit: i64,
    /// One per batch, from the first batch of the first call on. There may be more.
    pub actions: &'a [u8],
    pub delete_horizon: i64,
    /// A batch that would exceed this with a new delete horizon gets none (U-95). 0: no limit.
    pub max_batch_bytes: usize,
    /// One per batch, as `actions`: lower bound for the largest timestamp of a rebuilt batch (U-65). None: no lower bound.
    pub least_max_timestamps: Option<&'a [i64]>,
    /// Whether legacy batches become v2 batches; otherwise they keep their format.
    pub convert_legacy: bool,
    pub verify_crc: bool,
    pub max_unpacked: usize,
    /// Less than a page of bytes before the output, which begin at a page. None: the output begins at any address.
    pub lead: Option<&'a [u8]>,
    /// Approximate size of all input.
    pub expected_bytes: usize,
}

impl Written {
    /// The output, without the lead.
    pub fn output(&self) -> &[u8] {
        self.data.get(self.output_start..).unwrap_or_default()
    }

    pub(crate) fn output_bytes(&self) -> usize {
        self.data.len() - self.output_start
    }

    pub(crate) fn row(&mut self, position: usize, header: &Header, source_size: usize) {
        // The output has at most MUCH_OUTPUT_BYTES and one batch, which `seal` keeps below 2^31: so less than 2^32.
        self.position.push(position as u32);
        self.size.push(header.size as u32);
        self.source_size.push(source_size as u32); // 12 more than a positive i32
        self.last_offset.push(header.last_offset());
        self.max_timestamp.push(header.max_timestamp);
        self.record_count.push(header.record_count as u32);
    }
}

/// Rewrites one chunk in one call. `data` begins at file position `position`.
pub fn rewrite_chunk(data: &[u8], position: i64, request: &Request<'_>) -> Result<Written, Error> {
    let mut written = Written::default();
    written.feed(data, position, request)?;
    if request.lead.is_none() {
        written.shrink();
    }
    Ok(written)
}

impl Written {
    /// Whether the output has reached its limit.
    pub fn full(&self) -> bool {
        self.much_output > 0 && self.output_bytes() >= self.much_output
    }

    /// Rewrites the complete batches of `data`, which follow the earlier ones. The request is the same for each call.
    ///
    /// Returns their bytes, and the size of the next batch.
    pub fn feed(&mut self, data: &[u8], position: i64, request: &Request<'_>) -> Result<(usize, usize), Error> {
        let Ok(first_bit) = usize::try_from(request.first_bit) else {
            return invalid(format!("first_bit {} is negative", request.first_bit));
        };
        let lead_bytes = request.lead.map_or(0, <[u8]>::len);
        if lead_bytes >= PAGE_BYTES {
            return invalid(format!("a lead of {lead_bytes} bytes is not smaller than a page"));
        }
        self.much_output = request.max_unpacked.clamp(LEAST_OUTPUT_BYTES, MUCH_OUTPUT_BYTES);
        with_workbench(|bench| {
            Rewrite { data, request, first_bit, bench, written: self, copy_from: None }.run(position)
        })
    }

    /// Frees unused capacity. Not for output after a lead, which must not move.
    pub fn shrink(&mut self) {
        self.data.shrink_to_fit();
    }
}

pub(crate) struct Rewrite<'a> {
    data: &'a [u8],
    pub(crate) request: &'a Request<'a>,
    first_bit: usize,
    pub(crate) bench: &'a mut Workbench,
    pub(crate) written: &'a mut Written,
    /// Start of the copied batches that are not in the output yet.
    copy_from: Option<usize>,
}

impl Rewrite<'_> {
    fn run(mut self, position: i64) -> Result<(usize, usize), Error> {
        let mut walk = Walk::new(self.data, position)?;
        while self.output_bytes(walk.consumed) < self.written.much_output {
            self.skip_dropped(&mut walk);
            let Some((header, batch)) = walk.peek()? else {
                break;
            };
            let records = if header.is_v2() {
                self.v2(&header, batch, &walk)?;
                header.records()
            } else {
                self.legacy(&header, batch, &walk)?
            };
            self.written.batches_read += 1;
            self.written.records_read += records;
            walk.advance(batch);
        }
        self.flush(walk.consumed);
        self.written.consumed += walk.consumed;
        self.written.needed = walk.needed;
        Ok((walk.consumed, walk.needed))
    }

    /// Skips dropped batches, of which it reads only the extent: logs of single records consist mostly of them. It stops at the
    /// first that is not a valid v2 batch, or has no bits. The caller reports the reason.
    fn skip_dropped(&mut self, walk: &mut Walk<'_>) {
        let actions = self.request.actions.get(self.written.batches_read..).unwrap_or_default();
        let bits = 64 * self.request.keep_bits.len();
        let mut first_bit = self.first_bit.saturating_add(self.written.records_read);
        let (mut batches, mut bytes, rest) = (0, 0, walk.rest());
        for _ in actions.iter().take_while(|&&action| action == ACTION_DROP) {
            let Some((size, records)) = header::extent_of_v2(rest.get(bytes..).unwrap_or_default()) else {
                break;
            };
            if first_bit.saturating_add(records) > bits {
                break;
            }
            first_bit += records;
            bytes += size;
            batches += 1;
        }
        if batches > 0 {
            self.flush(walk.consumed);
            self.written.batches_read += batches;
            self.written.records_read = first_bit - self.first_bit;
            walk.consumed += bytes;
        }
    }

    fn v2(&mut self, header: &Header, batch: &[u8], walk: &Walk<'_>) -> Result<(), Error> {
        let first_bit = self.first_of(header.records())?;
        match self.next_action()? {
            ACTION_DROP => self.flush(walk.consumed),
            ACTION_COPY => self.copy(header, batch, walk.consumed).map_err(|reason| walk.corrupt(reason))?,
            action @ (ACTION_EMPTY | ACTION_EMPTY_TIMELESS | ACTION_EMPTY_TIME_ZERO) => {
                self.flush(walk.consumed);
                self.empty(header, batch, action).map_err(|reason| walk.corrupt(reason))?;
            }
            action @ (ACTION_REBUILD | ACTION_REBUILD_SET_HORIZON) => {
                self.flush(walk.consumed);
                let set = action & ACTION_SET_HORIZON != 0;
                let kept = self.rebuild(header, batch, first_bit, set, walk.consumed);
                let kept = kept.map_err(|reason| walk.corrupt(reason))?;
                if kept == 0 {
                    return invalid(format!(
                        "REBUILD retains no record of the batch at base offset {}",
                        header.base_offset
                    ));
                }
            }
            action => return invalid(format!("unknown action {action:#x}")),
        }
        Ok(())
    }

    /// The keep bit of the batch's first record. Checks that there are bits for all `records`.
    pub(crate) fn first_of(&self, records: usize) -> Result<usize, Error> {
        let first = self.first_bit.checked_add(self.written.records_read);
        match first.and_then(|first| Some((first, first.checked_add(records)?))) {
            Some((first, end)) if end.div_ceil(64) <= self.request.keep_bits.len() => Ok(first),
            _ => invalid(format!("{} words have too few keep bits for all records", self.request.keep_bits.len())),
        }
    }

    pub(crate) fn next_action(&self) -> Result<u8, Error> {
        match self.request.actions.get(self.written.batches_read) {
            Some(&action) => Ok(action),
            None => invalid(format!("there are {} actions, but more batches", self.request.actions.len())),
        }
    }

    /// The next batch's lower bound for its largest timestamp.
    pub(crate) fn least_max_timestamp(&self) -> i64 {
        let times = self.request.least_max_timestamps.unwrap_or_default();
        times.get(self.written.batches_read).copied().unwrap_or(header::NONE)
    }

    fn output_bytes(&self, consumed: usize) -> usize {
        self.written.output_bytes() + self.copy_from.map_or(0, |from| consumed - from)
    }

    /// Appends the copied batches, which are neighbours in the input, in one step.
    pub(crate) fn flush(&mut self, consumed: usize) {
        if let Some(from) = self.copy_from.take() {
            self.make_room();
            self.written.data.extend_from_slice(self.data.get(from..consumed).unwrap_or_default());
        }
    }

    /// Reserves the size of the input, which the output rarely exceeds, to avoid moves. Unused pages cost nothing.
    pub(crate) fn make_room(&mut self) {
        let written = &mut *self.written;
        if written.data.is_empty() {
            let lead = self.request.lead.unwrap_or_default();
            written.data.reserve(self.request.expected_bytes + lead.len() + PAGE_BYTES);
            if self.request.lead.is_some() {
                let beyond_page = written.data.as_ptr().addr() % PAGE_BYTES;
                written.lead_start = (PAGE_BYTES - beyond_page) % PAGE_BYTES;
                written.data.resize(written.lead_start, 0);
                written.data.extend_from_slice(lead);
                written.output_start = written.data.len();
            }
        }
    }

    fn verify(&self, header: &Header, batch: &[u8]) -> Result<(), Reason> {
        if self.request.verify_crc { check_crc(header, batch) } else { Ok(()) }
    }

    fn copy(&mut self, header: &Header, batch: &[u8], consumed: usize) -> Result<(), Reason> {
        self.verify(header, batch)?;
        self.copy_row(header, consumed);
        Ok(())
    }

    pub(crate) fn copy_row(&mut self, header: &Header, consumed: usize) {
        let position = self.output_bytes(consumed);
        self.copy_from.get_or_insert(consumed);
        self.written.row(position, header, header.size);
    }

    /// Writes only the header (F-2.5), which keeps the batch's offsets, sequence and transaction.
    fn empty(&mut self, header: &Header, batch: &[u8], action: u8) -> Result<(), Reason> {
        self.verify(header, batch)?;
        let start = self.begin_batch();
        let emptied = Header {
            attributes: header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL),
            base_timestamp: header::NONE,
            max_timestamp: time_of_emptied(header, action),
            record_count: 0,
            ..header.clone()
        };
        self.end_batch(emptied, start)
    }

    pub(crate) fn begin_batch(&mut self) -> usize {
        self.make_room();
        let start = self.written.data.len();
        self.written.data.extend_from_slice(&[0; HEADER_BYTES]);
        start
    }

    pub(crate) fn end_batch(&mut self, mut header: Header, start: usize) -> Result<(), Reason> {
        let source_size = header.size;
        let size = header::seal(&header, &mut self.written.data, start);
        header.size = size.ok_or_else(|| Reason::batch("rebuilt batch exceeds 2^31-1 bytes"))?;
        self.written.row(start - self.written.output_start, &header, source_size);
        Ok(())
    }

    /// Writes the retained records with a new header (C-52). Returns their number.
    ///
    /// A batch that a new delete horizon would make too large gets none. If it also retains all records, it is copied (U-95).
    fn rebuild(
        &mut self,
        header: &Header,
        batch: &[u8],
        first_bit: usize,
        set: bool,
        consumed: usize,
    ) -> Result<usize, Reason> {
        self.verify(header, batch)?;
        check_producer(header)?;
        let start = self.begin_batch();
        let horizon = if set { self.request.delete_horizon } else { header::NONE };
        let (mut rebuilt, mut kept) = self.survivors(header, batch, first_bit, horizon)?;
        let limit = self.request.max_batch_bytes;
        let size = self.written.data.len() - start;
        if set && header.delete_horizon().is_none() && limit > 0 && size > limit && header.size <= limit {
            self.written.without_horizon += 1;
            if kept == header.records() && self.least_max_timestamp() == header::NONE {
                self.written.data.truncate(start);
                self.copy_row(header, consumed);
                return Ok(kept);
            }
            self.written.data.truncate(start + HEADER_BYTES);
            (rebuilt, kept) = self.survivors(header, batch, first_bit, header::NONE)?;
        }
        self.end_batch(rebuilt, start)?;
        Ok(kept)
    }

    /// Appends the retained records after the space for a header. Returns that header and their number.
    fn survivors(
        &mut self,
        header: &Header,
        batch: &[u8],
        first_bit: usize,
        horizon: i64,
    ) -> Result<(Header, usize), Reason> {
        let least = self.least_max_timestamp();
        let Workbench { codecs, unpacked, rebuilt } = &mut *self.bench;
        let payload = unpack(header, batch, self.request.max_unpacked, codecs, unpacked)?;
        let mut survivors = Survivors::new(header, header.delete_horizon().unwrap_or(horizon), least);
        let keep = self.request.keep_bits;
        let codec = header.codec();
        if codec == codec::NONE {
            survivors.collect(payload, keep, first_bit, &mut self.written.data)?;
        } else {
            rebuilt.clear();
            survivors.collect(payload, keep, first_bit, rebuilt)?;
            let source = batch.get(HEADER_BYTES..).unwrap_or_default();
            codecs.compress_like(codec, source, rebuilt, &mut self.written.data)?;
        }
        Ok((survivors.header(), survivors.count()))
    }
}

/// The largest timestamp that an emptied batch gets.
pub(crate) fn time_of_emptied(header: &Header, action: u8) -> i64 {
    match action {
        ACTION_EMPTY_TIMELESS => header::NONE,
        ACTION_EMPTY_TIME_ZERO => 0,
        _ => header.max_timestamp,
    }
}

/// Refuses a batch that Kafka's builder refuses (C-54); an operator has to inspect such a log.
fn check_producer(header: &Header) -> Result<(), Reason> {
    if header.producer_id == header::NONE {
        if header.has(TRANSACTIONAL) {
            return Err(Reason::batch("transactional batch without producer id"));
        }
    } else if header.producer_epoch == -1 {
        return Err(Reason::batch("producer id without producer epoch"));
    } else if header.base_sequence < 0 && !header.has(CONTROL) {
        return Err(Reason::batch("producer id without base sequence"));
    }
    Ok(())
}
