//! The type of a control batch (F-2.7).

use crate::codec;
use crate::error::Reason;
use crate::header::{CONTROL, HEADER_BYTES, Header};
use crate::record::{read_record, take_stored};
use crate::record_headers::Unread;

/// Not a control batch, or an emptied one.
pub const NO_CONTROL_TYPE: i16 = -1;

/// The control type of a batch: the second 16-bit number in its first record's key.
#[inline(always)]
pub fn control_type(header: &Header, batch: &[u8]) -> Result<i16, Reason> {
    if !header.is_v2() || !header.has(CONTROL) || header.record_count == 0 {
        return Ok(NO_CONTROL_TYPE);
    }
    if header.codec() != codec::NONE {
        return Err(Reason::batch("compressed control batch"));
    }
    let mut payload = batch.get(HEADER_BYTES..).unwrap_or_default();
    let record = take_stored(&mut payload)
        .and_then(|stored| read_record(stored, Unread))
        .map_err(|text| Reason::record(text, 0))?;
    let key =
        record.key.and_then(<[u8]>::first_chunk::<4>).ok_or_else(|| Reason::record("control key is truncated", 0))?;
    let [version_high, version_low, type_high, type_low] = *key;
    if i16::from_be_bytes([version_high, version_low]) < 0 {
        return Err(Reason::record("negative version of a control key", 0));
    }
    match i16::from_be_bytes([type_high, type_low]) {
        negative if negative < 0 => Err(Reason::record("negative control type", 0)),
        kind => Ok(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{Front, read_front};

    /// F-13 E: a commit marker, with `change` applied to its bytes.
    fn commit_marker(change: impl FnOnce(&mut [u8])) -> Result<i16, Reason> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&300_i64.to_be_bytes());
        bytes.extend_from_slice(&66_i32.to_be_bytes());
        bytes.extend_from_slice(&3_i32.to_be_bytes());
        bytes.push(2);
        bytes.extend_from_slice(&0xf5fa_61a7_u32.to_be_bytes());
        bytes.extend_from_slice(&0x30_i16.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&1_700_000_000_200_i64.to_be_bytes());
        bytes.extend_from_slice(&1_700_000_000_200_i64.to_be_bytes());
        bytes.extend_from_slice(&4000_i64.to_be_bytes());
        bytes.extend_from_slice(&1_i16.to_be_bytes());
        bytes.extend_from_slice(&(-1_i32).to_be_bytes());
        bytes.extend_from_slice(&1_i32.to_be_bytes());
        bytes.extend_from_slice(&[0x20, 0, 0, 0, 8, 0, 0, 0, 1, 0x0c, 0, 0, 0, 0, 0, 7, 0]);
        change(&mut bytes);
        match read_front(&bytes)? {
            Front::Batch(header, batch) => control_type(&header, batch),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn type_is_the_second_short_of_the_key() {
        assert_eq!(commit_marker(|_| ()).unwrap(), 1);
        assert_eq!(commit_marker(|bytes| bytes[69] = 0).unwrap(), 0);
    }

    #[test]
    fn other_batches_and_emptied_ones_have_none() {
        assert_eq!(commit_marker(|bytes| bytes[22] = 0x10).unwrap(), NO_CONTROL_TYPE);
        assert_eq!(commit_marker(|bytes| bytes[60] = 0).unwrap(), NO_CONTROL_TYPE);
    }

    #[test]
    fn damage_is_named() {
        assert!(commit_marker(|bytes| bytes[66] = 0x80).is_err());
        assert!(commit_marker(|bytes| bytes[68] = 0x80).is_err());
        assert!(commit_marker(|bytes| bytes[65] = 6).is_err());
        assert!(commit_marker(|bytes| bytes[22] = 0x34).is_err());
    }
}
