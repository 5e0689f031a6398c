//! Zigzag varints, and fields with a length in front (F-2.3). Reading advances a slice. Bits that do not fit are dropped, as in
//! Kafka.

const CONTINUES: u8 = 0x80;
const MAX_VARINT_BYTES: u32 = 5;
const MAX_VARLONG_BYTES: u32 = 10;

/// A 32-bit varint; `None` if it is incomplete or longer than five bytes.
#[inline(always)]
pub fn read_varint(input: &mut &[u8]) -> Option<i32> {
    let (raw, rest) = match **input {
        [first, ref rest @ ..] if first < CONTINUES => (u32::from(first), rest),
        [first, second, ref rest @ ..] if second < CONTINUES => {
            (u32::from(first & 0x7f) | u32::from(second) << 7, rest)
        }
        _ => read_long_32(input)?,
    };
    *input = rest;
    Some((raw >> 1) as i32 ^ -((raw & 1) as i32))
}

/// Reads more than two bytes. Takes the slice by value, so that the caller's stays in registers.
#[inline(never)]
fn read_long_32(mut input: &[u8]) -> Option<(u32, &[u8])> {
    let mut raw = 0;
    for group in 0..MAX_VARINT_BYTES {
        let (&byte, rest) = input.split_first()?;
        input = rest;
        raw |= u32::from(byte & 0x7f) << (7 * group);
        if byte < CONTINUES {
            return Some((raw, input));
        }
    }
    None
}

/// A 64-bit varint; `None` if it is incomplete or longer than ten bytes.
#[inline(always)]
pub fn read_varlong(input: &mut &[u8]) -> Option<i64> {
    let (raw, rest) = match **input {
        [first, ref rest @ ..] if first < CONTINUES => (u64::from(first), rest),
        [first, second, ref rest @ ..] if second < CONTINUES => {
            (u64::from(first & 0x7f) | u64::from(second) << 7, rest)
        }
        _ => read_long_64(input)?,
    };
    *input = rest;
    Some((raw >> 1) as i64 ^ -((raw & 1) as i64))
}

#[inline(never)]
fn read_long_64(mut input: &[u8]) -> Option<(u64, &[u8])> {
    let mut raw = 0;
    for group in 0..MAX_VARLONG_BYTES {
        let (&byte, rest) = input.split_first()?;
        input = rest;
        raw |= u64::from(byte & 0x7f) << (7 * group);
        if byte < CONTINUES {
            return Some((raw, input));
        }
    }
    None
}

/// A length and that many bytes; `None` for a negative length, as in Kafka.
#[inline(always)]
pub(crate) fn take_field<'a>(input: &mut &'a [u8]) -> Result<Option<&'a [u8]>, &'static str> {
    let length = read_varint(input).ok_or("record ends inside a field")?;
    match usize::try_from(length) {
        Ok(length) => {
            let (field, rest) = input.split_at_checked(length).ok_or("field is longer than its record")?;
            *input = rest;
            Ok(Some(field))
        }
        Err(_) => Ok(None),
    }
}

#[inline]
pub fn zigzag_32(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

#[inline]
pub fn zigzag_64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Bytes that `write_varlong` writes, and `write_varint` for values of 32 bits.
#[inline]
pub fn varlong_len(value: i64) -> usize {
    let bits = 64 - (zigzag_64(value) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// A varint in a small array, and its length.
#[inline]
pub fn encode_varlong(value: i64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let mut raw = zigzag_64(value);
    let mut len = 0;
    for byte in &mut bytes {
        len += 1;
        if raw < u64::from(CONTINUES) {
            *byte = raw as u8;
            break;
        }
        *byte = raw as u8 | CONTINUES;
        raw >>= 7;
    }
    (bytes, len)
}

#[inline]
pub fn write_varlong(output: &mut Vec<u8>, value: i64) {
    let raw = zigzag_64(value);
    if raw < u64::from(CONTINUES) {
        output.push(raw as u8);
        return;
    }
    let (bytes, len) = encode_varlong(value);
    output.extend_from_slice(bytes.get(..len).unwrap_or_default());
}

#[inline]
pub fn write_varint(output: &mut Vec<u8>, value: i32) {
    // Sign extension keeps the zigzag form: the bytes are the same.
    write_varlong(output, i64::from(value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn examples() {
        for (value, bytes) in [(0, &[0u8][..]), (-1, &[1]), (1, &[2]), (63, &[0x7e]), (-64, &[0x7f]), (64, &[0x80, 1])]
        {
            let mut output = Vec::new();
            write_varint(&mut output, value);
            assert_eq!(output, bytes);
        }
    }

    #[test]
    fn the_longest_is_five_and_ten_bytes() {
        assert_eq!(read_varint(&mut &[0xff, 0xff, 0xff, 0xff, 0x0f][..]), Some(i32::MIN));
        assert_eq!(read_varint(&mut &[0xff; 6][..]), None);
        assert_eq!(read_varint(&mut &[0xff; 2][..]), None);
        assert_eq!(read_varlong(&mut &[0x80; 11][..]), None);
        let mut output = Vec::new();
        write_varlong(&mut output, i64::MIN);
        assert_eq!(output.len(), 10);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value: i64, shift in 0u32..64) {
            let value = value >> shift;
            let mut output = Vec::new();
            write_varlong(&mut output, value);
            prop_assert_eq!(output.len(), varlong_len(value));
            let mut input = &output[..];
            prop_assert_eq!(read_varlong(&mut input), Some(value));
            prop_assert!(input.is_empty());
            if let Ok(small) = i32::try_from(value) {
                prop_assert_eq!(read_varint(&mut &output[..]), Some(small));
                prop_assert_eq!(u64::from(zigzag_32(small)), zigzag_64(value));
            }
        }
    }
}
