//! The batch table: one row per batch, column by column. `scan_headers` fills nothing else.

use crate::control::control_type;
use crate::error::{Error, Reason};
use crate::header::{Header, check_crc};
use crate::walk::Walk;

/// All columns have one row per batch, `first_record` one more.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Batches {
    pub position: Vec<u32>,
    pub size: Vec<u32>,
    pub base_offset: Vec<i64>,
    pub last_offset: Vec<i64>,
    pub base_timestamp: Vec<i64>,
    pub max_timestamp: Vec<i64>,
    pub producer_id: Vec<i64>,
    pub producer_epoch: Vec<i16>,
    pub base_sequence: Vec<i32>,
    pub leader_epoch: Vec<i32>,
    pub attributes: Vec<i16>,
    pub magic: Vec<u8>,
    pub crc: Vec<u32>,
    /// See [`control_type`].
    pub control_type: Vec<i16>,
    pub first_record: Vec<u32>,
    /// Rows of the wrappers of which some message has not their own magic (KAFKA-4298).
    pub mixed_magic: Vec<u32>,
    /// Bytes of whole batches read.
    pub consumed: usize,
    /// Bytes that the batch at `consumed` takes when it is not whole, else 0.
    pub needed: usize,
}

impl Batches {
    pub fn len(&self) -> usize {
        self.size.len()
    }

    pub fn is_empty(&self) -> bool {
        self.size.is_empty()
    }

    fn reserve(&mut self, count: usize) {
        self.position.reserve(count);
        self.size.reserve(count);
        self.base_offset.reserve(count);
        self.last_offset.reserve(count);
        self.base_timestamp.reserve(count);
        self.max_timestamp.reserve(count);
        self.producer_id.reserve(count);
        self.producer_epoch.reserve(count);
        self.base_sequence.reserve(count);
        self.leader_epoch.reserve(count);
        self.attributes.reserve(count);
        self.magic.reserve(count);
        self.crc.reserve(count);
        self.control_type.reserve(count);
        self.first_record.reserve(count);
    }

    fn extend(&mut self, rows: &[Row]) {
        let headers = || rows.iter().map(|row| &row.header);
        self.position.extend(rows.iter().map(|row| row.position));
        self.size.extend(headers().map(|header| header.size as u32)); // 12 more than a positive i32
        self.base_offset.extend(headers().map(|header| header.base_offset));
        self.last_offset.extend(headers().map(Header::last_offset));
        self.base_timestamp.extend(headers().map(|header| header.base_timestamp));
        self.max_timestamp.extend(headers().map(|header| header.max_timestamp));
        self.producer_id.extend(headers().map(|header| header.producer_id));
        self.producer_epoch.extend(headers().map(|header| header.producer_epoch));
        self.base_sequence.extend(headers().map(|header| header.base_sequence));
        self.leader_epoch.extend(headers().map(|header| header.leader_epoch));
        self.attributes.extend(headers().map(|header| header.attributes));
        self.magic.extend(headers().map(|header| header.magic));
        self.crc.extend(headers().map(|header| header.crc));
        self.control_type.extend(rows.iter().map(|row| row.control_type));
        self.first_record.extend(rows.iter().map(|row| row.records));
    }
}

/// Rows that are turned into columns at once: fifteen columns grow by a block for what one costs row by row.
const BLOCK_ROWS: usize = 64;

struct Row {
    header: Header,
    position: u32,
    control_type: i16,
    /// Records up to and with this batch.
    records: u32,
}

/// A batch table that grows.
pub(crate) struct Builder {
    table: Batches,
    block: Vec<Row>,
    records: u32,
}

impl Builder {
    pub(crate) fn new() -> Self {
        let table = Batches { first_record: vec![0], ..Batches::default() };
        Self { table, block: Vec::with_capacity(BLOCK_ROWS), records: 0 }
    }

    pub(crate) fn reserve(&mut self, count: usize) {
        self.table.reserve(count);
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len() + self.block.len()
    }

    /// `records` is the record count after this batch.
    #[inline(always)]
    pub(crate) fn push(&mut self, header: Header, batch: &[u8], position: u32, records: u32) -> Result<(), Reason> {
        let control_type = control_type(&header, batch)?;
        self.records = records;
        if self.block.len() == BLOCK_ROWS {
            self.table.extend(&self.block);
            self.block.clear();
        }
        self.block.push(Row { header, position, control_type, records });
        Ok(())
    }

    /// The next batch is a wrapper of which some message has not its own magic.
    pub(crate) fn next_is_mixed(&mut self) {
        self.table.mixed_magic.push(self.len() as u32); // fewer than the bytes of a chunk
    }

    pub(crate) fn finish(mut self, consumed: usize, needed: usize) -> Batches {
        self.table.extend(&self.block);
        Batches { consumed, needed, ..self.table }
    }
}

/// Headers of all whole batches of `data`, which lies at file position `position`.
///
/// Stops early, between batches, when the record counts (which nobody has checked) sum up to more than 2^32-1.
pub fn scan_headers(data: &[u8], position: i64, verify_crc: bool) -> Result<Batches, Error> {
    let mut walk = Walk::new(data, position)?;
    let mut table = Builder::new();
    while let Some((header, batch)) = walk.peek()? {
        let Some(records) = table.records.checked_add(header.record_count as u32) else {
            break;
        };
        if verify_crc {
            check_crc(&header, batch).map_err(|reason| walk.corrupt(reason))?;
        }
        table.push(header, batch, walk.position(), records).map_err(|reason| walk.corrupt(reason))?;
        if walk.consumed == 0 {
            table.reserve(data.len() / batch.len().max(1));
        }
        walk.advance(batch);
    }
    Ok(table.finish(walk.consumed, walk.needed))
}
