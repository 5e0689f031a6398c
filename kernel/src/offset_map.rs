//! Offset map: key hash -> largest ordinal, in lines of four 16-byte entries, with two candidate lines per key.
//!
//! A line is eight words. Words 0-3 have 64 tag bits per entry. Words 4-7 have 24 more tag bits, one spare bit and 39 bits of
//! ordinal + 1, where 0 means empty. The 40 hash bits outside the tag give a key's `home` line; the tag gives the distance to its
//! `other` line. A new key goes to the emptier one. If both are full, it goes to the next line with room after `home`. The spare
//! bit of word 4 of `home` then shows that a search has to continue. So a miss costs about as much as a hit.
//!
//! Entries are never removed, so a full line stays full, and a continued search ends at the first line with room.

mod search;
mod shard;
mod versioned;

use std::hint::select_unpredictable;

use bytemuck::{cast_slice, cast_slice_mut};
use memmap2::{Advice, MmapMut};

use crate::bits::words_for;
use crate::error::{Error, invalid};

use search::{Keys, Search, Task, Visitor};
pub use shard::Shard;
use versioned::LINE_AND_VERSIONS_BYTES;
pub use versioned::Versions;

const LINE_BYTES: usize = 64;
const SLOTS: usize = 4;
/// In a smaller map fewer than 96 bits would identify a key. A map with versions needs 1.5 times as much.
pub const SMALLEST_BYTES: usize = 48 << 10;

const ORDINAL_BITS: u32 = 39;
const ORDINAL_MASK: u64 = (1 << ORDINAL_BITS) - 1;
const CONTINUES: u64 = 1 << ORDINAL_BITS;
const TAG_SHIFT: u32 = ORDINAL_BITS + 1;
const HOME_BITS: u32 = 40;
const HOME_MASK: u64 = (1 << HOME_BITS) - 1;

/// Largest ordinal in a map; in a map with versions it is one less.
pub const MAX_ORDINAL: u64 = ORDINAL_MASK - 1;

/// Rows of a file of keys, as columns: two words of the hash per row, the record's ordinal, and its version if there is one.
pub struct Columns {
    pub hashes: Vec<u64>,
    pub ordinals: Vec<u64>,
    pub version: Vec<i64>,
    pub has_version: Vec<bool>,
}

type Line = [u64; 8];

pub struct OffsetMap {
    memory: MmapMut,
    lines: usize,
    len: usize,
    capacity: usize,
    versioned: bool,
}

/// A key and its two candidate lines.
#[derive(Debug, Clone, Copy, Default)]
struct Probe {
    tag_low: u64,
    tag_high: u64,
    home: usize,
    other: usize,
}

/// The ordinal of each row.
#[derive(Debug, Clone, Copy)]
enum Ordinals<'a> {
    From(u64),
    Each(&'a [u64]),
}

impl Ordinals<'_> {
    /// Ordinal + 1, the form in entries.
    #[inline(always)]
    fn stored(self, row: usize) -> u64 {
        1 + match self {
            Self::From(first) => first + row as u64,
            Self::Each(ordinals) => ordinals[row],
        }
    }
}

/// The place of a key, or the place where it would be inserted.
enum Place {
    Found { line: usize, slot: usize },
    Room { line: usize, slot: usize, behind_home: bool },
}

/// `fraction / 2^bits` of `count`.
#[inline(always)]
fn scale(fraction: u64, bits: u32, count: usize) -> usize {
    ((u128::from(fraction) * count as u128) >> bits) as usize
}

impl OffsetMap {
    /// `memory_bytes` is rounded down to whole lines. `load`: the share of the slots that may be used.
    pub fn new(memory_bytes: i64, load: f64, huge_pages: bool) -> Result<Self, Error> {
        Self::of(memory_bytes, load, huge_pages, false)
    }

    /// [`OffsetMap::new`] with a version per key; the memory includes the versions.
    pub fn with_versions(memory_bytes: i64, load: f64, huge_pages: bool) -> Result<Self, Error> {
        Self::of(memory_bytes, load, huge_pages, true)
    }

