//! Whole batches to columns. Unpacked bytes live no longer than their batch.

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
/// KIP-87, as the attributes byte of a v2 record has it.
pub const FLAG_TOMBSTONE: u8 = 4;
pub use crate::record_headers::{FLAG_BAD_VERSION, FLAG_HAS_VERSION, FLAG_TOMBSTONE_HEADER};

/// Bit of a v2 record's attributes. (The same bit of a batch's attributes is that of control batches.)
const TOMBSTONE_ATTRIBUTE: u8 = 0x20;

/// After a batch that brings the record table to this size the chunk ends.
pub const MANY_RECORDS: usize = 1 << 20;
/// The same for unpacked bytes.
pub const MANY_UNPACKED_BYTES: usize = 64 << 20;
/// Where a batch may not unpack to that much a chunk ends sooner, but not below this.
const LEAST_UNPACKED_BYTES: usize = 4 << 20;

pub const DEFAULT_MAX_UNPACKED: usize = 1 << 30;

/// One row per record, in file order; `key_hash` has two words per row, or none at all. `version` may have no rows too.
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
    /// Key of SipHash-1-3-128 for the record keys; without it there are no hashes.
    pub hash_key: Option<[u8; 16]>,
    /// Headers that are looked at; without any they are only checked.
    pub headers: Option<HeaderNames>,
    pub verify_crc: bool,
    /// Bytes that one batch may unpack to.
    pub max_unpacked: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { hash_key: None, headers: None, verify_crc: true, max_unpacked: DEFAULT_MAX_UNPACKED }
    }
}

impl Options {
    /// Is there a column of versions?
    fn versions(&self) -> bool {
        self.headers.as_ref().is_some_and(|names| names.version.is_some())
    }
}

impl Records {
    /// Room for the records of one more batch. The caller has checked the count against the bytes.
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

/// The batches of `data`, which lies at file position `position`, and their records.
pub fn decode_chunk(data: &[u8], position: i64, options: &Options) -> Result<Chunk, Error> {
    let mut gathering = Gathering::new(data.len());
    gathering.feed(data, position, options)?;
    Ok(gathering.finish())
}

/// A chunk that is decoded piece by piece, so that the bytes of a piece are still at hand when they are read again.
pub struct Gathering {
    batches: Builder,
    records: Records,
    expected_bytes: usize,
    unpacked: usize,
    /// Where batches may take little memory, few of them make a chunk.
    most: Most,
    consumed: usize,
    needed: usize,
}

/// What makes a chunk full.
struct Most {
    records: usize,
    unpacked: usize,
}

impl Gathering {
    /// `expected_bytes`: about how many are to come, so that columns need not grow.
    pub fn new(expected_bytes: usize) -> Self {
        let (batches, records) = (Builder::new(), Records::default());
        Self {
            batches,
            records,
            expected_bytes,
            unpacked: 0,
            most: Most::allowed_by(usize::MAX),
            consumed: 0,
            needed: 0,
        }
    }

    /// It takes no more: there are many records, or they were large.
    pub fn full(&self) -> bool {
        self.records.len() >= self.most.records || self.unpacked > self.most.unpacked
    }

    /// The whole batches of `data`, which follow those before; returns the bytes that they take, and what the next one needs.
    pub fn feed(&mut self, data: &[u8], position: i64, options: &Options) -> Result<(usize, usize), Error> {
        self.most = Most::allowed_by(options.max_unpacked);
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
                // One batch has below 2^31 records, and there were fewer than MANY_RECORDS before it.
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

    /// Room for what is to come if it is like the first batch: growing columns batch by batch would cost more than decoding.
    ///
    /// The first batch's records have been seen, so the bytes bear them out; and no more than the chunk may hold.
    fn reserve(&mut self, first_bytes: usize, options: &Options) {
        let count = self.expected_bytes / first_bytes.max(1) + 1;
        self.batches.reserve(count);
        self.records.reserve(self.records.len().saturating_mul(count).min(self.most.records), options);
    }

    pub fn finish(self) -> Chunk {
        Chunk { batches: self.batches.finish(self.consumed, self.needed), records: self.records }
    }
}

impl Most {
    fn allowed_by(max_unpacked: usize) -> Self {
        Self {
            // Half, as one more batch may come on top.
            records: (max_unpacked / (2 * RECORD_BYTES)).clamp(FEW_RECORDS / 2, MANY_RECORDS),
            unpacked: max_unpacked.clamp(LEAST_UNPACKED_BYTES, MANY_UNPACKED_BYTES),
        }
    }
}

struct Task<'a> {
    header: &'a Header,
    batch: &'a [u8],
    options: &'a Options,
    /// Hashes of the batch's keys may come with a later batch's.
    hasher: Option<&'a mut KeyHasher>,
}

impl Task<'_> {
    /// Appends the batch's records to `records`; returns the bytes that it unpacked to.
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

    /// The same for a batch of magic 0 or 1; returns its header too, which is known only now.
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

    /// `note` takes what `reader` finds in a record's headers and returns flags.
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
