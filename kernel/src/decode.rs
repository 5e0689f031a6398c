//! Decodes complete batches to columns. Decompressed bytes are dropped after each batch.

use crate::batch_table::{Batches, Builder};
use crate::codec::{Codecs, Scratch, with_workbench};
use crate::error::{Error, Reason};
use crate::header::{Header, check_crc};
use crate::key_hash::KeyHasher;
use crate::legacy::Messages;
use crate::record::SMALLEST_RECORD;
use crate::record_headers::{Found, HeaderNames, ReadHeaders, Unread};
use crate::walk::{FEW_RECORDS, RECORD_BYTES, Walk, for_each_record_with, unpack};

pub const FLAG_HAS_KEY: u8 = 1;
pub const FLAG_HAS_VALUE: u8 = 2;
/// Tombstone by the attributes byte of a v2 record (KIP-87).
pub const FLAG_TOMBSTONE: u8 = 4;
pub use crate::record_headers::{FLAG_BAD_VERSION, FLAG_HAS_VERSION, FLAG_TOMBSTONE_HEADER};

/// Bit of a v2 record's attributes. (In a batch's attributes, this bit means a control batch.)
const TOMBSTONE_ATTRIBUTE: u8 = 0x20;

/// A chunk ends after the batch with which it has this many records.
pub const MANY_RECORDS: usize = 1 << 20;
/// A chunk ends after the batch with which it has this many decompressed bytes.
pub const MANY_UNPACKED_BYTES: usize = 64 << 20;
/// If the limit per batch is lower, a chunk ends at that limit, but not below this.
const LEAST_UNPACKED_BYTES: usize = 4 << 20;

pub const DEFAULT_MAX_UNPACKED: usize = 1 << 30;

/// One row per record, in file order. `key_hash` has two words per row, or none; `version` may be empty, too.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Records {
    pub offset: Vec<i64>,
    pub timestamp: Vec<i64>,
    pub key_hash: Vec<u64>,
    pub flags: Vec<u8>,
    pub version: Vec<i64>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub batches: Batches,
    pub records: Records,
}

/// How to decode.
#[derive(Debug, Clone)]
pub struct Options {
    /// Key of SipHash-1-3-128 for the record keys. Without it there are no hashes.
    pub hash_key: Option<[u8; 16]>,
    /// Headers to interpret. Without them headers are only checked.
    pub headers: Option<HeaderNames>,
    pub verify_crc: bool,
    /// Largest decompressed size of one batch, in bytes.
    pub max_unpacked: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { hash_key: None, headers: None, verify_crc: true, max_unpacked: DEFAULT_MAX_UNPACKED }
    }
}

impl Options {
    /// Whether there is a column of versions.
    fn versions(&self) -> bool {
        self.headers.as_ref().is_some_and(|names| names.version.is_some())
    }
}

impl Records {
    /// Reserves rows for one more batch. The caller has checked that the count fits the bytes.
    fn reserve(&mut self, count: usize, options: &Options) {
        self.offset.reserve(count);
        self.timestamp.reserve(count);
        self.flags.reserve(count);
        if options.hash_key.is_some() {
            self.key_hash.reserve(2 * count);
        }
        if options.versions() {
            self.version.reserve(count);
        }
    }

    pub fn len(&self) -> usize {
        self.flags.len()
    }

    pub fn is_empty(&self) -> bool {
        self.flags.is_empty()
    }
}

/// The batches of `data` and their records. `data` begins at file position `position`.
pub fn decode_chunk(data: &[u8], position: i64, options: &Options) -> Result<Chunk, Error> {
    let mut gathering = Gathering::new(data.len());
    gathering.feed(data, position, options)?;
    Ok(gathering.finish())
}

/// A chunk that is decoded piece by piece, so that a piece is still in the CPU's cache when it is read again.
pub struct Gathering {
    batches: Builder,
    records: Records,
    expected_bytes: usize,
    unpacked: usize,
    /// Depends on the limit per batch: with little memory a chunk has few batches.
    limits: Limits,
    consumed: usize,
    needed: usize,
}

