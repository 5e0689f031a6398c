//! The five codecs of F-4. Each thread reuses its contexts and tables.

mod gzip;
mod lz4_frame;
mod scratch;
mod xerial;
mod xxh32;
mod zstd_frame;

use std::cell::Cell;

use crate::error::{Error, Reason, invalid};
pub use scratch::Scratch;

pub const NONE: u8 = 0;
pub const GZIP: u8 = 1;
pub const SNAPPY: u8 = 2;
pub const LZ4: u8 = 3;
pub const ZSTD: u8 = 4;

/// Larger buffers are freed after each call.
const KEPT_SCRATCH_BYTES: usize = 32 << 20;

/// Contexts of all codecs, created on first use.
#[derive(Default)]
pub struct Codecs {
    gzip: gzip::Gzip,
    snappy: xerial::Xerial,
    lz4: lz4_frame::Lz4,
    zstd: zstd_frame::Zstd,
}

impl Codecs {
    /// Decompresses `input` into `output`, which is cleared first, to at most `limit` bytes.
    pub fn decompress(&mut self, codec: u8, input: &[u8], limit: usize, output: &mut Scratch) -> Result<(), Reason> {
        output.start(limit);
        match codec {
            NONE => output.push(input),
            GZIP => self.gzip.decompress(input, output),
            SNAPPY => self.snappy.decompress(input, output),
            LZ4 => self.lz4.decompress(input, output),
            ZSTD => self.zstd.decompress(input, output),
            _ => Err(unknown(codec)),
        }
    }

    /// [`Codecs::decompress`] for the value of a wrapper of magic 0 or 1 (F-3.1).
    pub fn decompress_legacy(
        &mut self,
        magic: u8,
        codec: u8,
        input: &[u8],
        limit: usize,
        output: &mut Scratch,
    ) -> Result<(), Reason> {
        match codec {
            LZ4 if magic == 0 => {
                output.start(limit);
                self.lz4.decompress_v0(input, output)
            }
            GZIP..=LZ4 => self.decompress(codec, input, limit, output),
            _ => Err(not_in_legacy(codec)),
        }
    }

    /// Compresses `input` at the codec's default level and appends it to `output`.
    pub fn compress(&mut self, codec: u8, input: &[u8], output: &mut Vec<u8>) -> Result<(), Reason> {
        match codec {
            NONE => output.extend_from_slice(input),
            GZIP => self.gzip.compress(input, output)?,
            SNAPPY => self.snappy.compress(input, output)?,
            LZ4 => self.lz4.compress(input, output)?,
            ZSTD => self.zstd.compress(input, output)?,
            _ => return Err(unknown(codec)),
        }
        Ok(())
    }

    /// [`Codecs::compress`] for the retained part of the payload `source`, in blocks as large as its blocks (U-53).
    ///
    /// With smaller blocks the result could be larger than `source`.
    pub fn compress_like(
        &mut self,
        codec: u8,
        source: &[u8],
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), Reason> {
        match codec {
            SNAPPY => self.snappy.compress_like(source, input, output),
            LZ4 => self.lz4.compress_like(source, input, output),
            _ => self.compress(codec, input, output),
        }
    }

    /// [`Codecs::compress`] for the value of a wrapper of magic 0 or 1.
    pub fn compress_legacy(&mut self, magic: u8, codec: u8, input: &[u8], output: &mut Vec<u8>) -> Result<(), Reason> {
        match codec {
            LZ4 if magic == 0 => self.lz4.compress_v0(input, output),
            GZIP..=LZ4 => self.compress(codec, input, output),
            _ => Err(not_in_legacy(codec)),
        }
    }
}

fn not_in_legacy(codec: u8) -> Reason {
    if codec == ZSTD { Reason::batch("zstd in a message of magic 0 or 1") } else { unknown(codec) }
}

pub fn unknown(codec: u8) -> Reason {
    Reason::batch(format!("unknown codec {codec}"))
}

/// Buffers and contexts that a thread reuses.
#[derive(Default)]
pub struct Workbench {
    pub codecs: Codecs,
    pub unpacked: Scratch,
    pub rebuilt: Vec<u8>,
}

thread_local! {
    static WORKBENCH: Cell<Option<Box<Workbench>>> = const { Cell::new(None) };
}

/// Runs `body` with the thread's workbench. After a panic the workbench is dropped, because its state is unknown.
pub fn with_workbench<T>(body: impl FnOnce(&mut Workbench) -> T) -> T {
    let mut bench = WORKBENCH.take().unwrap_or_default();
    let result = body(&mut bench);
    bench.unpacked.shrink_to(KEPT_SCRATCH_BYTES);
    if bench.rebuilt.capacity() > KEPT_SCRATCH_BYTES {
        bench.rebuilt = Vec::new();
    }
    WORKBENCH.set(Some(bench));
    result
}

