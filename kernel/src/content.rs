//! The content of records as consumers see it: a digest, or the bytes as columns.
//!
//! Both depend on the fields, not on the bytes in the file. So they do not change if a cleaning puts the record into another batch,
//! codec or message format.

use siphasher::sip128::SipHasher13;

use crate::codec::with_workbench;
use crate::error::{Error, Reason, invalid};
use crate::header::Header;
use crate::legacy::Messages;
use crate::record::Record;
use crate::varint::{read_varint, take_field};
use crate::walk::{Walk, for_each_record, unpack};

/// Bytes of a legacy message besides its key and value, by magic.
const LEGACY_OVERHEAD: [usize; 2] = [26, 34];

const NULL: u32 = u32::MAX;

/// Options for reading batches.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    pub verify_crc: bool,
    /// Largest decompressed size of one batch, in bytes.
    pub max_unpacked: usize,
}

/// One row per record, in file order, as in `decode_chunk`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Digests {
    /// Two words per record: SipHash-1-3-128 of offset, timestamp, key, value and headers, without the attributes.
    pub digest: Vec<u64>,
    /// The record's attributes byte; 0 for magic 0 and 1.
    pub attributes: Vec<u8>,
    /// Decompressed bytes of the record, including its length.
    pub size: Vec<u32>,
    pub consumed: usize,
    pub needed: usize,
}

/// One field of all rows, in Arrow's form: row `i` is `data[offsets[i]..offsets[i + 1]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    pub offsets: Vec<i32>,
    pub data: Vec<u8>,
    pub null: Vec<bool>,
}

impl Default for Fields {
    fn default() -> Self {
        Self { offsets: vec![0], data: Vec::new(), null: Vec::new() }
    }
}

impl Fields {
    fn push(&mut self, field: Option<&[u8]>) -> Result<(), Reason> {
        self.data.extend_from_slice(field.unwrap_or_default());
        self.null.push(field.is_none());
        self.offsets.push(narrow(self.data.len())?);
        Ok(())
    }
}

/// Key, value and headers of the requested records, in file order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    pub key: Fields,
    pub value: Fields,
    /// First row of every record's headers in the next two columns, then their end.
    pub first_header: Vec<i32>,
    pub header_name: Fields,
    pub header_value: Fields,
    pub consumed: usize,
    pub needed: usize,
}

/// The fields of a record of any format.
struct Seen<'a> {
    offset: i64,
    timestamp: i64,
    attributes: u8,
    size: usize,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    header_count: u32,
    /// The stored headers, complete, because the walk has checked them.
    headers: &'a [u8],
}

/// The digest per record of `data`: complete batches from file position `position` on. `hash_key` makes it unforgeable.
///
/// Header names are read as Kafka writes them again, with U+FFFD for invalid UTF-8 (F-2.3).
pub fn content_digest(data: &[u8], position: i64, hash_key: &[u8; 16], reading: Reading) -> Result<Digests, Error> {
    let hasher = SipHasher13::new_with_key(hash_key);
    let mut digests = Digests::default();
    let mut bytes = Vec::new();
    let (consumed, needed) = for_each(data, position, reading, |record| {
        bytes.clear();
        encode(record, &mut bytes).map_err(Reason::batch)?;
        let (low, high) = hasher.hash(&bytes).as_u64();
        digests.digest.extend_from_slice(&[low, high]);
        digests.attributes.push(record.attributes);
        digests.size.push(u32::try_from(record.size).unwrap_or(u32::MAX));
        Ok(())
    })?;
    Ok(Digests { consumed, needed, ..digests })
}

/// Key, value and headers of the records whose row in `keep` is true.
pub fn read_contents(data: &[u8], position: i64, keep: &[bool], reading: Reading) -> Result<Contents, Error> {
    let mut contents = Contents {
        key: Fields::default(),
        value: Fields::default(),
        first_header: vec![0],
        header_name: Fields::default(),
        header_value: Fields::default(),
        consumed: 0,
        needed: 0,
    };
    let mut row = 0;
    let (consumed, needed) = for_each(data, position, reading, |record| {
        let wanted = keep.get(row).copied();
        row += 1;
        if wanted == Some(true) {
            contents.key.push(record.key)?;
            contents.value.push(record.value)?;
            for_each_header(record, |name, value| {
                contents.header_name.push(Some(name))?;
                contents.header_value.push(value)
            })?;
            contents.first_header.push(narrow(contents.header_name.null.len())?);
        }
        Ok(())
    })?;
    if row != keep.len() {
        return invalid(format!("keep has {} rows, but there are {row} records", keep.len()));
    }
    Ok(Contents { consumed, needed, ..contents })
}