    fn of(memory_bytes: i64, load: f64, huge_pages: bool, versioned: bool) -> Result<Self, Error> {
        let line_bytes = if versioned { LINE_AND_VERSIONS_BYTES } else { LINE_BYTES };
        let lines = usize::try_from(memory_bytes).unwrap_or(0) / line_bytes;
        if lines * LINE_BYTES < SMALLEST_BYTES {
            let smallest = SMALLEST_BYTES / LINE_BYTES * line_bytes;
            return invalid(format!("a map needs at least {smallest} bytes, not {memory_bytes}"));
        }
        if !(load > 0.0 && load <= 1.0) {
            return invalid(format!("load {load} is not in (0, 1]"));
        }
        let memory = MmapMut::map_anon(lines * line_bytes).map_err(Error::Memory)?;
        if huge_pages {
            // Only advice: the map also works if the kernel has no huge pages and refuses it.
            let _ = memory.advise(Advice::HugePage);
        }
        let slots = lines * SLOTS;
        let capacity = ((slots as f64 * load) as usize).clamp(1, slots);
        Ok(Self { memory, lines, len: 0, capacity, versioned })
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn memory_bytes(&self) -> usize {
        self.memory.len()
    }

    /// Whether the map has versions.
    pub fn versioned(&self) -> bool {
        self.versioned
    }

    fn max_ordinal(&self) -> u64 {
        MAX_ORDINAL - u64::from(self.versioned)
    }

    /// 88 tag bits, plus the bits of the line: a false match has to be in one of about three lines.
    pub fn identity_bits(&self) -> f64 {
        88.0 + (self.lines as f64 / 3.0).log2()
    }

    /// Removes all keys and keeps the memory, because new pages are expensive.
    pub fn clear(&mut self) {
        if self.len > 0 {
            // Words of versions are read only for entries.
            self.memory[..self.lines * LINE_BYTES].fill(0);
            self.len = 0;
        }
    }

    #[inline(always)]
    fn probe(lines: usize, low: u64, high: u64) -> Probe {
        let home = scale(high & HOME_MASK, HOME_BITS, lines);
        let step = 1 + scale(low & u64::from(u32::MAX), 32, lines - 1);
        let other = home + step;
        let other = if other >= lines { other - lines } else { other };
        Probe { tag_low: low, tag_high: high >> HOME_BITS, home, other }
    }

    /// The processor cannot predict which of the two lines has the key, so this code does not branch on it.
    #[inline(always)]
    fn find<L: Search>(search: L, lines: &[Line], probe: &Probe) -> Place {
        let (home, other) = (&lines[probe.home], &lines[probe.other]);
        let (home_slot, in_home, home_used) = search.at(home, probe);
        let (other_slot, in_other, other_used) = search.at(other, probe);
        if in_home | in_other {
            let line = select_unpredictable(in_home, probe.home, probe.other);
            return Place::Found { line, slot: select_unpredictable(in_home, home_slot, other_slot) };
        }
        // Lines fill from slot 0, so the number of entries is the first free slot.
        let slot = home_used.min(other_used);
        if home[SLOTS] & CONTINUES != 0 || slot == SLOTS {
            return Self::find_after(lines, probe);
        }
        let line = select_unpredictable(home_used <= other_used, probe.home, probe.other);
        Place::Room { line, slot, behind_home: false }
    }

    #[inline(always)]
    fn holds<L: Search>(search: L, lines: &[Line], probe: &Probe) -> bool {
        let home = &lines[probe.home];
        let (_, in_home, _) = search.at(home, probe);
        let (_, in_other, _) = search.at(&lines[probe.other], probe);
        let found = in_home | in_other;
        if !found && home[SLOTS] & CONTINUES != 0 {
            return matches!(Self::find_after(lines, probe), Place::Found { .. });
        }
        found
    }

    /// Searches the lines after `home`, at most once around, if both candidate lines are full.
    #[cold]
    #[inline(never)]
    fn find_after(lines: &[Line], probe: &Probe) -> Place {
        let (before, from_home) = lines.split_at(probe.home);
        let behind = from_home.iter().zip(probe.home..).skip(1).chain(before.iter().zip(0..));
        for (line, index) in behind {
            let (slot, found, used) = search::Single.at(line, probe);
            if found {
                return Place::Found { line: index, slot };
            }
            if used < SLOTS {
                return Place::Room { line: index, slot: used, behind_home: true };
            }
        }
        // Every line is full: for `put_max` the map has no room, for `contains` this is a miss.
        Place::Room { line: probe.home, slot: SLOTS, behind_home: true }
    }

    /// Inserts keys or raises their ordinals; record `i` has ordinal `first_ordinal + i`. Returns the number of rows read: fewer
    /// than all if the map is full.
    pub fn put_max(
        &mut self,
        key_hash: &[u64],
        first_ordinal: i64,
        mask: &[bool],
        shard: Shard,
    ) -> Result<usize, Error> {
        let keys = self.keys(key_hash, mask, shard)?;
        if self.versioned {
            return invalid("a map with versions needs the versions of the rows");
        }
        let ordinals = ordinals(first_ordinal, mask.len(), MAX_ORDINAL)?;
        let (lines, len, capacity) = (cast_slice_mut(&mut self.memory), &mut self.len, self.capacity);
        Ok(search::run(Put { keys, entries: Entries { lines, len, capacity, ordinals } }))
    }

    /// `put_max`, or with versions `put_max_version`, for the rows of a shard.
    pub fn put_rows(&mut self, rows: &Columns, shard: Shard) -> Result<usize, Error> {
        let (every, ordinals) = self.of_rows(rows)?;
        let keys = self.keys(&rows.hashes, &every, shard)?;
        if self.versioned {
            return Ok(self.put_entries(keys, rows.versions(), ordinals));
        }
        let (lines, len, capacity) = (cast_slice_mut(&mut self.memory), &mut self.len, self.capacity);
        Ok(search::run(Put { keys, entries: Entries { lines, len, capacity, ordinals } }))
    }

    /// `contains`, or with versions `update_existing`, for the rows of a shard.
    pub fn meet_rows(&mut self, rows: &Columns, shard: Shard) -> Result<Vec<bool>, Error> {
        let (every, ordinals) = self.of_rows(rows)?;
        if !self.versioned {
            return self.contains(&rows.hashes, &every, shard);
        }
        let keys = self.keys(&rows.hashes, &every, shard)?;
        Ok(self.update_entries(keys, rows.versions(), ordinals))
    }

    fn of_rows<'a>(&self, rows: &'a Columns) -> Result<(Vec<bool>, Ordinals<'a>), Error> {
        let count = rows.ordinals.len();
        if self.versioned != (rows.version.len() == count) && count > 0 {
            return invalid("rows with versions need a map with versions, other rows one without");
        }
        if rows.ordinals.iter().any(|&ordinal| ordinal > self.max_ordinal()) {
            return invalid(format!("an ordinal is above {}", self.max_ordinal()));
        }
        Ok((vec![true; count], Ordinals::Each(&rows.ordinals)))
    }

