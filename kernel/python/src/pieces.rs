//! `ChunkDecoder` and `ChunkRewriter`: they take a chunk piece by piece.

use cleanerd_kernel::decode::{Gathering, Options};
use cleanerd_kernel::rewrite::{self, Request};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::run;
use crate::tables::{Chunk, Written};
use crate::{options, size};

fn finished() -> PyErr {
    PyValueError::new_err("the chunk is finished")
}

#[pyclass(module = "cleanerd._kernel")]
pub struct ChunkDecoder {
    options: Options,
    gathering: Option<Gathering>,
}

#[pymethods]
impl ChunkDecoder {
    #[new]
    #[pyo3(signature = (
        expected_bytes, *, hash_key=None, version_header=None, version_encoding="long", tombstone_header=None,
        verify_crc=true, max_unpacked=1073741824
    ))]
    fn new(
        expected_bytes: i64,
        hash_key: Option<Bound<'_, PyBytes>>,
        version_header: Option<Bound<'_, PyBytes>>,
        version_encoding: &str,
        tombstone_header: Option<Bound<'_, PyBytes>>,
        verify_crc: bool,
        max_unpacked: i64,
    ) -> PyResult<Self> {
        let options = options(hash_key, version_header, version_encoding, tombstone_header, verify_crc, max_unpacked)?;
        let gathering = Gathering::new(size("expected_bytes", expected_bytes)?);
        Ok(Self { options, gathering: Some(gathering) })
    }

    fn feed(&mut self, py: Python<'_>, data: PyReadonlyArray1<'_, u8>, position: i64) -> PyResult<(usize, usize)> {
        let data = data.as_slice()?;
        let Self { options, gathering } = self;
        let gathering = gathering.as_mut().ok_or_else(finished)?;
        run(py, || gathering.feed(data, position, options))
    }

    #[getter]
    fn full(&self) -> bool {
        self.gathering.as_ref().is_none_or(Gathering::full)
    }

    fn finish(&mut self, py: Python<'_>) -> PyResult<Chunk> {
        let gathering = self.gathering.take().ok_or_else(finished)?;
        Chunk::new(py, gathering.finish())
    }
}

#[pyclass(module = "cleanerd._kernel")]
pub struct ChunkRewriter {
    keep_bits: Py<PyArray1<u64>>,
    first_bit: i64,
    actions: Py<PyArray1<u8>>,
    delete_horizon: i64,
    max_batch_bytes: usize,
    convert_legacy: bool,
    verify_crc: bool,
    max_unpacked: usize,
    lead: Option<Vec<u8>>,
    least_max_timestamps: Option<Py<PyArray1<i64>>>,
    expected_bytes: usize,
    written: Option<rewrite::Written>,
}

#[pymethods]
impl ChunkRewriter {
    #[new]
    #[pyo3(
        signature = (
            expected_bytes, keep_bits, first_bit, actions, *, delete_horizon=-1, max_batch_bytes=0,
            convert_legacy=false, verify_crc=true, max_unpacked=1073741824, lead=None, least_max_timestamps=None
        ),
        // Explicit, because a negative default would appear as an ellipsis.
        text_signature = "(expected_bytes, keep_bits, first_bit, actions, *, delete_horizon=-1, max_batch_bytes=0, \
                          convert_legacy=False, verify_crc=True, max_unpacked=1073741824, lead=None, least_max_timestamps=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "the stub has them")]
    fn new(
        expected_bytes: i64,
        keep_bits: Bound<'_, PyArray1<u64>>,
        first_bit: i64,
        actions: Bound<'_, PyArray1<u8>>,
        delete_horizon: i64,
        max_batch_bytes: i64,
        convert_legacy: bool,
        verify_crc: bool,
        max_unpacked: i64,
        lead: Option<PyReadonlyArray1<'_, u8>>,
        least_max_timestamps: Option<Bound<'_, PyArray1<i64>>>,
    ) -> PyResult<Self> {
        Ok(Self {
            keep_bits: keep_bits.unbind(),
            first_bit,
            actions: actions.unbind(),
            delete_horizon,
            max_batch_bytes: size("max_batch_bytes", max_batch_bytes)?,
            convert_legacy,
            verify_crc,
            max_unpacked: size("max_unpacked", max_unpacked)?,
            lead: lead.map(|lead| lead.as_slice().map(<[u8]>::to_vec)).transpose()?,
            least_max_timestamps: least_max_timestamps.map(Bound::unbind),
            expected_bytes: size("expected_bytes", expected_bytes)?,
            written: Some(rewrite::Written::default()),
        })
    }

    fn feed(&mut self, py: Python<'_>, data: PyReadonlyArray1<'_, u8>, position: i64) -> PyResult<(usize, usize)> {
        let data = data.as_slice()?;
        let (keep_bits, actions) = (self.keep_bits.bind(py).readonly(), self.actions.bind(py).readonly());
        let times = self.least_max_timestamps.as_ref().map(|times| times.bind(py).readonly());
        let request = Request {
            keep_bits: keep_bits.as_slice()?,
            first_bit: self.first_bit,
            actions: actions.as_slice()?,
            delete_horizon: self.delete_horizon,
            max_batch_bytes: self.max_batch_bytes,
            least_max_timestamps: times.as_ref().map(|times| times.as_slice()).transpose()?,
            convert_legacy: self.convert_legacy,
            verify_crc: self.verify_crc,
            max_unpacked: self.max_unpacked,
            lead: self.lead.as_deref(),
            expected_bytes: self.expected_bytes,
        };
        let written = self.written.as_mut().ok_or_else(finished)?;
        run(py, || written.feed(data, position, &request))
    }

    #[getter]
    fn full(&self) -> bool {
        self.written.as_ref().is_none_or(rewrite::Written::full)
    }

    fn finish(&mut self, py: Python<'_>) -> PyResult<Written> {
        let mut written = self.written.take().ok_or_else(finished)?;
        if self.lead.is_none() {
            written.shrink();
        }
        Written::new(py, written)
    }
}