fn for_each(
    data: &[u8],
    position: i64,
    reading: Reading,
    mut visit: impl FnMut(&Seen<'_>) -> Result<(), Reason>,
) -> Result<(usize, usize), Error> {
    let Reading { verify_crc, max_unpacked } = reading;
    with_workbench(|bench| {
        let mut walk = Walk::new(data, position)?;
        while let Some((header, batch)) = walk.peek()? {
            let (codecs, scratch) = (&mut bench.codecs, &mut bench.unpacked);
            let visited = if header.is_v2() {
                let crc = if verify_crc { crate::header::check_crc(&header, batch) } else { Ok(()) };
                crc.and_then(|()| {
                    let payload = unpack(&header, batch, max_unpacked, codecs, scratch)?;
                    for_each_record(&header, payload, |index, record| {
                        let seen = see(&header, record).ok_or_else(|| Reason::record("record is truncated", index))?;
                        visit(&seen)
                    })
                    .map(|_ordered| ())
                })
            } else {
                Messages::open(&header, batch, verify_crc, max_unpacked, codecs, scratch).and_then(|messages| {
                    messages.for_each(|_, message| {
                        let overhead = LEGACY_OVERHEAD.get(usize::from(message.magic)).copied().unwrap_or_default();
                        let content = message.key.map_or(0, <[u8]>::len) + message.value.map_or(0, <[u8]>::len);
                        visit(&Seen {
                            offset: message.offset,
                            timestamp: message.timestamp,
                            attributes: 0,
                            size: overhead + content,
                            key: message.key,
                            value: message.value,
                            header_count: 0,
                            headers: &[],
                        })
                    })
                })
            };
            visited.map_err(|reason| walk.corrupt(reason))?;
            walk.advance(batch);
        }
        Ok((walk.consumed, walk.needed))
    })
}

/// The fields of a checked record, never `None`.
fn see<'a>(header: &Header, record: &Record<'a>) -> Option<Seen<'a>> {
    let mut rest = record.tail;
    read_varint(&mut rest)?;
    let key = take_field(&mut rest).ok()?;
    let value = take_field(&mut rest).ok()?;
    let header_count = u32::try_from(read_varint(&mut rest)?).ok()?;
    Some(Seen {
        offset: header.base_offset.wrapping_add(i64::from(record.offset_delta)),
        timestamp: header.timestamp(record.timestamp_delta),
        attributes: record.attributes,
        size: record.stored.len(),
        key,
        value,
        header_count,
        headers: rest,
    })
}

fn for_each_header<'a>(
    record: &Seen<'a>,
    mut visit: impl FnMut(&'a [u8], Option<&'a [u8]>) -> Result<(), Reason>,
) -> Result<(), Reason> {
    let mut rest = record.headers;
    for _ in 0..record.header_count {
        let name = take_field(&mut rest).map_err(Reason::batch)?.unwrap_or_default();
        visit(name, take_field(&mut rest).map_err(Reason::batch)?)?;
    }
    Ok(())
}

