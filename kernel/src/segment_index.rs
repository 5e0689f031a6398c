//! Builds the two indexes of a segment (F-6, F-7). Like a broker, it decides per batch about an entry (F-6/7.1).

use crate::error::{Error, invalid};
use crate::rewrite::Written;

const MAX_RELATIVE: i64 = i32::MAX as i64;

#[derive(Debug, Clone)]
pub struct IndexBuilder {
    base_offset: i64,
    interval_bytes: u64,
    max_offset_entries: usize,
    max_time_entries: usize,
    offset_index: Vec<u8>,
    time_index: TimeIndex,
    bytes_since_last_entry: u64,
    position: u64,
    max_timestamp: i64,
    /// Largest last offset up to the first batch with `max_timestamp`.
    offset_of_max_timestamp: i64,
    /// Largest last offset of all batches.
    last_offset: Option<i64>,
}

#[derive(Debug, Clone)]
struct TimeIndex {
    bytes: Vec<u8>,
    entries: usize,
    last_timestamp: i64,
}

impl TimeIndex {
    /// Adds an entry only if its timestamp is larger than the last one, so never for -1 or an equal timestamp.
    fn push(&mut self, timestamp: i64, relative_offset: i32) {
        if timestamp > self.last_timestamp {
            self.bytes.extend_from_slice(&timestamp.to_be_bytes());
            self.bytes.extend_from_slice(&relative_offset.to_be_bytes());
            self.entries += 1;
            self.last_timestamp = timestamp;
        }
    }
}

fn not_negative<T: TryFrom<i64>>(name: &str, value: i64) -> Result<T, Error> {
    T::try_from(value).or_else(|_| invalid(format!("{name} {value} is negative")))
}

impl IndexBuilder {
    pub fn new(
        base_offset: i64,
        interval_bytes: i64,
        max_offset_entries: i64,
        max_time_entries: i64,
    ) -> Result<Self, Error> {
        not_negative::<u64>("base_offset", base_offset)?;
        Ok(Self {
            base_offset,
            interval_bytes: not_negative("interval_bytes", interval_bytes)?,
            max_offset_entries: not_negative("max_offset_entries", max_offset_entries)?,
            max_time_entries: not_negative("max_time_entries", max_time_entries)?,
            offset_index: Vec::new(),
            time_index: TimeIndex { bytes: Vec::new(), entries: 0, last_timestamp: -1 },
            bytes_since_last_entry: 0,
            position: 0,
            max_timestamp: -1,
            offset_of_max_timestamp: base_offset,
            last_offset: None,
        })
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    pub fn max_timestamp(&self) -> i64 {
        self.max_timestamp
    }

    /// Appends the batches of `written`. An error changes nothing.
    pub fn append(&mut self, written: &Written) -> Result<(), Error> {
        self.check(written)?;
        let rows = written.size.iter().zip(&written.last_offset).zip(&written.max_timestamp);
        for ((&size, &last_offset), &max_timestamp) in rows {
            self.append_batch(size, last_offset, max_timestamp);
        }
        Ok(())
    }

    fn check(&self, written: &Written) -> Result<(), Error> {
        for &last_offset in &written.last_offset {
            if !(0..=MAX_RELATIVE).contains(&last_offset.wrapping_sub(self.base_offset)) {
                return invalid(format!(
                    "offset {last_offset} is not within 2^31-1 of base offset {}",
                    self.base_offset
                ));
            }
        }
        let bytes: u64 = written.size.iter().copied().map(u64::from).sum();
        if self.position + bytes > MAX_RELATIVE as u64 {
            return invalid("the segment exceeds 2^31-1 bytes");
        }
        Ok(())
    }

    fn append_batch(&mut self, size: u32, last_offset: i64, max_timestamp: i64) {
        // Entries have to ascend. A batch with a lower offset gets none; readers find it from an earlier entry.
        let rises = self.last_offset.is_none_or(|largest| largest < last_offset);
        if rises {
            self.last_offset = Some(last_offset);
        }
        if max_timestamp > self.max_timestamp {
            self.max_timestamp = max_timestamp;
            self.offset_of_max_timestamp = self.last_offset.unwrap_or(last_offset);
        }
        if rises && self.bytes_since_last_entry > self.interval_bytes {
            if self.offset_index.len() / 8 < self.max_offset_entries {
                self.offset_index.extend_from_slice(&self.relative(last_offset).to_be_bytes());
                self.offset_index.extend_from_slice(&(self.position as i32).to_be_bytes()); // checked in `check`
            }
            // One entry is reserved for the closing one.
            if self.time_index.entries + 1 < self.max_time_entries {
                self.time_index.push(self.max_timestamp, self.relative(self.offset_of_max_timestamp));
            }
            self.bytes_since_last_entry = 0;
        }
        self.bytes_since_last_entry += u64::from(size);
        self.position += u64::from(size);
    }

    /// `check` has checked the offset.
    fn relative(&self, offset: i64) -> i32 {
        offset.wrapping_sub(self.base_offset) as i32
    }

    /// Contents of `.index` and `.timeindex`, with the closing time entry.
    pub fn finish(&self) -> (Vec<u8>, Vec<u8>) {
        let mut time_index = self.time_index.clone();
        time_index.push(self.max_timestamp, self.relative(self.offset_of_max_timestamp));
        (self.offset_index.clone(), time_index.bytes)
    }
}
