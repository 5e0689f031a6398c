//! `cleanerd._kernel`: converts arguments, arrays and errors. The stub `cleanerd/_kernel.pyi` is the documentation.

#![forbid(unsafe_code)]

mod content;
mod errors;
mod map;
mod pieces;
mod tables;

use std::collections::BTreeMap;

use cleanerd_kernel::decode::{
    self, FLAG_BAD_VERSION, FLAG_HAS_KEY, FLAG_HAS_VALUE, FLAG_HAS_VERSION, FLAG_TOMBSTONE, FLAG_TOMBSTONE_HEADER,
    Options,
};
use cleanerd_kernel::record_headers::{HeaderNames, VersionEncoding};
use cleanerd_kernel::rewrite::{
    self, ACTION_COPY, ACTION_DROP, ACTION_EMPTY, ACTION_REBUILD, ACTION_SET_HORIZON, ACTION_TIME_ZERO,
    ACTION_TIMELESS, Request,
};
use cleanerd_kernel::{CODEC_CRATES, batch_table, bits, codec};
use numpy::{PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use errors::{BatchTooLargeError, CorruptLogError, InvalidCallError, KernelBugError, run};
use map::{IndexBuilder, KeyRows, OffsetMap};
use pieces::{ChunkDecoder, ChunkRewriter};
use tables::{Batches, Chunk, Contents, Digests, Records, Written, read_only};

pub(crate) fn size(name: &str, value: i64) -> PyResult<usize> {
    usize::try_from(value).map_err(|_| PyValueError::new_err(format!("{name} {value} is negative")))
}

#[pyfunction]
#[pyo3(signature = (data, position, *, verify_crc=false))]
fn scan_headers(py: Python<'_>, data: PyReadonlyArray1<'_, u8>, position: i64, verify_crc: bool) -> PyResult<Batches> {
    let data = data.as_slice()?;
    Ok(Batches::new(py, run(py, || batch_table::scan_headers(data, position, verify_crc))?))
}

/// Options for decoding, from the Python arguments.
pub(crate) fn options(
    hash_key: Option<Bound<'_, PyBytes>>,
    version_header: Option<Bound<'_, PyBytes>>,
    version_encoding: &str,
    tombstone_header: Option<Bound<'_, PyBytes>>,
    verify_crc: bool,
    max_unpacked: i64,
) -> PyResult<Options> {
    let hash_key = match hash_key {
        None => None,
        Some(key) => Some(
            <[u8; 16]>::try_from(key.as_bytes()).map_err(|_| PyValueError::new_err("hash_key must have 16 bytes"))?,
        ),
    };
    let encoding = match version_encoding {
        "long" => VersionEncoding::Long,
        "varlong" => VersionEncoding::Varlong,
        other => return Err(PyValueError::new_err(format!("version_encoding {other:?} is neither long nor varlong"))),
    };
    let name = |name: Bound<'_, PyBytes>| name.as_bytes().to_vec();
    let names = HeaderNames { version: version_header.map(name), encoding, tombstone: tombstone_header.map(name) };
    let headers = (names.version.is_some() || names.tombstone.is_some()).then_some(names);
    Ok(Options { hash_key, headers, verify_crc, max_unpacked: size("max_unpacked", max_unpacked)? })
}

#[pyfunction]
#[pyo3(signature = (
    data, position, *, hash_key=None, version_header=None, version_encoding="long", tombstone_header=None, verify_crc=true,
    max_unpacked=1073741824
))]
#[expect(clippy::too_many_arguments, reason = "the stub has them")]
fn decode_chunk(
    py: Python<'_>,
    data: PyReadonlyArray1<'_, u8>,
    position: i64,
    hash_key: Option<Bound<'_, PyBytes>>,
    version_header: Option<Bound<'_, PyBytes>>,
    version_encoding: &str,
    tombstone_header: Option<Bound<'_, PyBytes>>,
    verify_crc: bool,
    max_unpacked: i64,
) -> PyResult<Chunk> {
    let options = options(hash_key, version_header, version_encoding, tombstone_header, verify_crc, max_unpacked)?;
    let data = data.as_slice()?;
    Chunk::new(py, run(py, || decode::decode_chunk(data, position, &options))?)
}

