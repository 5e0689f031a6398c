//! Rewrites a batch of magic 0 or 1, in its format (F-3.2) or as a v2 batch (F-3.3).

use crate::bits::is_set;
use crate::codec::{self, Codecs, Workbench};
use crate::error::{Error, Reason, invalid};
use crate::header::{self, CODEC_MASK, HAS_DELETE_HORIZON, Header, LOG_APPEND_TIME};
use crate::legacy::{Message, Messages, write_message, write_wrapper};
use crate::rewrite::{
    ACTION_COPY, ACTION_DROP, ACTION_EMPTY, ACTION_EMPTY_TIME_ZERO, ACTION_EMPTY_TIMELESS, ACTION_REBUILD,
    ACTION_REBUILD_SET_HORIZON, ACTION_SET_HORIZON, Rewrite, time_of_emptied,
};
use crate::survivors::largest_time;
use crate::varint::{varlong_len, write_varlong};
use crate::walk::Walk;

impl Rewrite<'_> {
    /// Carries out the batch's action. Returns the number of its records.
    ///
    /// The number is known only after decompression, so even a dropped wrapper is decompressed.
    pub(crate) fn legacy(&mut self, header: &Header, batch: &[u8], walk: &Walk<'_>) -> Result<usize, Error> {
        let action = self.legacy_action(header)?;
        if action != ACTION_COPY {
            self.flush(walk.consumed);
        }
        if action == ACTION_DROP && header.codec() == codec::NONE {
            return self.first_of(1).map(|_| 1);
        }
        // The workbench is returned below. After an error it is dropped, and the next call needs new buffers.
        let mut bench = std::mem::take(self.bench);
        let verify_crc = self.request.verify_crc && action != ACTION_DROP;
        let Workbench { codecs, unpacked, rebuilt } = &mut bench;
        let messages = Messages::open(header, batch, verify_crc, self.request.max_unpacked, codecs, unpacked)
            .map_err(|reason| walk.corrupt(reason))?;
        let count = messages.header.records();
        let first_bit = self.first_of(count)?;
        match action {
            ACTION_DROP => Ok(()),
            ACTION_COPY => {
                self.copy_row(&messages.header, walk.consumed);
                Ok(())
            }
            ACTION_EMPTY | ACTION_EMPTY_TIMELESS | ACTION_EMPTY_TIME_ZERO => {
                self.empty_legacy(&messages.header, action)
            }
            _ => {
                let kept = kept(&messages, self.request.keep_bits, first_bit).map_err(|reason| walk.corrupt(reason))?;
                let Some(first) = kept.first() else {
                    return invalid(format!(
                        "REBUILD retains no record of the batch at base offset {}",
                        messages.header.base_offset
                    ));
                };
                rebuilt.clear();
                if self.request.convert_legacy {
                    let set = action & ACTION_SET_HORIZON != 0 && self.request.delete_horizon >= 0;
                    let horizon = set.then_some(self.request.delete_horizon);
                    self.convert(&messages.header, &kept, first, horizon, (codecs, rebuilt))
                } else {
                    self.rebuild_legacy(&messages.header, &kept, (codecs, rebuilt))
                }
            }
        }
        .map_err(|reason| walk.corrupt(reason))?;
        *self.bench = bench;
        Ok(count)
    }

    fn legacy_action(&self, header: &Header) -> Result<u8, Error> {
        let action = self.next_action()?;
        match action {
            ACTION_DROP | ACTION_EMPTY | ACTION_EMPTY_TIMELESS | ACTION_EMPTY_TIME_ZERO | ACTION_REBUILD => Ok(action),
            ACTION_COPY if !self.request.convert_legacy => Ok(action),
            ACTION_REBUILD_SET_HORIZON if self.request.convert_legacy => Ok(action),
            ACTION_COPY | ACTION_REBUILD_SET_HORIZON => {
                invalid(format!("action {action:#x} is not possible for a batch of magic {}", header.magic))
            }
            _ => invalid(format!("unknown action {action:#x}")),
        }
    }

    /// Writes an empty v2 batch with the offsets of the legacy one, which has no empty form (U-13).
    fn empty_legacy(&mut self, header: &Header, action: u8) -> Result<(), Reason> {
        let start = self.begin_batch();
        let attributes = header.attributes & LOG_APPEND_TIME;
        let max_timestamp = time_of_emptied(header, action);
        self.end_batch(Header { magic: 2, attributes, max_timestamp, record_count: 0, ..header.clone() }, start)
    }

    /// Writes the retained messages as a v2 batch, from the first one's offset to the last one's (F-3.3).
    fn convert(
        &mut self,
        source: &Header,
        kept: &[Message<'_>],
        first: &Message<'_>,
        horizon: Option<i64>,
        (codecs, plain): (&mut Codecs, &mut Vec<u8>),
    ) -> Result<(), Reason> {
        let base_timestamp = horizon.unwrap_or(first.timestamp);
        let rebuilt = rebuilt_header(source, kept);
        for message in kept {
            write_record(plain, message, message.timestamp.wrapping_sub(base_timestamp), rebuilt.base_offset)?;
        }
        let start = self.begin_batch();
        codecs.compress(source.codec(), plain, &mut self.written.data)?;
        let horizon = if horizon.is_some() { HAS_DELETE_HORIZON } else { 0 };
        let (cleared, max_timestamp) = largest_time(source, rebuilt.max_timestamp, self.least_max_timestamp());
        let header = Header {
            magic: 2,
            attributes: source.attributes & (CODEC_MASK | LOG_APPEND_TIME) & !cleared | horizon,
            base_timestamp,
            max_timestamp,
            ..rebuilt
        };
        self.end_batch(header, start)
    }

    /// Writes the retained messages in the source's format (F-3.2), all with its magic (KAFKA-4298).
    fn rebuild_legacy(
        &mut self,
        source: &Header,
        kept: &[Message<'_>],
        (codecs, plain): (&mut Codecs, &mut Vec<u8>),
    ) -> Result<(), Reason> {
        let mut header = rebuilt_header(source, kept);
        if source.magic == 0 {
            // Magic 0 has no timestamps, so those of inner messages of magic 1 are dropped.
            header.max_timestamp = header::NONE;
        }
        let append_time = source.has(LOG_APPEND_TIME);
        let time_bit = if append_time { LOG_APPEND_TIME as u8 } else { 0 };
        let wrapped = source.codec() != codec::NONE;
        let relative = wrapped && source.magic == 1;
        // Readers compute offsets backwards from the wrapper's, which is that of the last message.
        if relative && kept.last().is_some_and(|last| last.offset < header.last_offset()) {
            return Err(Reason::batch("offsets decrease"));
        }
        let subtract = if relative { header.base_offset } else { 0 };
        for message in kept {
            let inner = Message {
                magic: source.magic,
                offset: message.offset - subtract,
                timestamp: if append_time { source.max_timestamp } else { message.timestamp },
                ..*message
            };
            write_message(plain, &inner, time_bit)
                .ok_or_else(|| Reason::batch("rebuilt message exceeds 2^31-1 bytes"))?;
        }
        self.make_room();
        let position = self.written.output_bytes();
        if wrapped {
            let (offset, timestamp) = (header.last_offset(), header.max_timestamp);
            let wrapper = Message { magic: source.magic, offset, timestamp, key: None, value: None };
            header.size = write_wrapper(&mut self.written.data, &wrapper, time_bit | source.codec(), plain, codecs)?;
        } else {
            self.written.data.extend_from_slice(plain);
            header.size = plain.len();
        }
        self.written.row(position, &header, source.size);
        Ok(())
    }
}

/// The messages whose keep bits are set.
fn kept<'a>(messages: &Messages<'a>, keep: &[u64], first_bit: usize) -> Result<Vec<Message<'a>>, Reason> {
    let mut kept = Vec::new();
    messages.for_each(|index, message| {
        if is_set(keep, first_bit + index) {
            kept.push(*message);
        }
        Ok(())
    })?;
    Ok(kept)
}

