//! The retained records of a batch, and their header (C-52).

use crate::bits::is_set;
use crate::error::Reason;
use crate::header::{self, CODEC_MASK, CONTROL, HAS_DELETE_HORIZON, Header, LOG_APPEND_TIME, TRANSACTIONAL};
use crate::record::Record;
use crate::varint::{varlong_len, write_varlong};
use crate::walk::for_each_wanted_record;

/// Collects the retained records of one batch.
pub(crate) struct Survivors<'a> {
    source: &'a Header,
    horizon: Option<i64>,
    /// Lower bound for the batch's largest timestamp.
    least_max_timestamp: i64,
    base_timestamp: i64,
    max_timestamp: i64,
    count: usize,
}

impl<'a> Survivors<'a> {
    /// A negative horizon means none (C-50).
    pub fn new(source: &'a Header, horizon: i64, least_max_timestamp: i64) -> Self {
        let horizon = (horizon >= 0).then_some(horizon);
        Self {
            source,
            horizon,
            least_max_timestamp,
            base_timestamp: horizon.unwrap_or(source.max_timestamp),
            max_timestamp: header::NONE,
            count: 0,
        }
    }

    /// Copies neighbouring records that do not change in one step.
    pub fn collect(
        &mut self,
        payload: &[u8],
        keep: &[u64],
        first_bit: usize,
        output: &mut Vec<u8>,
    ) -> Result<(), Reason> {
        let mut run = 0..0;
        let wanted = |index| is_set(keep, first_bit + index);
        for_each_wanted_record(self.source, payload, wanted, |index, start, record| {
            let next = start + record.stored.len();
            let (delta, length) = self.take(index, record)?;
            if run.end != start {
                output.extend_from_slice(payload.get(run.clone()).unwrap_or_default());
                run = start..start;
            }
            if delta == record.timestamp_delta && varlong_len(length as i64) + length == record.stored.len() {
                run.end = next;
            } else {
                output.extend_from_slice(payload.get(run.clone()).unwrap_or_default());
                run = next..next;
                write_varlong(output, length as i64);
                output.push(record.attributes);
                write_varlong(output, delta);
                output.extend_from_slice(record.tail);
            }
            Ok(())
        })?;
        output.extend_from_slice(payload.get(run).unwrap_or_default());
        Ok(())
    }

    /// Timestamp delta and length of a retained record in the new batch.
    ///
    /// The bytes from the offset delta on do not change, because the base offset does not.
    #[inline(always)]
    fn take(&mut self, index: usize, record: &Record<'_>) -> Result<(i64, usize), Reason> {
        let timestamp = self.source.timestamp(record.timestamp_delta);
        if self.count == 0 && self.horizon.is_none() {
            self.base_timestamp = timestamp;
        }
        self.count += 1;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let delta = timestamp.wrapping_sub(self.base_timestamp);
        let length = 1 + varlong_len(delta) + record.tail.len();
        if i32::try_from(length).is_err() {
            return Err(Reason::record("rebuilt record exceeds 2^31-1 bytes", index));
        }
        Ok((delta, length))
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn header(&self) -> Header {
        let kept = CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL;
        let horizon = if self.horizon.is_some() { HAS_DELETE_HORIZON } else { 0 };
        let (append_time, max_timestamp) = largest_time(self.source, self.max_timestamp, self.least_max_timestamp);
        Header {
            attributes: self.source.attributes & kept & !append_time | horizon,
            base_timestamp: self.base_timestamp,
            max_timestamp,
            record_count: i32::try_from(self.count).unwrap_or(i32::MAX), // at most the source's count
            ..self.source.clone()
        }
    }
}

/// The attributes to clear and the largest timestamp of a batch (U-65). `of_records`: the records' largest timestamp.
///
/// With append time, the header's time is that of all records. If it has to be higher, the batch becomes one of create time, in
/// which each rebuilt record keeps its timestamp.
pub(crate) fn largest_time(source: &Header, of_records: i64, least: i64) -> (i16, i64) {
    if !source.has(LOG_APPEND_TIME) {
        (0, of_records.max(least))
    } else if least > source.max_timestamp {
        (LOG_APPEND_TIME, least)
    } else {
        (0, source.max_timestamp)
    }
}