#[pyfunction]
#[pyo3(
    signature = (
        data, position, keep_bits, first_bit, actions, *, delete_horizon=-1, convert_legacy=false, verify_crc=true,
        max_unpacked=1073741824
    ),
    // Explicit, because a negative default would appear as an ellipsis.
    text_signature = "(data, position, keep_bits, first_bit, actions, *, delete_horizon=-1, convert_legacy=False, \
                      verify_crc=True, max_unpacked=1073741824)"
)]
#[expect(clippy::too_many_arguments, reason = "the stub has them")]
fn rewrite_chunk(
    py: Python<'_>,
    data: PyReadonlyArray1<'_, u8>,
    position: i64,
    keep_bits: PyReadonlyArray1<'_, u64>,
    first_bit: i64,
    actions: PyReadonlyArray1<'_, u8>,
    delete_horizon: i64,
    convert_legacy: bool,
    verify_crc: bool,
    max_unpacked: i64,
) -> PyResult<Written> {
    let data = data.as_slice()?;
    let request = Request {
        keep_bits: keep_bits.as_slice()?,
        first_bit,
        actions: actions.as_slice()?,
        delete_horizon,
        max_batch_bytes: 0,
        least_max_timestamps: None,
        convert_legacy,
        verify_crc,
        max_unpacked: size("max_unpacked", max_unpacked)?,
        lead: None,
        expected_bytes: data.len(),
    };
    Written::new(py, run(py, || rewrite::rewrite_chunk(data, position, &request))?)
}

#[pyfunction]
fn popcount_by_batch(
    py: Python<'_>,
    bits: PyReadonlyArray1<'_, u64>,
    first_record: PyReadonlyArray1<'_, u32>,
) -> PyResult<Py<PyArray1<u32>>> {
    let (bits, first_record) = (bits.as_slice()?, first_record.as_slice()?);
    Ok(read_only(py, run(py, || bits::popcount_by_batch(bits, first_record))?))
}

#[pyfunction]
fn fill_by_batch(
    py: Python<'_>,
    flags: PyReadonlyArray1<'_, bool>,
    first_record: PyReadonlyArray1<'_, u32>,
) -> PyResult<Py<PyArray1<u64>>> {
    let (flags, first_record) = (flags.as_slice()?, first_record.as_slice()?);
    Ok(PyArray1::from_vec(py, run(py, || bits::fill_by_batch(flags, first_record))?).unbind())
}

#[pyfunction]
fn store_bits(
    py: Python<'_>,
    mut bits: PyReadwriteArray1<'_, u64>,
    first_bit: i64,
    values: PyReadonlyArray1<'_, bool>,
) -> PyResult<()> {
    let (bits, values) = (bits.as_slice_mut()?, values.as_slice()?);
    run(py, || bits::store_bits(bits, first_bit, values))
}

#[pyfunction]
#[pyo3(signature = (data, seed=0))]
fn crc32c(py: Python<'_>, data: PyReadonlyArray1<'_, u8>, seed: i64) -> PyResult<u32> {
    let seed = u32::try_from(seed).map_err(|_| PyValueError::new_err("seed is not a CRC-32C"))?;
    let data = data.as_slice()?;
    run(py, || Ok(cleanerd_kernel::crc32c(data, seed)))
}

#[pyfunction]
#[pyo3(signature = (data, seed=0))]
fn crc32c_of_batches(py: Python<'_>, data: PyReadonlyArray1<'_, u8>, seed: i64) -> PyResult<u32> {
    let seed = u32::try_from(seed).map_err(|_| PyValueError::new_err("seed is not a CRC-32C"))?;
    let data = data.as_slice()?;
    run(py, || Ok(cleanerd_kernel::file_crc::crc32c_of_batches(data, seed)))
}

#[pyfunction]
fn crc32c_combine(first: u32, second: u32, second_bytes: i64) -> PyResult<u32> {
    let second_bytes = u64::try_from(second_bytes).map_err(|_| PyValueError::new_err("second_bytes is negative"))?;
    Ok(cleanerd_kernel::file_crc::combine(first, second, second_bytes))
}