/// Limits of a chunk.
struct Limits {
    records: usize,
    unpacked: usize,
}

impl Gathering {
    /// `expected_bytes`: approximate size of the chunk, so that columns need not grow.
    pub fn new(expected_bytes: usize) -> Self {
        let (batches, records) = (Builder::new(), Records::default());
        Self {
            batches,
            records,
            expected_bytes,
            unpacked: 0,
            limits: Limits::allowed_by(usize::MAX),
            consumed: 0,
            needed: 0,
        }
    }

    /// Whether the chunk has reached a limit.
    pub fn full(&self) -> bool {
        self.records.len() >= self.limits.records || self.unpacked > self.limits.unpacked
    }

    /// Decodes the complete batches of `data`, which follow the earlier ones. Returns their bytes, and the size of the next batch.
    pub fn feed(&mut self, data: &[u8], position: i64, options: &Options) -> Result<(usize, usize), Error> {
        self.limits = Limits::allowed_by(options.max_unpacked);
        with_workbench(|bench| {
            let mut walk = Walk::new(data, position)?;
            let mut hasher = options.hash_key.as_ref().map(KeyHasher::new);
            while !self.full() {
                let Some((header, batch)) = walk.peek()? else {
                    break;
                };
                let task = Task { header: &header, batch, options, hasher: hasher.as_mut() };
                let (codecs, scratch) = (&mut bench.codecs, &mut bench.unpacked);
                let decoded = if header.is_v2() {
                    task.decode(codecs, scratch, &mut self.batches, &mut self.records).map(|bytes| (bytes, None))
                } else {
                    task.decode_legacy(codecs, scratch, &mut self.batches, &mut self.records)
                        .map(|(bytes, header)| (bytes, Some(header)))
                };
                let (bytes, opened) = decoded.map_err(|reason| walk.corrupt(reason))?;
                self.unpacked += bytes;
                let header = opened.unwrap_or(header);
                // A batch has fewer than 2^31 records, after fewer than MANY_RECORDS.
                let end = self.records.len() as u32;
                self.batches.push(&header, batch, walk.position(), end).map_err(|reason| walk.corrupt(reason))?;
                if self.consumed + walk.consumed == 0 {
                    self.reserve(batch.len(), options);
                }
                walk.advance(batch);
            }
            if let Some(hasher) = &mut hasher {
                hasher.finish(&mut self.records.key_hash);
            }
            self.consumed += walk.consumed;
            self.needed = walk.needed;
            Ok((walk.consumed, walk.needed))
        })
    }

    /// Reserves rows as if all batches were like the first: growing the columns batch by batch would cost more than decoding.
    ///
    /// The first batch was decoded, so its record count fits its bytes. A chunk's limit is the maximum.
    fn reserve(&mut self, first_bytes: usize, options: &Options) {
        let count = self.expected_bytes / first_bytes.max(1) + 1;
        self.batches.reserve(count);
        self.records.reserve(self.records.len().saturating_mul(count).min(self.limits.records), options);
    }

    pub fn finish(self) -> Chunk {
        Chunk { batches: self.batches.finish(self.consumed, self.needed), records: self.records }
    }
}

impl Limits {
    fn allowed_by(max_unpacked: usize) -> Self {
        Self {
            // Half, because one more batch may follow.
            records: (max_unpacked / (2 * RECORD_BYTES)).clamp(FEW_RECORDS / 2, MANY_RECORDS),
            unpacked: max_unpacked.clamp(LEAST_UNPACKED_BYTES, MANY_UNPACKED_BYTES),
        }
    }
}

struct Task<'a> {
    header: &'a Header,
    batch: &'a [u8],
    options: &'a Options,
    /// May write the hashes of this batch's keys together with those of a later batch.
    hasher: Option<&'a mut KeyHasher>,
}

