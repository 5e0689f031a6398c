//! The kernel's errors as Python exceptions.

use cleanerd_kernel::{Corrupt, Error, guard};
use pyo3::exceptions::{PyException, PyOSError, PyValueError};
use pyo3::prelude::*;

pyo3::create_exception!(
    cleanerd._kernel,
    CorruptLogError,
    PyException,
    "Bytes that violate the format. Never raised for wrong arguments."
);
pyo3::create_exception!(
    cleanerd._kernel,
    BatchTooLargeError,
    CorruptLogError,
    "A batch that needs more memory than allowed; it may be valid otherwise."
);
pyo3::create_exception!(
    cleanerd._kernel,
    KernelBugError,
    PyException,
    "A panic inside the kernel. Always a bug of cleanerd."
);
pyo3::create_exception!(
    cleanerd._kernel,
    InvalidCallError,
    PyValueError,
    "Arguments that do not fit together: keep bits or actions of another segment, arrays of different lengths."
);
/// Runs `body` without the GIL; errors and panics become exceptions.
pub fn run<T: Send>(py: Python<'_>, body: impl FnOnce() -> Result<T, Error> + Send) -> PyResult<T> {
    py.detach(|| guard(body)).map_err(|error| exception(py, error))
}

pub fn exception(py: Python<'_>, error: Error) -> PyErr {
    match error {
        Error::Corrupt(corrupt) => corrupt_log(py, &corrupt).unwrap_or_else(|error| error),
        Error::Invalid(text) => InvalidCallError::new_err(text),
        Error::Memory(error) => PyOSError::new_err((error.raw_os_error(), error.to_string())),
        Error::Bug(text) => KernelBugError::new_err(text),
    }
}

fn corrupt_log(py: Python<'_>, corrupt: &Corrupt) -> PyResult<PyErr> {
    let text = corrupt.to_string();
    let error = if corrupt.too_large { BatchTooLargeError::new_err(text) } else { CorruptLogError::new_err(text) };
    let value = error.value(py);
    value.setattr("reason", &corrupt.reason)?;
    value.setattr("position", corrupt.position)?;
    value.setattr("base_offset", corrupt.base_offset)?;
    value.setattr("record", corrupt.record)?;
    Ok(error)
}
