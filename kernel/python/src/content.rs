//! `content_digest` and `read_contents`: the content of records as consumers see it.

use cleanerd_kernel::content::{self, Reading};
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::run;
use crate::size;
use crate::tables::{Contents, Digests};

fn reading(verify_crc: bool, max_unpacked: i64) -> PyResult<Reading> {
    Ok(Reading { verify_crc, max_unpacked: size("max_unpacked", max_unpacked)? })
}

#[pyfunction]
#[pyo3(signature = (data, position, *, hash_key, verify_crc=true, max_unpacked=1073741824))]
pub fn content_digest(
    py: Python<'_>,
    data: PyReadonlyArray1<'_, u8>,
    position: i64,
    hash_key: Bound<'_, PyBytes>,
    verify_crc: bool,
    max_unpacked: i64,
) -> PyResult<Digests> {
    let key =
        <[u8; 16]>::try_from(hash_key.as_bytes()).map_err(|_| PyValueError::new_err("hash_key must have 16 bytes"))?;
    let reading = reading(verify_crc, max_unpacked)?;
    let data = data.as_slice()?;
    Ok(Digests::new(py, run(py, || content::content_digest(data, position, &key, reading))?))
}

#[pyfunction]
#[pyo3(signature = (data, position, keep, *, verify_crc=true, max_unpacked=1073741824))]
pub fn read_contents(
    py: Python<'_>,
    data: PyReadonlyArray1<'_, u8>,
    position: i64,
    keep: PyReadonlyArray1<'_, bool>,
    verify_crc: bool,
    max_unpacked: i64,
) -> PyResult<Contents> {
    let reading = reading(verify_crc, max_unpacked)?;
    let (data, keep) = (data.as_slice()?, keep.as_slice()?);
    Ok(Contents::new(py, run(py, || content::read_contents(data, position, keep, reading))?))
}
