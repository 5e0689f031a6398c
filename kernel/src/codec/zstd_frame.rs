//! zstd frames, with one reused context per direction.

use zstd::zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd::zstd_safe::{CCtx, CParameter, DCtx, InBuffer, OutBuffer, ResetDirective, compress_bound};

use super::scratch::Scratch;
use crate::error::Reason;

const DEFAULT_LEVEL: i32 = 3;
/// A larger buffer is freed after each batch.
const KEPT_PACKED_BYTES: usize = 16 << 20;
/// A larger reader is freed, too: its context would keep a frame's window, which may have 128 MiB.
const KEPT_READER_BYTES: usize = 9 << 20;

#[derive(Default)]
pub struct Zstd {
    reader: Option<DCtx<'static>>,
    writer: Option<CCtx<'static>>,
    packed: Vec<u8>,
}

impl Zstd {
    /// Reads one or more frames. Kafka's frames have no content size, so the output grows step by step.
    pub fn decompress(&mut self, input: &[u8], output: &mut Scratch) -> Result<(), Reason> {
        let result = self.stream(input, output);
        if self.reader.as_ref().is_some_and(|context| context.sizeof() > KEPT_READER_BYTES) {
            self.reader = None;
        }
        result
    }

    fn stream(&mut self, input: &[u8], output: &mut Scratch) -> Result<(), Reason> {
        let context = match &mut self.reader {
            Some(context) => context,
            None => self.reader.insert(DCtx::try_create().ok_or_else(no_memory)?),
        };
        context.reset(ResetDirective::SessionOnly).map_err(|_| damaged())?;
        let hint = input.len().saturating_mul(4);
        let mut source = InBuffer::around(input);
        loop {
            let before = source.pos();
            let room = output.some(hint)?;
            let room_bytes = room.len();
            let mut target = OutBuffer::around(room);
            let to_come = context.decompress_stream(&mut target, &mut source).map_err(failed)?;
            let count = target.pos();
            output.advance(count)?;
            if source.pos() == input.len() {
                if to_come == 0 {
                    return Ok(());
                }
                if count < room_bytes {
                    return Err(Reason::batch("zstd data is truncated"));
                }
            }
            if count == 0 && source.pos() == before {
                return Err(damaged());
            }
        }
    }

    pub fn compress(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<(), Reason> {
        let context = match &mut self.writer {
            Some(context) => context,
            None => {
                let mut context =
                    CCtx::try_create().ok_or_else(|| Reason::batch("the system has no memory for zstd"))?;
                context.set_parameter(CParameter::CompressionLevel(DEFAULT_LEVEL)).map_err(|_| refused())?;
                self.writer.insert(context)
            }
        };
        let most = compress_bound(input.len());
        if self.packed.len() < most {
            self.packed.resize(most, 0);
        }
        let count = context.compress2(self.packed.as_mut_slice(), input).map_err(|_| refused())?;
        output.extend_from_slice(self.packed.get(..count).ok_or_else(refused)?);
        if self.packed.len() > KEPT_PACKED_BYTES {
            self.packed = Vec::new();
        }
        Ok(())
    }
}

/// The reason for an error code of the library: codes are negative numbers.
#[cold]
fn failed(code: usize) -> Reason {
    let is = |known: ZSTD_ErrorCode| code == (known as usize).wrapping_neg();
    if is(ZSTD_ErrorCode::ZSTD_error_memory_allocation) {
        no_memory()
    } else if is(ZSTD_ErrorCode::ZSTD_error_frameParameter_windowTooLarge) {
        Reason::batch("zstd data has a window of more than 128 MiB, which brokers reject, too")
    } else {
        damaged()
    }
}

/// The batch may be valid.
#[cold]
fn no_memory() -> Reason {
    Reason::too_large("needs more memory for its decompression by zstd than the system has")
}

#[cold]
fn damaged() -> Reason {
    Reason::batch("damaged zstd data")
}

#[cold]
fn refused() -> Reason {
    Reason::batch("zstd failed to compress a batch")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_with_a_large_window_is_not_kept() {
        let mut packer = CCtx::create();
        packer.set_parameter(CParameter::WindowLog(24)).unwrap();
        let data: Vec<u8> = (0..20u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut packed = vec![0; compress_bound(data.len())];
        // In two steps: a frame with a content size has no larger window than that.
        let mut source = InBuffer::around(&data);
        let mut target = OutBuffer::around(packed.as_mut_slice());
        while source.pos() < data.len() {
            packer.compress_stream(&mut target, &mut source).unwrap();
        }
        packer.end_stream(&mut target).unwrap();
        let end = target.pos();
        let mut output = Scratch::default();
        output.start(1 << 30);
        let mut codec = Zstd::default();
        codec.decompress(&packed[..end], &mut output).unwrap();
        assert_eq!(output.filled(), data);
        assert!(codec.reader.is_none());
        let mut small = Vec::new();
        codec.compress(b"hello", &mut small).unwrap();
        output.start(1 << 10);
        codec.decompress(&small, &mut output).unwrap();
        assert!(codec.reader.is_some());
    }
}
