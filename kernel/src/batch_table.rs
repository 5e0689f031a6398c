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
    pub(crate) fn new() -> Self {
        Self { first_record: vec![0], ..Self::default() }
    }

    pub(crate) fn reserve(&mut self, count: usize) {
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

    pub fn len(&self) -> usize {
        self.size.len()
    }

    pub fn is_empty(&self) -> bool {
        self.size.is_empty()
    }

    /// Records so far.
    pub(crate) fn records(&self) -> u32 {
        self.first_record.last().copied().unwrap_or(0)
    }

    /// `records` is the record count after this batch.
    pub(crate) fn push(&mut self, header: &Header, batch: &[u8], position: u32, records: u32) -> Result<(), Reason> {
        self.control_type.push(control_type(header, batch)?);
        self.position.push(position);
        self.size.push(header.size as u32); // 12 more than a positive i32
        self.base_offset.push(header.base_offset);
        self.last_offset.push(header.last_offset());
        self.base_timestamp.push(header.base_timestamp);
        self.max_timestamp.push(header.max_timestamp);
        self.producer_id.push(header.producer_id);
        self.producer_epoch.push(header.producer_epoch);
        self.base_sequence.push(header.base_sequence);
        self.leader_epoch.push(header.leader_epoch);
        self.attributes.push(header.attributes);
        self.magic.push(header.magic);
        self.crc.push(header.crc);
        self.first_record.push(records);
        Ok(())
    }
}

/// Headers of all whole batches of `data`, which lies at file position `position`.
///
/// Stops early, between batches, when the record counts (which nobody has checked) sum up to more than 2^32-1.
pub fn scan_headers(data: &[u8], position: i64, verify_crc: bool) -> Result<Batches, Error> {
    let mut walk = Walk::new(data, position)?;
    let mut table = Batches::new();
    while let Some((header, batch)) = walk.peek()? {
        let Some(records) = table.records().checked_add(header.record_count as u32) else {
            break;
        };
        if verify_crc {
            check_crc(&header, batch).map_err(|reason| walk.corrupt(reason))?;
        }
        table.push(&header, batch, walk.position(), records).map_err(|reason| walk.corrupt(reason))?;
        walk.advance(batch);
    }
    table.consumed = walk.consumed;
    table.needed = walk.needed;
    Ok(table)
}
