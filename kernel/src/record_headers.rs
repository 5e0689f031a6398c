//! The two headers of a record that a plan may ask about: its version (KIP-280) and its tombstone mark (R87-4).
//!
//! Who asks for neither pays for neither: [`Unread`] only checks that the headers are whole.

use crate::record::take_field;
use crate::varint::read_varlong;

/// The last header of the version's name has a value that is a version.
pub const FLAG_HAS_VERSION: u8 = 8;
/// There is a header of that name, but the last one's value is null or no version (R280-6).
pub const FLAG_BAD_VERSION: u8 = 16;
/// The last header of the tombstone's name says that the record is one (R87-4).
pub const FLAG_TOMBSTONE_HEADER: u8 = 32;

/// How a version is written in the value of its header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VersionEncoding {
    /// Eight bytes, big-endian (R280-5).
    #[default]
    Long,
    /// A zigzag varlong as inside of records, which uses all bytes of the value: what `ByteUtils.readVarlong` reads.
    Varlong,
}

/// Names of the headers that are looked for.
#[derive(Debug, Clone, Default)]
pub struct HeaderNames {
    pub version: Option<Vec<u8>>,
    pub encoding: VersionEncoding,
    pub tombstone: Option<Vec<u8>>,
}

/// What the headers of one record say.
#[derive(Debug, Clone, Copy, Default)]
pub struct Found {
    /// 0 without `FLAG_HAS_VERSION`.
    pub version: i64,
    pub flags: u8,
}

/// Reads the headers behind their count. Damage is an error whoever reads; what a value means never is.
pub trait ReadHeaders: Copy {
    type Found: Default;

    fn read(self, count: i32, input: &mut &[u8]) -> Result<Self::Found, &'static str>;
}

/// Nobody asks.
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

    /// The last header of a name counts, so nothing is interpreted before the end.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::varint::{write_varint, write_varlong};
    use proptest::prelude::*;

    type Headers<'a> = &'a [(&'a [u8], Option<&'a [u8]>)];

    fn find(names: &HeaderNames, headers: Headers<'_>) -> (i64, u8) {
        let mut bytes = Vec::new();
        for (name, value) in headers {
            write_varint(&mut bytes, name.len() as i32);
            bytes.extend_from_slice(name);
            write_varint(&mut bytes, value.map_or(-1, |value| value.len() as i32));
            bytes.extend_from_slice(value.unwrap_or_default());
        }
        let mut input = &bytes[..];
        let found = names.read(headers.len() as i32, &mut input).unwrap();
        assert!(input.is_empty());
        (found.version, found.flags)
    }

    fn version(encoding: VersionEncoding) -> HeaderNames {
        HeaderNames { version: Some(b"v".to_vec()), encoding, tombstone: None }
    }

    const ONE: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 1];

    /// R280-5, R280-6: the last one counts, even when it is no version.
    #[test]
    fn the_last_header_of_the_name() {
        let names = version(VersionEncoding::Long);
        assert_eq!(find(&names, &[]), (0, 0));
        assert_eq!(find(&names, &[(b"w", Some(ONE)), (b"", Some(ONE)), (b"vv", Some(ONE))]), (0, 0));
        assert_eq!(find(&names, &[(b"v", Some(&[0xff; 8])), (b"v", Some(ONE)), (b"w", None)]), (1, FLAG_HAS_VERSION));
        assert_eq!(find(&names, &[(b"v", Some(&[0xff; 8]))]), (-1, FLAG_HAS_VERSION));
        for bad in [None, Some(&b""[..]), Some(&[0; 7]), Some(&[0; 9])] {
            assert_eq!(find(&names, &[(b"v", Some(ONE)), (b"v", bad)]), (0, FLAG_BAD_VERSION));
            assert_eq!(find(&names, &[(b"v", bad), (b"v", Some(ONE))]), (1, FLAG_HAS_VERSION));
        }
    }

    #[test]
    fn a_varlong_uses_exactly_its_bytes() {
        let names = version(VersionEncoding::Varlong);
        assert_eq!(find(&names, &[(b"v", Some(&[1]))]), (-1, FLAG_HAS_VERSION));
        assert_eq!(find(&names, &[(b"v", Some(&[0x80, 0x00]))]), (0, FLAG_HAS_VERSION));
        for bad in [None, Some(&b""[..]), Some(&[0x80]), Some(&[2, 0]), Some(&[0x80; 11]), Some(ONE)] {
            assert_eq!(find(&names, &[(b"v", bad)]), (0, FLAG_BAD_VERSION));
        }
    }

    /// R87-4.
    #[test]
    fn what_marks_a_tombstone() {
        let names = HeaderNames { tombstone: Some(b"t".to_vec()), ..version(VersionEncoding::Long) };
        for (value, flags) in [
            (None, 0),
            (Some(&b""[..]), 0),
            (Some(b"0"), 0),
            (Some(b"false"), 0),
            (Some(b"1"), FLAG_TOMBSTONE_HEADER),
            (Some(b"00"), FLAG_TOMBSTONE_HEADER),
            (Some(b"FALSE"), FLAG_TOMBSTONE_HEADER),
            (Some(&[0]), FLAG_TOMBSTONE_HEADER),
        ] {
            assert_eq!(find(&names, &[(b"t", value)]), (0, flags));
            assert_eq!(
                find(&names, &[(b"t", Some(b"1")), (b"t", value), (b"v", Some(ONE))]),
                (1, flags | FLAG_HAS_VERSION)
            );
        }
        let one_name = HeaderNames { tombstone: Some(b"v".to_vec()), ..version(VersionEncoding::Long) };
        assert_eq!(find(&one_name, &[(b"v", Some(ONE))]), (1, FLAG_HAS_VERSION | FLAG_TOMBSTONE_HEADER));
    }

    proptest! {
        #[test]
        fn every_long_both_ways(value: i64) {
            let mut varlong = Vec::new();
            write_varlong(&mut varlong, value);
            let names = version(VersionEncoding::Varlong);
            prop_assert_eq!(find(&names, &[(b"v", Some(&varlong))]), (value, FLAG_HAS_VERSION));
            let names = version(VersionEncoding::Long);
            prop_assert_eq!(find(&names, &[(b"v", Some(&value.to_be_bytes()))]), (value, FLAG_HAS_VERSION));
        }
    }
}
