//! The batch table: columns with one row per batch. `scan_headers` fills only this table.

use crate::control::control_type;
use crate::error::{Error, Reason};
use crate::header::{Header, check_crc};
use crate::walk::Walk;

/// All columns have one row per batch; `first_record` has one more.
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
    /// Rows of wrappers with a message of another magic than their own (KAFKA-4298).
    pub mixed_magic: Vec<u32>,
    /// Rows of batches whose records' offsets do not ascend, or are outside the batch's offsets.
    pub unordered: Vec<u32>,
    /// Bytes of the complete batches that were read.
    pub consumed: usize,
    /// Size of the incomplete batch at `consumed`, otherwise 0.
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

    fn extend(&mut self, rows: &Rows, count: usize) {
        self.position.extend_from_slice(rows.position.get(..count).unwrap_or_default());
        self.size.extend_from_slice(rows.size.get(..count).unwrap_or_default());
        self.base_offset.extend_from_slice(rows.base_offset.get(..count).unwrap_or_default());
        self.last_offset.extend_from_slice(rows.last_offset.get(..count).unwrap_or_default());
        self.base_timestamp.extend_from_slice(rows.base_timestamp.get(..count).unwrap_or_default());
        self.max_timestamp.extend_from_slice(rows.max_timestamp.get(..count).unwrap_or_default());
        self.producer_id.extend_from_slice(rows.producer_id.get(..count).unwrap_or_default());
        self.producer_epoch.extend_from_slice(rows.producer_epoch.get(..count).unwrap_or_default());
        self.base_sequence.extend_from_slice(rows.base_sequence.get(..count).unwrap_or_default());
        self.leader_epoch.extend_from_slice(rows.leader_epoch.get(..count).unwrap_or_default());
        self.attributes.extend_from_slice(rows.attributes.get(..count).unwrap_or_default());
        self.magic.extend_from_slice(rows.magic.get(..count).unwrap_or_default());
        self.crc.extend_from_slice(rows.crc.get(..count).unwrap_or_default());
        self.control_type.extend_from_slice(rows.control_type.get(..count).unwrap_or_default());
        self.first_record.extend_from_slice(rows.first_record.get(..count).unwrap_or_default());
    }
}

/// Rows that are converted to columns at once. Fifteen columns grow by a block for the cost of one that grows row by row.
const BLOCK_ROWS: usize = 64;

/// A block of rows in columns, so that each value is moved once.
struct Rows {
    position: [u32; BLOCK_ROWS],
    size: [u32; BLOCK_ROWS],
    base_offset: [i64; BLOCK_ROWS],
    last_offset: [i64; BLOCK_ROWS],
    base_timestamp: [i64; BLOCK_ROWS],
    max_timestamp: [i64; BLOCK_ROWS],
    producer_id: [i64; BLOCK_ROWS],
    producer_epoch: [i16; BLOCK_ROWS],
    base_sequence: [i32; BLOCK_ROWS],
    leader_epoch: [i32; BLOCK_ROWS],
    attributes: [i16; BLOCK_ROWS],
    magic: [u8; BLOCK_ROWS],
    crc: [u32; BLOCK_ROWS],
    control_type: [i16; BLOCK_ROWS],
    first_record: [u32; BLOCK_ROWS],
}

impl Rows {
    const EMPTY: Self = Self {
        position: [0; BLOCK_ROWS],
        size: [0; BLOCK_ROWS],
        base_offset: [0; BLOCK_ROWS],
        last_offset: [0; BLOCK_ROWS],
        base_timestamp: [0; BLOCK_ROWS],
        max_timestamp: [0; BLOCK_ROWS],
        producer_id: [0; BLOCK_ROWS],
        producer_epoch: [0; BLOCK_ROWS],
        base_sequence: [0; BLOCK_ROWS],
        leader_epoch: [0; BLOCK_ROWS],
        attributes: [0; BLOCK_ROWS],
        magic: [0; BLOCK_ROWS],
        crc: [0; BLOCK_ROWS],
        control_type: [0; BLOCK_ROWS],
        first_record: [0; BLOCK_ROWS],
    };
}

/// Builds a batch table.
pub(crate) struct Builder {
    table: Batches,
    rows: Box<Rows>,
    in_block: usize,
    records: u32,
}

impl Builder {
    pub(crate) fn new() -> Self {
        let table = Batches { first_record: vec![0], ..Batches::default() };
        Self { table, rows: Box::new(Rows::EMPTY), in_block: 0, records: 0 }
    }

    pub(crate) fn reserve(&mut self, count: usize) {
        self.table.reserve(count);
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len() + self.in_block
    }

    /// `records`: the record count up to and including this batch.
    #[inline(always)]
    pub(crate) fn push(&mut self, header: &Header, batch: &[u8], position: u32, records: u32) -> Result<(), Reason> {
        let control_type = control_type(header, batch)?;
        self.records = records;
        if self.in_block == BLOCK_ROWS {
            self.flush();
        }
        let (rows, row) = (&mut *self.rows, self.in_block % BLOCK_ROWS);
        rows.position[row] = position;
        rows.size[row] = header.size as u32; // 12 more than a positive i32
        rows.base_offset[row] = header.base_offset;
        rows.last_offset[row] = header.last_offset();
        rows.base_timestamp[row] = header.base_timestamp;
        rows.max_timestamp[row] = header.max_timestamp;
        rows.producer_id[row] = header.producer_id;
        rows.producer_epoch[row] = header.producer_epoch;
        rows.base_sequence[row] = header.base_sequence;
        rows.leader_epoch[row] = header.leader_epoch;
        rows.attributes[row] = header.attributes;
        rows.magic[row] = header.magic;
        rows.crc[row] = header.crc;
        rows.control_type[row] = control_type;
        rows.first_record[row] = records;
        self.in_block += 1;
        Ok(())
    }

    #[inline(never)]
    fn flush(&mut self) {
        self.table.extend(&self.rows, self.in_block);
        self.in_block = 0;
    }

    /// Marks the next batch as a wrapper with a message of another magic than its own.
    pub(crate) fn next_is_mixed(&mut self) {
        self.table.mixed_magic.push(self.len() as u32); // fewer than the bytes of a chunk
    }

    /// Marks the next batch: its records' offsets do not ascend, or are outside the batch's offsets.
    #[cold]
    pub(crate) fn next_is_unordered(&mut self) {
        self.table.unordered.push(self.len() as u32); // fewer than the bytes of a chunk
    }

    pub(crate) fn finish(mut self, consumed: usize, needed: usize) -> Batches {
        self.flush();
        Batches { consumed, needed, ..self.table }
    }
}

/// Headers of all complete batches of `data`, which begins at file position `position`.
///
/// Stops before the batch with which the unchecked record counts would add up to more than 2^32-1.
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
        table.push(&header, batch, walk.position(), records).map_err(|reason| walk.corrupt(reason))?;
        if walk.consumed == 0 {
            table.reserve(data.len() / batch.len().max(1));
        }
        walk.advance(batch);
    }
    Ok(table.finish(walk.consumed, walk.needed))
}