fn check_codec(codec: i64) -> Result<u8, Error> {
    match u8::try_from(codec) {
        Ok(codec) if codec <= ZSTD => Ok(codec),
        _ => invalid(format!("unknown codec {codec}: use 0 none, 1 gzip, 2 snappy, 3 lz4 or 4 zstd")),
    }
}

/// Compresses `data` as the payload of a batch.
pub fn compress(codec: i64, data: &[u8]) -> Result<Vec<u8>, Error> {
    let codec = check_codec(codec)?;
    with_workbench(|bench| {
        let mut output = Vec::new();
        bench.codecs.compress(codec, data, &mut output).map_err(|reason| Error::Bug(reason.text))?;
        Ok(output)
    })
}

/// Decompresses the payload of a batch.
pub fn decompress(codec: i64, data: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
    let codec = check_codec(codec)?;
    with_workbench(|bench| {
        bench.codecs.decompress(codec, data, limit, &mut bench.unpacked).map_err(Reason::nowhere)?;
        Ok(bench.unpacked.filled().to_vec())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bomb_is_refused(codec: u8, unpacked: usize, limit: usize) {
        let packed = compress(codec.into(), &vec![7; unpacked]).unwrap();
        assert!(packed.len() < unpacked / 10);
        let mut output = Scratch::default();
        let mut codecs = Codecs::default();
        let reason = codecs.decompress(codec, &packed, limit, &mut output).unwrap_err();
        assert!(reason.text.contains("more than"), "{codec}: {}", reason.text);
        assert!(output.capacity() <= 2 * limit + 1, "{codec}: {}", output.capacity());
    }

    #[test]
    fn a_bomb_is_refused_within_the_limit() {
        for codec in [GZIP, SNAPPY, LZ4, ZSTD] {
            bomb_is_refused(codec, 8 << 20, 1 << 20);
            bomb_is_refused(codec, 100_000, 100);
        }
    }

    #[test]
    fn the_limit_itself_is_allowed() {
        let data = vec![3; 200_000];
        for codec in NONE..=ZSTD {
            let packed = compress(codec.into(), &data).unwrap();
            assert_eq!(decompress(codec.into(), &packed, data.len()).unwrap(), data, "{codec}");
            assert!(decompress(codec.into(), &packed, data.len() - 1).is_err(), "{codec}");
        }
    }

    #[test]
    fn nothing_packs_to_something_that_unpacks_to_nothing() {
        for codec in NONE..=ZSTD {
            let packed = compress(codec.into(), b"").unwrap();
            assert_eq!(decompress(codec.into(), &packed, 0).unwrap(), b"", "{codec}");
            assert_eq!(packed.is_empty(), codec == NONE);
        }
        for codec in GZIP..=ZSTD {
            assert!(decompress(codec.into(), b"", 10).is_err(), "{codec}");
        }
    }

    #[test]
    fn there_are_five_codecs() {
        for codec in [-1, 5, 6, 7, 256] {
            assert!(matches!(compress(codec, b""), Err(Error::Invalid(_))));
            assert!(matches!(decompress(codec, b"", 1), Err(Error::Invalid(_))));
        }
    }

    fn payload() -> impl Strategy<Value = Vec<u8>> {
        let runs = prop::collection::vec((any::<u8>(), 1usize..5000), 0..40)
            .prop_map(|runs| runs.into_iter().flat_map(|(byte, count)| std::iter::repeat_n(byte, count)).collect());
        prop_oneof![prop::collection::vec(any::<u8>(), 0..3000), runs]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn what_is_packed_is_unpacked(data in payload(), codec in NONE..=ZSTD) {
            let packed = compress(codec.into(), &data).unwrap();
            prop_assert_eq!(decompress(codec.into(), &packed, data.len()).unwrap(), data);
        }

        #[test]
        fn a_cut_is_noticed(data in payload(), codec in GZIP..=ZSTD, cut in any::<prop::sample::Index>()) {
            let packed = compress(codec.into(), &data).unwrap();
            let cut = cut.index(packed.len());
            let result = decompress(codec.into(), &packed[..cut], data.len());
            // The xerial framing has no end marker: cut between two blocks, it is a valid shorter payload.
            if let Ok(unpacked) = result {
                prop_assert!(codec == SNAPPY && data.starts_with(&unpacked));
            }
        }

        #[test]
        fn damage_does_no_harm(
            data in payload(), codec in GZIP..=ZSTD, place in any::<prop::sample::Index>(), byte: u8,
        ) {
            let mut packed = compress(codec.into(), &data).unwrap();
            let place = place.index(packed.len());
            packed[place] = byte;
            if let Ok(unpacked) = decompress(codec.into(), &packed, 100_000) {
                prop_assert!(unpacked.len() <= 100_000);
            }
        }

        #[test]
        fn garbage_does_no_harm(data in prop::collection::vec(any::<u8>(), 0..200), codec in GZIP..=ZSTD) {
            if let Ok(unpacked) = decompress(codec.into(), &data, 10_000) {
                prop_assert!(unpacked.len() <= 10_000);
            }
        }
    }
}