/// A header from the lowest to the highest offset of the retained messages. Its time is the wrapper's append time, otherwise
/// their largest timestamp.
fn rebuilt_header(source: &Header, kept: &[Message<'_>]) -> Header {
    let lowest = kept.iter().map(|message| message.offset).fold(i64::MAX, i64::min);
    let highest = kept.iter().map(|message| message.offset).fold(header::NONE, i64::max);
    let largest = kept.iter().map(|message| message.timestamp).fold(header::NONE, i64::max);
    Header {
        base_offset: lowest,
        // At most the source's values, like the count.
        last_offset_delta: i32::try_from(highest - lowest).unwrap_or(i32::MAX),
        max_timestamp: if source.has(LOG_APPEND_TIME) { source.max_timestamp } else { largest },
        record_count: i32::try_from(kept.len()).unwrap_or(i32::MAX),
        ..source.clone()
    }
}

fn write_record(output: &mut Vec<u8>, message: &Message<'_>, delta: i64, base_offset: i64) -> Result<(), Reason> {
    let offset_delta = message.offset - base_offset;
    let length =
        1 + varlong_len(delta) + varlong_len(offset_delta) + field_len(message.key) + field_len(message.value) + 1;
    if i32::try_from(length).is_err() {
        return Err(Reason::batch("rebuilt record exceeds 2^31-1 bytes"));
    }
    write_varlong(output, length as i64);
    output.push(0);
    write_varlong(output, delta);
    write_varlong(output, offset_delta);
    for field in [message.key, message.value] {
        write_varlong(output, field.map_or(-1, |field| field.len() as i64));
        output.extend_from_slice(field.unwrap_or_default());
    }
    output.push(0);
    Ok(())
}

fn field_len(field: Option<&[u8]>) -> usize {
    field.map_or(1, |field| varlong_len(field.len() as i64) + field.len())
}
