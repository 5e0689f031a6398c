//! The offset map of a versioned strategy (KIP-280). A key's retained record has the largest (has version, version, ordinal).
//!
//! After the lines there is one word per slot. An entry with a version has its ordinal in its line, as without versions, and its
//! version in the word. An entry without one has [`UNVERSIONED`] in its line and its ordinal in the word. So a line needs no more
//! bits, a version has all 64 bits, and as many bits identify a key as without versions.

use super::search::{self, Keys, Search, Task, Visitor};
use super::{
    CONTINUES, Error, LINE_BYTES, Line, ORDINAL_BITS, ORDINAL_MASK, OffsetMap, Ordinals, Place, Probe, SLOTS, Shard,
    TAG_SHIFT, cast_slice, cast_slice_mut, invalid, ordinals, select_unpredictable,
};

/// In an entry's line: no version, and the ordinal is in the word. It is the largest ordinal + 1, so that one is not available.
const UNVERSIONED: u64 = ORDINAL_MASK;

const WORD_BYTES: usize = size_of::<u64>();
/// A line and the words of its slots.
pub(super) const LINE_AND_VERSIONS_BYTES: usize = LINE_BYTES + SLOTS * WORD_BYTES;

/// One row per record; `version` is ignored where `has` is false.
#[derive(Debug, Clone, Copy)]
pub struct Versions<'a> {
    pub version: &'a [i64],
    pub has: &'a [bool],
}

impl Versions<'_> {
    #[inline(always)]
    fn entry(&self, row: usize, ordinals: Ordinals<'_>) -> Entry {
        Entry { has_version: self.has[row], version: self.version[row], ordinal: ordinals.stored(row) }
    }
}

/// Below every version.
const NO_VERSION: i128 = i64::MIN as i128 - 1;

/// Version and ordinal of one record of a key. Ordinals are stored as ordinal + 1.
#[derive(Debug, Clone, Copy)]
struct Entry {
    has_version: bool,
    version: i64,
    ordinal: u64,
}

impl Entry {
    /// From the ordinal's field in the line, and the word.
    #[inline(always)]
    fn stored(field: u64, word: u64) -> Self {
        let has_version = field != UNVERSIONED;
        Self { has_version, version: word as i64, ordinal: select_unpredictable(has_version, field, word) }
    }

    #[inline(always)]
    fn to_store(self) -> (u64, u64) {
        select_unpredictable(self.has_version, (self.ordinal, self.version as u64), (UNVERSIONED, self.ordinal))
    }

    /// (has version, version, ordinal) as one number, because the processor cannot predict comparisons of three.
    #[inline(always)]
    fn rank(self) -> i128 {
        let version = select_unpredictable(self.has_version, i128::from(self.version), NO_VERSION);
        version << ORDINAL_BITS | i128::from(self.ordinal)
    }
}

/// The lines of a map with versions, and the word of every slot.
pub(super) fn split(memory: &[u8], lines: usize) -> (&[Line], &[u64]) {
    let (lines, words) = memory.split_at(lines * LINE_BYTES);
    (cast_slice(lines), cast_slice(words))
}

fn split_mut(memory: &mut [u8], lines: usize) -> (&mut [Line], &mut [u64]) {
    let (lines, words) = memory.split_at_mut(lines * LINE_BYTES);
    (cast_slice_mut(lines), cast_slice_mut(words))
}

/// Ordinal + 1 of every entry, 0 for empty ones.
pub(super) fn stored_ordinals(lines: &[Line], words: &[u64]) -> impl Iterator<Item = u64> {
    let (words, _) = words.as_chunks::<SLOTS>();
    lines.iter().zip(words).flat_map(|(line, words)| {
        line[SLOTS..].iter().zip(words).map(|(entry, &word)| match entry & ORDINAL_MASK {
            UNVERSIONED => word,
            ordinal => ordinal,
        })
    })
}

