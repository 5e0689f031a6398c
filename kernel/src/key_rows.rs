//! Rows of keys that are written to disk and read again if a log has more keys than an offset map. They are distributed to shards
//! by hash.
//!
//! A row has three words, or four with versions: both words of the hash, the ordinal, the version. The ordinal's top bit shows that
//! there is a version.

use crate::error::{Error, invalid};
use crate::offset_map::{Columns, MAX_ORDINAL, Shard, Versions};

const HAS_VERSION: u64 = 1 << 63;

fn width(versions: bool) -> usize {
    3 + usize::from(versions)
}

/// At most `room` rows, in the order of their addition, until [`KeyRows::deal`] distributes them.
pub struct KeyRows {
    versions: bool,
    room: usize,
    words: Vec<u64>,
}

impl KeyRows {
    pub fn new(room: i64, versions: bool) -> Result<Self, Error> {
        match usize::try_from(room) {
            Ok(room) if room > 0 => Ok(Self { versions, room, words: Vec::new() }),
            _ => invalid(format!("room is {room} rows, at least 1 is needed")),
        }
    }

    pub fn len(&self) -> usize {
        self.words.len() / width(self.versions)
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Adds the rows of `mask`; record `i` has ordinal `first_ordinal + i`. Returns the number of records read: fewer than all
    /// if there is no more room.
    pub fn add(
        &mut self,
        key_hash: &[u64],
        first_ordinal: i64,
        mask: &[bool],
        versions: Option<Versions<'_>>,
    ) -> Result<usize, Error> {
        let (hashes, rest) = key_hash.as_chunks::<2>();
        if hashes.len() != mask.len() || !rest.is_empty() {
            return invalid(format!("there are {} hash words for {} rows", key_hash.len(), mask.len()));
        }
        if versions.is_some() != self.versions
            || versions.is_some_and(|given| given.version.len() != mask.len() || given.has.len() != mask.len())
        {
            return invalid("KeyRows with versions need one version per row, KeyRows without need none");
        }
        let first = match u64::try_from(first_ordinal) {
            Ok(first) if first.checked_add(mask.len() as u64).is_some_and(|end| end <= MAX_ORDINAL + 1) => first,
            _ => return invalid(format!("ordinals {first_ordinal} + {} are not in 0..={MAX_ORDINAL}", mask.len())),
        };
        let most_words = self.room * width(self.versions);
        self.words.reserve_exact(most_words.saturating_sub(self.words.len()));
        for (row, (&[low, high], &wanted)) in hashes.iter().zip(mask).enumerate() {
            if !wanted {
                continue;
            }
            if self.words.len() == most_words {
                return Ok(row);
            }
            let ordinal = first + row as u64;
            match versions {
                None => self.words.extend([low, high, ordinal]),
                Some(Versions { version, has }) => {
                    let flag = if has[row] { HAS_VERSION } else { 0 };
                    self.words.extend([low, high, ordinal | flag, version[row] as u64]);
                }
            }
        }
        Ok(mask.len())
    }

    /// Removes all rows. Returns them by shard, each shard in the order of addition, and the number of rows per shard.
    pub fn deal(&mut self, shards: i64) -> Result<(Vec<u64>, Vec<u64>), Error> {
        Shard::new(0, shards)?;
        let mut counts = vec![0u64; shards as usize];
        let dealt = match self.versions {
            false => deal::<3>(&self.words, &mut counts),
            true => deal::<4>(&self.words, &mut counts),
        };
        self.words.clear();
        Ok((dealt, counts))
    }
}

fn deal<const WIDTH: usize>(words: &[u64], counts: &mut [u64]) -> Vec<u64> {
    let (rows, _) = words.as_chunks::<WIDTH>();
    let shards = counts.len() as u64;
    for row in rows {
        counts[Shard::of(row[0], shards) as usize] += 1;
    }
    let mut places: Vec<usize> = counts
        .iter()
        .scan(0, |next, &count| {
            let first = *next;
            *next += count as usize;
            Some(first)
        })
        .collect();
    let mut dealt = vec![[0u64; WIDTH]; rows.len()];
    for row in rows {
        let place = &mut places[Shard::of(row[0], shards) as usize];
        dealt[*place] = *row;
        *place += 1;
    }
    dealt.into_flattened()
}

impl Columns {
    pub fn of(words: &[u64], versions: bool) -> Result<Self, Error> {
        let width = width(versions);
        if !words.len().is_multiple_of(width) {
            return invalid(format!("{} words are not a multiple of {width}, the words of a row", words.len()));
        }
        let rows = words.len() / width;
        let mut columns = Self {
            hashes: Vec::with_capacity(2 * rows),
            ordinals: Vec::with_capacity(rows),
            version: Vec::with_capacity(if versions { rows } else { 0 }),
            has_version: Vec::with_capacity(if versions { rows } else { 0 }),
        };
        for row in words.chunks_exact(width) {
            columns.hashes.extend(&row[..2]);
            columns.ordinals.push(row[2] & !HAS_VERSION);
            if versions {
                columns.version.push(row[3] as i64);
                columns.has_version.push(row[2] & HAS_VERSION != 0);
            }
        }
        Ok(columns)
    }

    pub fn versions(&self) -> Versions<'_> {
        Versions { version: &self.version, has: &self.has_version }
    }
}