    /// Which rows of `mask` and `shard` have a key in the map.
    pub fn contains(&self, key_hash: &[u64], mask: &[bool], shard: Shard) -> Result<Vec<bool>, Error> {
        let keys = self.keys(key_hash, mask, shard)?;
        let (lines, _) = versioned::split(&self.memory, self.lines);
        Ok(search::run(Contains { keys, found: Found { lines, rows: vec![false; mask.len()] } }))
    }

    /// Bitmap of the ordinals `first_ordinal .. first_ordinal + count` that are in the map.
    pub fn winners(&self, first_ordinal: i64, count: i64) -> Result<Vec<u64>, Error> {
        let mut bits = vec![0u64; usize::try_from(count).map_or(0, words_for)];
        self.mark_winners(first_ordinal, count, &mut bits)?;
        Ok(bits)
    }

    /// [`OffsetMap::winners`] into an existing bitmap of all `count` ordinals. The cost does not depend on `count`.
    pub fn mark_winners(&self, first_ordinal: i64, count: i64, bits: &mut [u64]) -> Result<(), Error> {
        let (Ok(first), Ok(count)) = (u64::try_from(first_ordinal), usize::try_from(count)) else {
            return invalid(format!("first_ordinal {first_ordinal} or count {count} is negative"));
        };
        if bits.len() != words_for(count) {
            return invalid(format!("there are {} words for {count} ordinals", bits.len()));
        }
        if first % 64 != 0 {
            return invalid(format!("first_ordinal {first} is not a multiple of 64"));
        }
        if first.checked_add(count as u64).is_none_or(|end| end > self.max_ordinal() + 1) {
            return invalid(format!("ordinals {first} + {count} exceed {}", self.max_ordinal()));
        }
        let (lines, words) = versioned::split(&self.memory, self.lines);
        if self.versioned {
            mark(bits, first, count, versioned::stored_ordinals(lines, words));
        } else {
            let stored = lines.iter().flat_map(|line| &line[SLOTS..]).map(|word| word & ORDINAL_MASK);
            mark(bits, first, count, stored);
        }
        Ok(())
    }