/// Replaces the entry in a line and a word by `entry` if that is larger.
#[inline(always)]
fn raise(in_line: &mut u64, word: &mut u64, entry: Entry) {
    if Entry::stored(*in_line & ORDINAL_MASK, *word).rank() < entry.rank() {
        let (field, version) = entry.to_store();
        *in_line = *in_line & !ORDINAL_MASK | field;
        *word = version;
    }
}

impl OffsetMap {
    /// `put_max` of a map with versions: inserts an entry, or raises it to the larger (has version, version, ordinal).
    pub fn put_max_version(
        &mut self,
        key_hash: &[u64],
        first_ordinal: i64,
        mask: &[bool],
        versions: Versions<'_>,
        shard: Shard,
    ) -> Result<usize, Error> {
        let keys = self.keys(key_hash, mask, shard)?;
        let ordinals = self.check(first_ordinal, mask, versions)?;
        Ok(self.put_entries(keys, versions, ordinals))
    }

    pub(super) fn put_entries(&mut self, keys: Keys<'_>, versions: Versions<'_>, ordinals: Ordinals<'_>) -> usize {
        let (len, capacity) = (&mut self.len, self.capacity);
        let (lines, words) = split_mut(&mut self.memory, self.lines);
        search::run(Put { keys, entries: Entries { lines, words, len, capacity, versions, ordinals } })
    }

    /// Which rows of `mask` and `shard` have a key in the map. Raises their entries and adds none.
    pub fn update_existing(
        &mut self,
        key_hash: &[u64],
        first_ordinal: i64,
        mask: &[bool],
        versions: Versions<'_>,
        shard: Shard,
    ) -> Result<Vec<bool>, Error> {
        let keys = self.keys(key_hash, mask, shard)?;
        let ordinals = self.check(first_ordinal, mask, versions)?;
        Ok(self.update_entries(keys, versions, ordinals))
    }

    pub(super) fn update_entries(
        &mut self,
        keys: Keys<'_>,
        versions: Versions<'_>,
        ordinals: Ordinals<'_>,
    ) -> Vec<bool> {
        let (lines, words) = split_mut(&mut self.memory, self.lines);
        let found = vec![false; keys.mask.len()];
        search::run(Update { keys, entries: Known { lines, words, versions, ordinals, found } })
    }

    /// The map's ordinal for every row's key; -1 without an entry, and outside of `mask` and `shard`.
    pub fn ordinals(&self, key_hash: &[u64], mask: &[bool], shard: Shard) -> Result<Vec<i64>, Error> {
        let keys = self.keys(key_hash, mask, shard)?;
        if !self.versioned {
            return invalid("only a map with versions returns ordinals");
        }
        let (lines, words) = split(&self.memory, self.lines);
        Ok(search::run(Read { keys, entries: Held { lines, words, ordinals: vec![-1; mask.len()] } }))
    }

    /// Checks the lengths of the columns and returns the ordinals.
    fn check(&self, first_ordinal: i64, mask: &[bool], versions: Versions<'_>) -> Result<Ordinals<'static>, Error> {
        if !self.versioned {
            return invalid("a map without versions does not accept versions");
        }
        if versions.version.len() != mask.len() || versions.has.len() != mask.len() {
            let (version, has) = (versions.version.len(), versions.has.len());
            return invalid(format!(
                "there are {version} rows of version and {has} of has_version for {} rows",
                mask.len()
            ));
        }
        ordinals(first_ordinal, mask.len(), self.max_ordinal())
    }
}

/// Prefetches a key's two lines and the words of both. (Finding the entry first, to prefetch only its word, is slower for small and
/// large maps.)
#[inline(always)]
fn prefetch<L: Search>(search: L, lines: &[Line], words: &[u64], probe: &Probe) -> u64 {
    let of_lines = search.prefetch_word(&lines[probe.home][0]) ^ search.prefetch_word(&lines[probe.other][0]);
    of_lines ^ search.prefetch_word(&words[probe.home * SLOTS]) ^ search.prefetch_word(&words[probe.other * SLOTS])
}

/// [`OffsetMap::put_max_version`]; returns the number of rows read.
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
    words: &'a mut [u64],
    len: &'a mut usize,
    capacity: usize,
    versions: Versions<'a>,
    ordinals: Ordinals<'a>,
}