/// Writes all fields with their lengths, so that different contents have different bytes.
fn encode(record: &Seen<'_>, bytes: &mut Vec<u8>) -> Result<(), &'static str> {
    bytes.extend_from_slice(&record.offset.to_le_bytes());
    bytes.extend_from_slice(&record.timestamp.to_le_bytes());
    encode_field(record.key, bytes);
    encode_field(record.value, bytes);
    bytes.extend_from_slice(&record.header_count.to_le_bytes());
    let mut rest = record.headers;
    for _ in 0..record.header_count {
        let name = take_field(&mut rest)?.unwrap_or_default();
        encode_field(Some(String::from_utf8_lossy(name).as_bytes()), bytes);
        encode_field(take_field(&mut rest)?, bytes);
    }
    Ok(())
}

fn encode_field(field: Option<&[u8]>, bytes: &mut Vec<u8>) {
    // A field is shorter than its batch, which is shorter than 2^31 bytes.
    let length = field.map_or(NULL, |field| field.len() as u32);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(field.unwrap_or_default());
}

/// Arrow's offsets have 32 bits.
fn narrow(length: usize) -> Result<i32, Reason> {
    i32::try_from(length).map_err(|_| Reason::batch("a column exceeds 2^31-1 bytes; read fewer batches at once"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::seal;
    use crate::varint::{write_varint, write_varlong};

    const KEY: [u8; 16] = [7; 16];
    const READING: Reading = Reading { verify_crc: true, max_unpacked: 1 << 20 };

    type Field<'a> = Option<&'a [u8]>;
    type Headers<'a> = &'a [(&'a [u8], Field<'a>)];

    fn field(output: &mut Vec<u8>, field: Option<&[u8]>) {
        write_varint(output, field.map_or(-1, |field| field.len() as i32));
        output.extend_from_slice(field.unwrap_or_default());
    }

    /// A batch of one record at offset `base + delta`.
    fn batch(
        base: i64,
        delta: i32,
        first: u8,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: Headers<'_>,
    ) -> Vec<u8> {
        let mut body = vec![first];
        write_varlong(&mut body, 5 - base);
        write_varint(&mut body, delta);
        field(&mut body, key);
        field(&mut body, value);
        write_varint(&mut body, headers.len() as i32);
        for (name, value) in headers {
            field(&mut body, Some(name));
            field(&mut body, *value);
        }
        let mut log = vec![0; crate::header::HEADER_BYTES];
        write_varint(&mut log, body.len() as i32);
        log.extend_from_slice(&body);
        let header = Header {
            base_offset: base,
            size: 0,
            leader_epoch: 0,
            magic: 2,
            crc: 0,
            attributes: 0,
            last_offset_delta: delta,
            base_timestamp: base,
            max_timestamp: 5,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: 1,
        };
        seal(&header, &mut log, 0).unwrap();
        log
    }

    fn digest(log: &[u8]) -> Vec<u64> {
        content_digest(log, 0, &KEY, READING).unwrap().digest
    }

    /// Offset 10 and time 5 in another batch are the same record; the attributes byte is separate.
    #[test]
    fn the_batch_does_not_count() {
        let one = batch(10, 0, 0, Some(b"k"), Some(b"v"), &[(b"h", None)]);
        let two = batch(3, 7, 0x20, Some(b"k"), Some(b"v"), &[(b"h", None)]);
        assert_eq!(digest(&one), digest(&two));
        let attributes = |log: &[u8]| content_digest(log, 0, &KEY, READING).unwrap().attributes;
        assert_eq!((attributes(&one), attributes(&two)), (vec![0], vec![0x20]));
    }

    /// Bytes in the neighbouring field, and null instead of empty, are another content.
    #[test]
    fn every_field_counts() {
        let contents: [(Field<'_>, Field<'_>, Headers<'_>); 10] = [
            (Some(b"k"), Some(b"v"), &[(b"h", Some(b"x"))]),
            (Some(b"kv"), Some(b""), &[(b"h", Some(b"x"))]),
            (Some(b""), Some(b"kv"), &[(b"h", Some(b"x"))]),
            (None, Some(b"kv"), &[(b"h", Some(b"x"))]),
            (Some(b"k"), None, &[(b"h", Some(b"x"))]),
            (Some(b"k"), Some(b"v"), &[(b"hx", Some(b""))]),
            (Some(b"k"), Some(b"v"), &[(b"hx", None)]),
            (Some(b"k"), Some(b"v"), &[]),
            (Some(b"k"), Some(b"v"), &[(b"h", Some(b"x")), (b"i", None)]),
            (Some(b"k"), Some(b"v"), &[(b"i", None), (b"h", Some(b"x"))]),
        ];
        let mut seen: Vec<_> =
            contents.iter().map(|(key, value, headers)| digest(&batch(10, 0, 0, *key, *value, headers))).collect();
        seen.push(digest(&batch(11, 0, 0, Some(b"k"), Some(b"v"), &[(b"h", Some(b"x"))])));
        let many = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), many);
    }

    /// F-2.3: Kafka's cleaner writes U+FFFD for invalid UTF-8 in a name; in a value every byte matters.
    #[test]
    fn names_as_kafka_writes_them_again() {
        let of = |name: &[u8], value: &[u8]| digest(&batch(10, 0, 0, None, None, &[(name, Some(value))]));
        assert_eq!(of(b"a\xff", b"x"), of("a\u{fffd}".as_bytes(), b"x"));
        assert_ne!(of(b"a", b"\xff"), of(b"a", "\u{fffd}".as_bytes()));
    }

    #[test]
    fn contents_of_the_kept() {
        let mut log = batch(1, 0, 0, Some(b"a"), Some(b"1"), &[]);
        log.extend(batch(2, 0, 0, None, None, &[(b"h", None), (b"i", Some(b"xy"))]));
        log.extend(batch(3, 0, 0, Some(b""), Some(b"333"), &[(b"j", Some(b""))]));
        let found = read_contents(&log, 0, &[false, true, true], READING).unwrap();
        assert_eq!(found.key, Fields { offsets: vec![0, 0, 0], data: vec![], null: vec![true, false] });
        assert_eq!(found.value, Fields { offsets: vec![0, 0, 3], data: b"333".to_vec(), null: vec![true, false] });
        assert_eq!(found.first_header, vec![0, 2, 3]);
        assert_eq!(found.header_name.data, b"hij");
        assert_eq!(
            found.header_value,
            Fields { offsets: vec![0, 0, 2, 2], data: b"xy".to_vec(), null: vec![true, false, false] }
        );
        assert_eq!(found.consumed, log.len());
    }

    #[test]
    fn keep_has_a_row_for_each_record() {
        let log = batch(1, 0, 0, Some(b"a"), Some(b"1"), &[]);
        for keep in [&[][..], &[true, true]] {
            assert!(matches!(read_contents(&log, 0, keep, READING), Err(Error::Invalid(_))));
        }
    }

    #[test]
    fn damage_is_an_error_and_a_cut_batch_is_not() {
        let mut log = batch(1, 0, 0, Some(b"a"), Some(b"1"), &[]);
        let size = log.len();
        log.extend_from_within(..size - 1);
        let digests = content_digest(&log, 0, &KEY, READING).unwrap();
        assert_eq!((digests.consumed, digests.needed, digests.size.len()), (size, size, 1));
        log[size - 2] ^= 1; // the value, before the number of headers
        assert!(matches!(content_digest(&log, 0, &KEY, READING), Err(Error::Corrupt(_))));
        assert!(content_digest(&log, 0, &KEY, Reading { verify_crc: false, ..READING }).is_ok());
    }
}
