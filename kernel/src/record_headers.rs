//! The two headers of a record that matter for cleaning: its version (KIP-280) and its tombstone header (R87-4).
//!
//! If neither is needed, [`Unread`] only checks that the headers are complete.

use crate::varint::{read_varlong, take_field};

/// The last header with the version's name has a valid version.
pub const FLAG_HAS_VERSION: u8 = 8;
/// The last header with the version's name has a null or invalid value (R280-6).
pub const FLAG_BAD_VERSION: u8 = 16;
/// The last header with the tombstone's name makes the record a tombstone (R87-4).
pub const FLAG_TOMBSTONE_HEADER: u8 = 32;

/// Encoding of a version in the value of its header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VersionEncoding {
    /// Eight bytes, big-endian (R280-5).
    #[default]
    Long,
    /// A zigzag varlong as in records, of all bytes of the value: the one that `ByteUtils.readVarlong` reads.
    Varlong,
}

/// Names of the version header and the tombstone header.
#[derive(Debug, Clone, Default)]
pub struct HeaderNames {
    pub version: Option<Vec<u8>>,
    pub encoding: VersionEncoding,
    pub tombstone: Option<Vec<u8>>,
}

/// Version and flags by the headers of one record.
#[derive(Debug, Clone, Copy, Default)]
pub struct Found {
    /// 0 without `FLAG_HAS_VERSION`.
    pub version: i64,
    pub flags: u8,
}

/// Reads the headers after their count. Damage is an error for every reader; an invalid value is not.
pub trait ReadHeaders: Copy {
    type Found: Default;

    fn read(self, count: i32, input: &mut &[u8]) -> Result<Self::Found, &'static str>;
}

/// Checks headers without interpreting them.
#[derive(Debug, Clone, Copy)]
pub struct Unread;

impl ReadHeaders for Unread {
    type Found = ();

    #[inline(never)]
    fn read(self, count: i32, input: &mut &[u8]) -> Result<(), &'static str> {
        for_each_header(count, input, |_, _| ())
    }
}

impl ReadHeaders for &HeaderNames {
    type Found = Found;

    /// Interprets the headers at the end, because the last one of a name is used.
    #[inline(never)]
    fn read(self, count: i32, input: &mut &[u8]) -> Result<Found, &'static str> {
        let (mut version, mut tombstone) = (None, None);
        for_each_header(count, input, |name, value| {
            if self.version.as_deref() == Some(name) {
                version = Some(value);
            }
            if self.tombstone.as_deref() == Some(name) {
                tombstone = Some(value);
            }
        })?;
        let mut found = Found::default();
        if let Some(value) = version {
            match value.and_then(|value| self.encoding.read(value)) {
                Some(version) => found = Found { version, flags: FLAG_HAS_VERSION },
                None => found.flags = FLAG_BAD_VERSION,
            }
        }
        if tombstone.is_some_and(marks_tombstone) {
            found.flags |= FLAG_TOMBSTONE_HEADER;
        }
        Ok(found)
    }
}

impl VersionEncoding {
    fn read(self, mut value: &[u8]) -> Option<i64> {
        match self {
            Self::Long => value.try_into().map(i64::from_be_bytes).ok(),
            Self::Varlong => read_varlong(&mut value).filter(|_| value.is_empty()),
        }
    }
}

/// R87-4: a null value counts as empty.
fn marks_tombstone(value: Option<&[u8]>) -> bool {
    !matches!(value, None | Some(b"" | b"0" | b"false"))
}

#[inline(always)]
fn for_each_header<'a>(
    count: i32,
    input: &mut &'a [u8],
    mut visit: impl FnMut(&'a [u8], Option<&'a [u8]>),
) -> Result<(), &'static str> {
    let count = usize::try_from(count).map_err(|_| "negative header count")?;
    if count > input.len() {
        return Err("more headers than the record has bytes for");
    }
    for _ in 0..count {
        let name = take_field(input)?.ok_or("header key is null")?;
        visit(name, take_field(input)?);
    }
    Ok(())
}
