//! One record of a v2 batch (F-2.3), borrowed from the unpacked payload.

use crate::record_headers::ReadHeaders;
use crate::varint::{read_varint, read_varlong, take_field};

/// Bytes of the smallest record: seven fields of one byte.
pub const SMALLEST_RECORD: usize = 7;

#[derive(Debug, Clone, Copy)]
pub struct Record<'a, H = ()> {
    pub attributes: u8,
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub has_value: bool,
    /// Everything from the offset delta to the end, as stored.
    pub tail: &'a [u8],
    /// The whole record, its length included.
    pub stored: &'a [u8],
    /// What was asked of the headers.
    pub headers: H,
}

/// Where one record lies: as stored, its length included, and without it.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    pub whole: &'a [u8],
    body: &'a [u8],
}

/// Takes one record from the front of `payload`, of which only the length is looked at.
///
/// The error says what is wrong; the caller knows which record it was.
#[inline(always)]
pub fn take_stored<'a>(payload: &mut &'a [u8]) -> Result<Stored<'a>, &'static str> {
    let front = *payload;
    let length = read_varint(payload).ok_or("record length is cut")?;
    let length = usize::try_from(length).map_err(|_| "negative record length")?;
    let (body, rest) = payload.split_at_checked(length).ok_or("record is longer than the rest of the batch")?;
    let (whole, _) = front.split_at(front.len() - rest.len());
    *payload = rest;
    Ok(Stored { whole, body })
}

/// Its fields, and what `reader` finds in its headers.
#[inline(always)]
pub fn read_record<'a, R: ReadHeaders>(stored: Stored<'a>, reader: R) -> Result<Record<'a, R::Found>, &'static str> {
    const CUT: &str = "record ends inside a field";
    let (&attributes, mut input) = stored.body.split_first().ok_or(CUT)?;
    let timestamp_delta = read_varlong(&mut input).ok_or(CUT)?;
    let tail = input;
    let offset_delta = read_varint(&mut input).ok_or(CUT)?;
    let key = take_field(&mut input)?;
    let has_value = take_field(&mut input)?.is_some();
    let headers = read_varint(&mut input).ok_or(CUT)?;
    let headers = if headers != 0 { reader.read(headers, &mut input)? } else { R::Found::default() };
    if !input.is_empty() {
        return Err("record does not use all of its length");
    }
    Ok(Record { attributes, timestamp_delta, offset_delta, key, has_value, tail, stored: stored.whole, headers })
}
