//! `OffsetMap`, `KeyRows` and `IndexBuilder`: the objects with a state.

use cleanerd_kernel::key_rows;
use cleanerd_kernel::offset_map::Columns;
use cleanerd_kernel::offset_map::{self, Shard, Versions};
use cleanerd_kernel::segment_index;
use numpy::{PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{exception, run};
use crate::tables::{Written, read_only};

#[pyclass(module = "cleanerd._kernel")]
pub struct OffsetMap(offset_map::OffsetMap);

#[pymethods]
impl OffsetMap {
    #[new]
    #[pyo3(signature = (memory_bytes, *, load=0.85, huge_pages=true, versions=false))]
    fn new(py: Python<'_>, memory_bytes: i64, load: f64, huge_pages: bool, versions: bool) -> PyResult<Self> {
        let new = if versions { offset_map::OffsetMap::with_versions } else { offset_map::OffsetMap::new };
        run(py, || new(memory_bytes, load, huge_pages)).map(Self)
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
        let map = &mut self.0;
        run(py, || {
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
        let map = &mut self.0;
        let found =
            run(py, || map.update_existing(key_hash, first_ordinal, mask, versions, Shard::new(shard, shards)?))?;
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
        let map = &self.0;
        let found = run(py, || map.contains(key_hash, mask, Shard::new(shard, shards)?))?;
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
        let map = &self.0;
        let ordinals = run(py, || map.ordinals(key_hash, mask, Shard::new(shard, shards)?))?;
        Ok(read_only(py, ordinals))
    }

    fn winners(&self, py: Python<'_>, first_ordinal: i64, count: i64) -> PyResult<Py<PyArray1<u64>>> {
        let map = &self.0;
        let bits = run(py, || map.winners(first_ordinal, count))?;
        Ok(PyArray1::from_vec(py, bits).unbind())
    }

    fn mark_winners(
        &self,
        py: Python<'_>,
        first_ordinal: i64,
        count: i64,
        mut bits: PyReadwriteArray1<'_, u64>,
    ) -> PyResult<()> {
        let (map, bits) = (&self.0, bits.as_slice_mut()?);
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
        let map = &mut self.0;
        run(py, || map.put_rows(&Columns::of(rows, map.versioned())?, Shard::new(shard, shards)?))
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
        let map = &mut self.0;
        let met = run(py, || map.meet_rows(&Columns::of(rows, map.versioned())?, Shard::new(shard, shards)?))?;
        Ok(read_only(py, met))
    }

    fn clear(&mut self, py: Python<'_>) -> PyResult<()> {
        let map = &mut self.0;
        run(py, || {
            map.clear();
            Ok(())
        })
    }

    #[getter]
    fn capacity(&self) -> usize {
        self.0.capacity()
    }

    #[getter]
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    #[getter]
    fn identity_bits(&self) -> f64 {
        self.0.identity_bits()
    }

    #[getter]
    fn versions(&self) -> bool {
        self.0.versioned()
    }

    fn __len__(&self) -> usize {
        self.0.len()
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

/// The columns of versions, if they are given.
fn columns<'a>(
    version: Option<&'a PyReadonlyArray1<'_, i64>>,
    has_version: Option<&'a PyReadonlyArray1<'_, bool>>,
) -> PyResult<Option<Versions<'a>>> {
    match (version, has_version) {
        (Some(version), Some(has)) => Ok(Some(Versions { version: version.as_slice()?, has: has.as_slice()? })),
        (None, None) => Ok(None),
        _ => Err(PyValueError::new_err("version and has_version must be given together")),
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