#[pyfunction]
fn compress(py: Python<'_>, codec: i64, data: Bound<'_, PyBytes>) -> PyResult<Py<PyBytes>> {
    let data = data.as_bytes();
    let packed = run(py, || codec::compress(codec, data))?;
    Ok(PyBytes::new(py, &packed).unbind())
}

#[pyfunction]
fn decompress(py: Python<'_>, codec: i64, data: Bound<'_, PyBytes>, limit: i64) -> PyResult<Py<PyBytes>> {
    let limit = size("limit", limit)?;
    let data = data.as_bytes();
    let unpacked = run(py, || codec::decompress(codec, data, limit))?;
    Ok(PyBytes::new(py, &unpacked).unbind())
}

#[pyfunction]
fn build_info() -> BTreeMap<String, String> {
    let mut info: BTreeMap<String, String> =
        CODEC_CRATES.iter().map(|&(name, version)| (name.to_owned(), version.to_owned())).collect();
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    info.insert("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    info.insert("target".to_owned(), target);
    info.insert("profile".to_owned(), profile.to_owned());
    info
}

/// Bytes, keys and bits of Kafka logs.
#[pymodule]
fn _kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    cleanerd_kernel::keep_freed_memory();
    let py = module.py();
    module.add("ACTION_DROP", ACTION_DROP)?;
    module.add("ACTION_COPY", ACTION_COPY)?;
    module.add("ACTION_REBUILD", ACTION_REBUILD)?;
    module.add("ACTION_EMPTY", ACTION_EMPTY)?;
    module.add("ACTION_SET_HORIZON", ACTION_SET_HORIZON)?;
    module.add("ACTION_TIMELESS", ACTION_TIMELESS)?;
    module.add("ACTION_TIME_ZERO", ACTION_TIME_ZERO)?;
    module.add("FLAG_HAS_KEY", FLAG_HAS_KEY)?;
    module.add("FLAG_HAS_VALUE", FLAG_HAS_VALUE)?;
    module.add("FLAG_TOMBSTONE", FLAG_TOMBSTONE)?;
    module.add("FLAG_HAS_VERSION", FLAG_HAS_VERSION)?;
    module.add("FLAG_BAD_VERSION", FLAG_BAD_VERSION)?;
    module.add("FLAG_TOMBSTONE_HEADER", FLAG_TOMBSTONE_HEADER)?;
    module.add("CorruptLogError", py.get_type::<CorruptLogError>())?;
    module.add("BatchTooLargeError", py.get_type::<BatchTooLargeError>())?;
    module.add("KernelBugError", py.get_type::<KernelBugError>())?;
    module.add("InvalidCallError", py.get_type::<InvalidCallError>())?;
    module.add_class::<Batches>()?;
    module.add_class::<Records>()?;
    module.add_class::<Chunk>()?;
    module.add_class::<Digests>()?;
    module.add_class::<Contents>()?;
    module.add_class::<Written>()?;
    module.add_class::<ChunkDecoder>()?;
    module.add_class::<ChunkRewriter>()?;
    module.add_class::<OffsetMap>()?;
    module.add_class::<KeyRows>()?;
    module.add_class::<IndexBuilder>()?;
    module.add_function(wrap_pyfunction!(scan_headers, module)?)?;
    module.add_function(wrap_pyfunction!(decode_chunk, module)?)?;
    module.add_function(wrap_pyfunction!(rewrite_chunk, module)?)?;
    module.add_function(wrap_pyfunction!(content::content_digest, module)?)?;
    module.add_function(wrap_pyfunction!(content::read_contents, module)?)?;
    module.add_function(wrap_pyfunction!(popcount_by_batch, module)?)?;
    module.add_function(wrap_pyfunction!(fill_by_batch, module)?)?;
    module.add_function(wrap_pyfunction!(store_bits, module)?)?;
    module.add_function(wrap_pyfunction!(crc32c, module)?)?;
    module.add_function(wrap_pyfunction!(crc32c_of_batches, module)?)?;
    module.add_function(wrap_pyfunction!(crc32c_combine, module)?)?;
    module.add_function(wrap_pyfunction!(compress, module)?)?;
    module.add_function(wrap_pyfunction!(decompress, module)?)?;
    module.add_function(wrap_pyfunction!(build_info, module)?)?;
    Ok(())
}
