//! Versions and tombstones in the headers of a record.

use cleanerd_kernel::record_headers::{
    FLAG_BAD_VERSION, FLAG_HAS_VERSION, FLAG_TOMBSTONE_HEADER, HeaderNames, ReadHeaders, VersionEncoding,
};
use cleanerd_kernel::varint::{write_varint, write_varlong};
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

/// R280-5, R280-6: the last header is used, even if its version is invalid.
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

/// The value that ByteUtils.readVarlong reads, if it uses all bytes.
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
fn which_header_values_mark_a_tombstone() {
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