    /// The keys of a call.
    fn keys<'a>(&self, key_hash: &'a [u64], mask: &'a [bool], shard: Shard) -> Result<Keys<'a>, Error> {
        Ok(Keys { hashes: pairs(key_hash, mask)?, mask, shard })
    }
}

/// [`OffsetMap::put_max`]; returns the number of rows read.
struct Put<'a> {
    keys: Keys<'a>,
    entries: Entries<'a>,
}

impl Task for Put<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<L: Search>(mut self, search: L) -> usize {
        self.keys.visit(search, &mut self.entries)
    }
}

/// The map's entries, for inserting keys.
struct Entries<'a> {
    lines: &'a mut [Line],
    len: &'a mut usize,
    capacity: usize,
    ordinals: Ordinals<'a>,
}

impl Visitor for Entries<'_> {
    #[inline(always)]
    fn lines(&self) -> &[Line] {
        self.lines
    }

    #[inline(always)]
    fn visit<L: Search>(&mut self, search: L, probe: &Probe, row: usize) -> bool {
        let stored = self.ordinals.stored(row);
        match OffsetMap::find(search, self.lines, probe) {
            Place::Found { line, slot } => {
                let word = &mut self.lines[line][SLOTS + slot];
                if *word & ORDINAL_MASK < stored {
                    *word = *word & !ORDINAL_MASK | stored;
                }
            }
            Place::Room { line, slot, behind_home } => {
                if *self.len == self.capacity || slot == SLOTS {
                    return false;
                }
                if behind_home {
                    self.lines[probe.home][SLOTS] |= CONTINUES;
                }
                let target = &mut self.lines[line];
                target[slot] = probe.tag_low;
                target[SLOTS + slot] |= probe.tag_high << TAG_SHIFT | stored;
                *self.len += 1;
            }
        }
        true
    }
}

/// [`OffsetMap::contains`].
struct Contains<'a> {
    keys: Keys<'a>,
    found: Found<'a>,
}

impl Task for Contains<'_> {
    type Output = Vec<bool>;

    #[inline(always)]
    fn run<L: Search>(mut self, search: L) -> Vec<bool> {
        self.keys.visit(search, &mut self.found);
        self.found.rows
    }
}

/// Which rows have a key in the map.
struct Found<'a> {
    lines: &'a [Line],
    rows: Vec<bool>,
}

impl Visitor for Found<'_> {
    #[inline(always)]
    fn lines(&self) -> &[Line] {
        self.lines
    }

    #[inline(always)]
    fn visit<L: Search>(&mut self, search: L, probe: &Probe, row: usize) -> bool {
        if let Some(found) = self.rows.get_mut(row) {
            *found = OffsetMap::holds(search, self.lines, probe);
        }
        true
    }
}

/// Sets the bits of those `stored` ordinals that are in `first .. first + count`. They are stored as ordinal + 1.
#[inline(always)]
fn mark(bits: &mut [u64], first: u64, count: usize, stored: impl Iterator<Item = u64>) {
    for stored in stored {
        // An empty entry becomes -1, and an ordinal outside of the range wraps to a value of at least `count`.
        let bit = stored.wrapping_sub(1).wrapping_sub(first);
        if bit < count as u64 {
            bits[bit as usize / 64] |= 1 << (bit % 64);
        }
    }
}

fn pairs<'a>(key_hash: &'a [u64], mask: &[bool]) -> Result<&'a [[u64; 2]], Error> {
    match key_hash.as_chunks::<2>() {
        (pairs, []) if pairs.len() == mask.len() => Ok(pairs),
        _ => invalid(format!("there are {} hash words for {} rows", key_hash.len(), mask.len())),
    }
}

fn ordinals(first_ordinal: i64, count: usize, max: u64) -> Result<Ordinals<'static>, Error> {
    match u64::try_from(first_ordinal) {
        Ok(first) if first.checked_add(count as u64).is_some_and(|end| end <= max + 1) => Ok(Ordinals::From(first)),
        _ => invalid(format!("ordinals {first_ordinal} + {count} are not in 0..={max}")),
    }
}
