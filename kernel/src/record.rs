//! One record of a v2 batch (F-2.3), borrowed from the decompressed payload.

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
    /// The stored bytes from the offset delta to the end.
    pub tail: &'a [u8],
    /// The complete stored record, including its length.
    pub stored: &'a [u8],
    /// What the reader found in the headers.
    pub headers: H,
}

/// The bytes of one record: as stored, including its length, and without it.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    pub whole: &'a [u8],
    body: &'a [u8],
}

/// Takes one record from the front of `payload`, and reads only its length.
///
/// The error does not contain the record's index, which the caller adds.
#[inline(always)]
pub fn take_stored<'a>(payload: &mut &'a [u8]) -> Result<Stored<'a>, &'static str> {
    let front = *payload;
    let length = read_varint(payload).ok_or("record length is truncated")?;
    let length = usize::try_from(length).map_err(|_| "negative record length")?;
    let (body, rest) = payload.split_at_checked(length).ok_or("record is longer than the rest of the batch")?;
    let (whole, _) = front.split_at(front.len() - rest.len());
    *payload = rest;
    Ok(Stored { whole, body })
}

/// Reads a record's fields, and its headers with `reader`.
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