impl Task<'_> {
    /// Appends the batch's records to `records`. Returns their decompressed bytes.
    fn decode(
        mut self,
        codecs: &mut Codecs,
        scratch: &mut Scratch,
        batches: &mut Builder,
        records: &mut Records,
    ) -> Result<usize, Reason> {
        if self.options.verify_crc {
            check_crc(self.header, self.batch)?;
        }
        let payload = unpack(self.header, self.batch, self.options.max_unpacked, codecs, scratch)?;
        let ordered = if let Some(names) = &self.options.headers {
            let versions = self.options.versions();
            self.hashed_columns(payload, records, names, |found: &Found, column| {
                if versions {
                    column.push(found.version);
                }
                found.flags
            })?
        } else {
            self.hashed_columns(payload, records, Unread, |(), _| 0)?
        };
        if !ordered {
            batches.next_is_unordered();
        }
        Ok(payload.len())
    }

    /// [`Task::decode`] for a batch of magic 0 or 1. Also returns its header, which is known only after decompression.
    fn decode_legacy(
        mut self,
        codecs: &mut Codecs,
        scratch: &mut Scratch,
        batches: &mut Builder,
        records: &mut Records,
    ) -> Result<(usize, Header), Reason> {
        let Options { verify_crc, max_unpacked, .. } = *self.options;
        let messages = Messages::open(self.header, self.batch, verify_crc, max_unpacked, codecs, scratch)?;
        records.reserve(messages.header.records(), self.options);
        let (mut mixed, mut ordered, mut previous) = (false, true, i64::MIN);
        messages.for_each(|_, message| {
            mixed |= message.magic != self.header.magic;
            ordered &= message.offset > previous;
            previous = message.offset;
            records.offset.push(message.offset);
            records.timestamp.push(message.timestamp);
            let has_key = if message.key.is_some() { FLAG_HAS_KEY } else { 0 };
            let has_value = if message.value.is_some() { FLAG_HAS_VALUE } else { 0 };
            records.flags.push(has_key | has_value);
            if let Some(hasher) = &mut self.hasher {
                hasher.push(message.key, &mut records.key_hash);
            }
            Ok(())
        })?;
        if self.options.versions() {
            records.version.resize(records.flags.len(), 0);
        }
        if mixed {
            batches.next_is_mixed();
        }
        if !ordered {
            batches.next_is_unordered();
        }
        Ok((messages.bytes(), messages.header))
    }

    /// `note` converts the result of `reader` for a record's headers to flags.
    #[inline(always)]
    fn hashed_columns<R: ReadHeaders>(
        &mut self,
        payload: &[u8],
        records: &mut Records,
        reader: R,
        note: impl FnMut(&R::Found, &mut Vec<i64>) -> u8,
    ) -> Result<bool, Reason> {
        match self.hasher.take() {
            Some(hasher) => self.columns(payload, records, reader, note, |key, hashes| hasher.push(key, hashes)),
            None => self.columns(payload, records, reader, note, |_, _| ()),
        }
    }

    #[inline(always)]
    fn columns<R: ReadHeaders>(
        &self,
        payload: &[u8],
        records: &mut Records,
        reader: R,
        mut note: impl FnMut(&R::Found, &mut Vec<i64>) -> u8,
        mut hash: impl FnMut(Option<&[u8]>, &mut Vec<u64>),
    ) -> Result<bool, Reason> {
        let header = self.header;
        records.reserve(header.records().min(payload.len() / SMALLEST_RECORD), self.options);
        for_each_record_with(header, payload, reader, |_, record| {
            records.offset.push(header.base_offset.wrapping_add(i64::from(record.offset_delta)));
            records.timestamp.push(header.timestamp(record.timestamp_delta));
            let has_key = if record.key.is_some() { FLAG_HAS_KEY } else { 0 };
            let has_value = if record.has_value { FLAG_HAS_VALUE } else { 0 };
            let tombstone = (record.attributes & TOMBSTONE_ATTRIBUTE) / (TOMBSTONE_ATTRIBUTE / FLAG_TOMBSTONE);
            let noted = note(&record.headers, &mut records.version);
            records.flags.push(has_key | has_value | tombstone | noted);
            hash(record.key, &mut records.key_hash);
            Ok(())
        })
    }
}