impl Visitor for Entries<'_> {
    #[inline(always)]
    fn lines(&self) -> &[Line] {
        self.lines
    }

    #[inline(always)]
    fn prefetch<L: Search>(&self, search: L, probe: &Probe) -> u64 {
        prefetch(search, self.lines, self.words, probe)
    }

    #[inline(always)]
    fn visit<L: Search>(&mut self, search: L, probe: &Probe, row: usize) -> bool {
        let entry = self.versions.entry(row, self.ordinals);
        match OffsetMap::find(search, self.lines, probe) {
            Place::Found { line, slot } => {
                raise(&mut self.lines[line][SLOTS + slot], &mut self.words[line * SLOTS + slot], entry);
            }
            Place::Room { line, slot, behind_home } => {
                if *self.len == self.capacity || slot == SLOTS {
                    return false;
                }
                if behind_home {
                    self.lines[probe.home][SLOTS] |= CONTINUES;
                }
                let (field, version) = entry.to_store();
                let target = &mut self.lines[line];
                target[slot] = probe.tag_low;
                target[SLOTS + slot] |= probe.tag_high << TAG_SHIFT | field;
                self.words[line * SLOTS + slot] = version;
                *self.len += 1;
            }
        }
        true
    }
}

/// [`OffsetMap::update_existing`]; returns which rows have a key in the map.
struct Update<'a> {
    keys: Keys<'a>,
    entries: Known<'a>,
}

impl Task for Update<'_> {
    type Output = Vec<bool>;

    #[inline(always)]
    fn run<L: Search>(mut self, search: L) -> Vec<bool> {
        self.keys.visit(search, &mut self.entries);
        self.entries.found
    }
}

/// Existing entries, which are raised; none is added.
struct Known<'a> {
    lines: &'a mut [Line],
    words: &'a mut [u64],
    versions: Versions<'a>,
    ordinals: Ordinals<'a>,
    found: Vec<bool>,
}

impl Visitor for Known<'_> {
    #[inline(always)]
    fn lines(&self) -> &[Line] {
        self.lines
    }

    #[inline(always)]
    fn prefetch<L: Search>(&self, search: L, probe: &Probe) -> u64 {
        prefetch(search, self.lines, self.words, probe)
    }

    #[inline(always)]
    fn visit<L: Search>(&mut self, search: L, probe: &Probe, row: usize) -> bool {
        if let Place::Found { line, slot } = OffsetMap::find(search, self.lines, probe) {
            let entry = self.versions.entry(row, self.ordinals);
            raise(&mut self.lines[line][SLOTS + slot], &mut self.words[line * SLOTS + slot], entry);
            self.found[row] = true;
        }
        true
    }
}

/// [`OffsetMap::ordinals`]; returns the ordinals.
struct Read<'a> {
    keys: Keys<'a>,
    entries: Held<'a>,
}

impl Task for Read<'_> {
    type Output = Vec<i64>;

    #[inline(always)]
    fn run<L: Search>(mut self, search: L) -> Vec<i64> {
        self.keys.visit(search, &mut self.entries);
        self.entries.ordinals
    }
}

/// Entries for reading.
struct Held<'a> {
    lines: &'a [Line],
    words: &'a [u64],
    ordinals: Vec<i64>,
}

impl Visitor for Held<'_> {
    #[inline(always)]
    fn lines(&self) -> &[Line] {
        self.lines
    }

    #[inline(always)]
    fn prefetch<L: Search>(&self, search: L, probe: &Probe) -> u64 {
        prefetch(search, self.lines, self.words, probe)
    }

    #[inline(always)]
    fn visit<L: Search>(&mut self, search: L, probe: &Probe, row: usize) -> bool {
        if let Place::Found { line, slot } = OffsetMap::find(search, self.lines, probe) {
            let field = self.lines[line][SLOTS + slot] & ORDINAL_MASK;
            self.ordinals[row] = Entry::stored(field, self.words[line * SLOTS + slot]).ordinal as i64 - 1;
        }
        true
    }
}
