//! `OffsetMap`, `KeyRows` and `IndexBuilder`: the objects with a memory.

use cleanerd_kernel::Error;
use cleanerd_kernel::key_rows::{self, Columns};
use cleanerd_kernel::offset_map::{self, Memory, Shard, Versions};
use cleanerd_kernel::segment_index;
use numpy::{PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{MapLostError, exception, run};
use crate::file_map::{self, Range};
use crate::tables::{Written, read_only};

/// `map`: none any more once it was closed. `file`: of a map in a file; dropped after the memory.
#[pyclass(module = "cleanerd._kernel")]
pub struct OffsetMap {
    map: Option<offset_map::OffsetMap>,
    file: Option<Range>,
}

impl OffsetMap {
    fn get(&self) -> PyResult<&offset_map::OffsetMap> {
        self.map.as_ref().ok_or_else(closed)
    }

    /// Runs `body` on the map without the GIL. What comes of memory that is not what was written there is thrown away.
    fn with<T: Send>(
        &mut self,
        py: Python<'_>,
        body: impl FnOnce(&mut offset_map::OffsetMap) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let map = self.map.as_mut().ok_or_else(closed)?;
        let result = run(py, || body(map));
        self.require_whole()?;
        result
    }

    fn require_whole(&self) -> PyResult<()> {
        if self.file.as_ref().is_none_or(Range::whole) {
            return Ok(());
        }
        let text = "a page of the offset map's file did not come back";
        Err(MapLostError::new_err((libc::EIO, text)))
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("the map is closed")
}

#[pymethods]
impl OffsetMap {
    #[new]
    #[pyo3(signature = (memory_bytes, *, load=0.85, huge_pages=true, versions=false))]
    fn new(py: Python<'_>, memory_bytes: i64, load: f64, huge_pages: bool, versions: bool) -> PyResult<Self> {
        let new = if versions { offset_map::OffsetMap::with_versions } else { offset_map::OffsetMap::new };
        let map = run(py, || new(memory_bytes, load, huge_pages))?;
        Ok(Self { map: Some(map), file: None })
    }

    #[staticmethod]
    #[pyo3(signature = (fd, memory_bytes, *, load=0.85, versions=false))]
    fn in_file(py: Python<'_>, fd: i32, memory_bytes: i64, load: f64, versions: bool) -> PyResult<Self> {
        let mut file = None;
        let map = run(py, || {
            offset_map::OffsetMap::in_memory(memory_bytes, load, versions, |bytes| {
                let (bytes, range) = file_map::map(fd, bytes)?;
                let lost = range.lost();
                file = Some(range);
                Ok(Memory { bytes, lost })
            })
        })?;
        Ok(Self { map: Some(map), file })
    }

    fn close(&mut self) -> PyResult<()> {
        let whole = self.require_whole();
        self.map = None;
        self.file = None;
        whole
    }

    #[pyo3(signature = (key_hash, first_ordinal, mask, *, version=None, has_version=None, shard=0, shards=1))]
    #[expect(clippy::too_many_arguments, reason = "the stub has them")]
    fn put_max(
        &mut self,
        py: Python<'_>,
        key_hash: PyReadonlyArray1<'_, u64>,
        first_ordinal: i64,
        mask: PyReadonlyArray1<'_, bool>,
        version: Option<PyReadonlyArray1<'_, i64>>,
        has_version: Option<PyReadonlyArray1<'_, bool>>,
        shard: i64,
        shards: i64,
    ) -> PyResult<usize> {
        let (key_hash, mask) = (key_hash.as_slice()?, mask.as_slice()?);
        let versions = columns(version.as_ref(), has_version.as_ref())?;
        self.with(py, |map| {
            let shard = Shard::new(shard, shards)?;
            match versions {
                None => map.put_max(key_hash, first_ordinal, mask, shard),
                Some(versions) => map.put_max_version(key_hash, first_ordinal, mask, versions, shard),
            }
        })
    }

    #[pyo3(signature = (key_hash, first_ordinal, mask, *, version, has_version, shard=0, shards=1))]
    #[expect(clippy::too_many_arguments, reason = "the stub has them")]
    fn update_existing(
        &mut self,
        py: Python<'_>,
        key_hash: PyReadonlyArray1<'_, u64>,
        first_ordinal: i64,
        mask: PyReadonlyArray1<'_, bool>,
        version: PyReadonlyArray1<'_, i64>,
        has_version: PyReadonlyArray1<'_, bool>,
        shard: i64,
        shards: i64,
    ) -> PyResult<Py<PyArray1<bool>>> {
        let (key_hash, mask) = (key_hash.as_slice()?, mask.as_slice()?);
        let versions = Versions { version: version.as_slice()?, has: has_version.as_slice()? };
        let found = self
            .with(py, |map| map.update_existing(key_hash, first_ordinal, mask, versions, Shard::new(shard, shards)?))?;
        Ok(read_only(py, found))
    }

    #[pyo3(signature = (key_hash, mask, *, shard=0, shards=1))]
    fn contains(
        &self,
        py: Python<'_>,
        key_hash: PyReadonlyArray1<'_, u64>,
        mask: PyReadonlyArray1<'_, bool>,
        shard: i64,
        shards: i64,
    ) -> PyResult<Py<PyArray1<bool>>> {
        let (key_hash, mask) = (key_hash.as_slice()?, mask.as_slice()?);
        let map = self.get()?;
        let found = run(py, || map.contains(key_hash, mask, Shard::new(shard, shards)?));
        self.require_whole()?;
        let found = found?;
        Ok(read_only(py, found))
    }

    #[pyo3(signature = (key_hash, mask, *, shard=0, shards=1))]
    fn ordinals(
        &self,
        py: Python<'_>,
        key_hash: PyReadonlyArray1<'_, u64>,
        mask: PyReadonlyArray1<'_, bool>,
        shard: i64,
        shards: i64,
    ) -> PyResult<Py<PyArray1<i64>>> {
        let (key_hash, mask) = (key_hash.as_slice()?, mask.as_slice()?);
        let map = self.get()?;
        let ordinals = run(py, || map.ordinals(key_hash, mask, Shard::new(shard, shards)?));
        self.require_whole()?;
        Ok(read_only(py, ordinals?))
    }

    fn winners(&self, py: Python<'_>, first_ordinal: i64, count: i64) -> PyResult<Py<PyArray1<u64>>> {
        let map = self.get()?;
        let bits = run(py, || map.winners(first_ordinal, count));
        self.require_whole()?;
        Ok(PyArray1::from_vec(py, bits?).unbind())
    }

    fn mark_winners(
        &self,
        py: Python<'_>,
        first_ordinal: i64,
        count: i64,
        mut bits: PyReadwriteArray1<'_, u64>,
    ) -> PyResult<()> {
        let (map, bits) = (self.get()?, bits.as_slice_mut()?);
        run(py, || map.mark_winners(first_ordinal, count, bits))
    }

    #[pyo3(signature = (rows, *, shard=0, shards=1))]
    fn put_rows(
        &mut self,
        py: Python<'_>,
        rows: PyReadonlyArray1<'_, u64>,
        shard: i64,
        shards: i64,
    ) -> PyResult<usize> {
        let rows = rows.as_slice()?;
        self.with(py, |map| map.put_rows(&Columns::of(rows, map.versioned())?, Shard::new(shard, shards)?))
    }

    #[pyo3(signature = (rows, *, shard=0, shards=1))]
    fn meet_rows(
        &mut self,
        py: Python<'_>,
        rows: PyReadonlyArray1<'_, u64>,
        shard: i64,
        shards: i64,
    ) -> PyResult<Py<PyArray1<bool>>> {
        let rows = rows.as_slice()?;
        let met =
            self.with(py, |map| map.meet_rows(&Columns::of(rows, map.versioned())?, Shard::new(shard, shards)?))?;
        Ok(read_only(py, met))
    }

    fn clear(&mut self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |map| {
            map.clear();
            Ok(())
        })
    }

    #[getter]
    fn capacity(&self) -> PyResult<usize> {
        self.get().map(offset_map::OffsetMap::capacity)
    }

    #[getter]
    fn memory_bytes(&self) -> PyResult<usize> {
        self.get().map(offset_map::OffsetMap::memory_bytes)
    }

    #[getter]
    fn identity_bits(&self) -> PyResult<f64> {
        self.get().map(offset_map::OffsetMap::identity_bits)
    }

    #[getter]
    fn versions(&self) -> PyResult<bool> {
        self.get().map(offset_map::OffsetMap::versioned)
    }

    fn __len__(&self) -> PyResult<usize> {
        self.get().map(offset_map::OffsetMap::len)
    }
}

#[pyclass(module = "cleanerd._kernel")]
pub struct KeyRows(key_rows::KeyRows);

#[pymethods]
impl KeyRows {
    #[new]
    #[pyo3(signature = (room, *, versions=false))]
    fn new(py: Python<'_>, room: i64, versions: bool) -> PyResult<Self> {
        key_rows::KeyRows::new(room, versions).map(Self).map_err(|error| exception(py, error))
    }

    #[pyo3(signature = (key_hash, first_ordinal, mask, *, version=None, has_version=None))]
    fn add(
        &mut self,
        py: Python<'_>,
        key_hash: PyReadonlyArray1<'_, u64>,
        first_ordinal: i64,
        mask: PyReadonlyArray1<'_, bool>,
        version: Option<PyReadonlyArray1<'_, i64>>,
        has_version: Option<PyReadonlyArray1<'_, bool>>,
    ) -> PyResult<usize> {
        let (key_hash, mask) = (key_hash.as_slice()?, mask.as_slice()?);
        let versions = columns(version.as_ref(), has_version.as_ref())?;
        let rows = &mut self.0;
        run(py, || rows.add(key_hash, first_ordinal, mask, versions))
    }

    #[expect(clippy::type_complexity, reason = "two arrays")]
    fn deal(&mut self, py: Python<'_>, shards: i64) -> PyResult<(Py<PyArray1<u64>>, Py<PyArray1<u64>>)> {
        let rows = &mut self.0;
        let (dealt, counts) = run(py, || rows.deal(shards))?;
        Ok((PyArray1::from_vec(py, dealt).unbind(), PyArray1::from_vec(py, counts).unbind()))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

/// The columns of versions, if there are any.
fn columns<'a>(
    version: Option<&'a PyReadonlyArray1<'_, i64>>,
    has_version: Option<&'a PyReadonlyArray1<'_, bool>>,
) -> PyResult<Option<Versions<'a>>> {
    match (version, has_version) {
        (Some(version), Some(has)) => Ok(Some(Versions { version: version.as_slice()?, has: has.as_slice()? })),
        (None, None) => Ok(None),
        _ => Err(PyValueError::new_err("version and has_version go together")),
    }
}

#[pyclass(module = "cleanerd._kernel")]
pub struct IndexBuilder(segment_index::IndexBuilder);

#[pymethods]
impl IndexBuilder {
    #[new]
    #[pyo3(signature = (base_offset, interval_bytes, *, max_offset_entries, max_time_entries))]
    fn new(
        py: Python<'_>,
        base_offset: i64,
        interval_bytes: i64,
        max_offset_entries: i64,
        max_time_entries: i64,
    ) -> PyResult<Self> {
        segment_index::IndexBuilder::new(base_offset, interval_bytes, max_offset_entries, max_time_entries)
            .map(Self)
            .map_err(|error| exception(py, error))
    }

    fn append(&mut self, py: Python<'_>, written: Bound<'_, Written>) -> PyResult<()> {
        let rows = &written.get().rows;
        let builder = &mut self.0;
        run(py, || builder.append(rows))
    }

    fn finish(&self, py: Python<'_>) -> (Py<PyBytes>, Py<PyBytes>) {
        let (offset_index, time_index) = self.0.finish();
        (PyBytes::new(py, &offset_index).unbind(), PyBytes::new(py, &time_index).unbind())
    }

    #[getter]
    fn position(&self) -> u64 {
        self.0.position()
    }

    #[getter]
    fn max_timestamp(&self) -> i64 {
        self.0.max_timestamp()
    }
}
