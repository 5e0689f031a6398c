//! Results as objects whose columns are read-only arrays over the kernel's vectors.

use cleanerd_kernel::{batch_table, content, decode, rewrite};
use numpy::{Element, PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PySlice;

/// Gives `column` to NumPy without copying it.
pub fn read_only<T: Element>(py: Python<'_>, column: Vec<T>) -> Py<PyArray1<T>> {
    let array = PyArray1::from_vec(py, column);
    array.readwrite().make_nonwriteable();
    array.unbind()
}

/// Offsets, bytes and nulls of a column.
type Column = (Py<PyArray1<i32>>, Py<PyArray1<u8>>, Py<PyArray1<bool>>);

fn column(py: Python<'_>, fields: content::Fields) -> Column {
    (read_only(py, fields.offsets), read_only(py, fields.data), read_only(py, fields.null))
}

/// A class with read-only columns, one getter per column.
macro_rules! columns {
    ($class:ident { $($column:ident: $element:ty),* $(,)? } plain { $($field:ident),* $(,)? }) => {
        #[pyclass(frozen, module = "cleanerd._kernel")]
        pub struct $class {
            $($column: Py<PyArray1<$element>>,)*
            $($field: usize,)*
            rows: usize,
        }

        #[pymethods]
        impl $class {
            $(#[getter]
            fn $column(&self, py: Python<'_>) -> Py<PyArray1<$element>> {
                self.$column.clone_ref(py)
            })*

            $(#[getter]
            fn $field(&self) -> usize {
                self.$field
            })*

            fn __len__(&self) -> usize {
                self.rows
            }
        }
    };
}

columns!(Batches {
    position: u32, size: u32, base_offset: i64, last_offset: i64, base_timestamp: i64, max_timestamp: i64,
    producer_id: i64, producer_epoch: i16, base_sequence: i32, leader_epoch: i32, attributes: i16, magic: u8,
    crc: u32, control_type: i16, first_record: u32,
    mixed_magic: u32,
    unordered: u32,
} plain { consumed, needed });

columns!(Records { offset: i64, timestamp: i64, key_hash: u64, flags: u8, version: i64 } plain {});

columns!(Digests { digest: u64, attributes: u8, size: u32 } plain { consumed, needed });

columns!(Contents {
    key_offsets: i32, key_data: u8, key_null: bool,
    value_offsets: i32, value_data: u8, value_null: bool,
    first_header: i32,
    header_name_offsets: i32, header_name_data: u8,
    header_value_offsets: i32, header_value_data: u8, header_value_null: bool,
} plain { consumed, needed });

impl Digests {
    pub fn new(py: Python<'_>, table: content::Digests) -> Self {
        Self {
            rows: table.size.len(),
            digest: read_only(py, table.digest),
            attributes: read_only(py, table.attributes),
            size: read_only(py, table.size),
            consumed: table.consumed,
            needed: table.needed,
        }
    }
}

impl Contents {
    pub fn new(py: Python<'_>, table: content::Contents) -> Self {
        let rows = table.key.null.len();
        let (key_offsets, key_data, key_null) = column(py, table.key);
        let (value_offsets, value_data, value_null) = column(py, table.value);
        let (header_name_offsets, header_name_data, _) = column(py, table.header_name);
        let (header_value_offsets, header_value_data, header_value_null) = column(py, table.header_value);
        Self {
            key_offsets,
            key_data,
            key_null,
            value_offsets,
            value_data,
            value_null,
            first_header: read_only(py, table.first_header),
            header_name_offsets,
            header_name_data,
            header_value_offsets,
            header_value_data,
            header_value_null,
            consumed: table.consumed,
            needed: table.needed,
            rows,
        }
    }
}

impl Batches {
    pub fn new(py: Python<'_>, table: batch_table::Batches) -> Self {
        Self {
            rows: table.len(),
            position: read_only(py, table.position),
            size: read_only(py, table.size),
            base_offset: read_only(py, table.base_offset),
            last_offset: read_only(py, table.last_offset),
            base_timestamp: read_only(py, table.base_timestamp),
            max_timestamp: read_only(py, table.max_timestamp),
            producer_id: read_only(py, table.producer_id),
            producer_epoch: read_only(py, table.producer_epoch),
            base_sequence: read_only(py, table.base_sequence),
            leader_epoch: read_only(py, table.leader_epoch),
            attributes: read_only(py, table.attributes),
            magic: read_only(py, table.magic),
            crc: read_only(py, table.crc),
            control_type: read_only(py, table.control_type),
            first_record: read_only(py, table.first_record),
            mixed_magic: read_only(py, table.mixed_magic),
            unordered: read_only(py, table.unordered),
            consumed: table.consumed,
            needed: table.needed,
        }
    }
}

impl Records {
    fn new(py: Python<'_>, table: decode::Records) -> Self {
        Self {
            rows: table.len(),
            offset: read_only(py, table.offset),
            timestamp: read_only(py, table.timestamp),
            key_hash: read_only(py, table.key_hash),
            flags: read_only(py, table.flags),
            version: read_only(py, table.version),
        }
    }
}

#[pyclass(frozen, module = "cleanerd._kernel")]
pub struct Chunk {
    batches: Py<Batches>,
    records: Py<Records>,
    consumed: usize,
    needed: usize,
}

impl Chunk {
    pub fn new(py: Python<'_>, chunk: decode::Chunk) -> PyResult<Self> {
        let (consumed, needed) = (chunk.batches.consumed, chunk.batches.needed);
        Ok(Self {
            batches: Py::new(py, Batches::new(py, chunk.batches))?,
            records: Py::new(py, Records::new(py, chunk.records))?,
            consumed,
            needed,
        })
    }
}

#[pymethods]
impl Chunk {
    #[getter]
    fn batches(&self, py: Python<'_>) -> Py<Batches> {
        self.batches.clone_ref(py)
    }

    #[getter]
    fn records(&self, py: Python<'_>) -> Py<Records> {
        self.records.clone_ref(py)
    }

    #[getter]
    fn consumed(&self) -> usize {
        self.consumed
    }

    #[getter]
    fn needed(&self) -> usize {
        self.needed
    }
}

/// The columns that the index builder needs stay in Rust. Their getters copy them, because they are short.
#[pyclass(frozen, module = "cleanerd._kernel")]
pub struct Written {
    data: Py<PyArray1<u8>>,
    with_lead: Py<PyArray1<u8>>,
    pub rows: rewrite::Written,
}

impl Written {
    pub fn new(py: Python<'_>, mut written: rewrite::Written) -> PyResult<Self> {
        let all = read_only(py, std::mem::take(&mut written.data));
        let (data, with_lead) = (from(py, &all, written.output_start)?, from(py, &all, written.lead_start)?);
        Ok(Self { data, with_lead, rows: written })
    }
}

/// The array without its first `start` elements, not copied.
fn from(py: Python<'_>, array: &Py<PyArray1<u8>>, start: usize) -> PyResult<Py<PyArray1<u8>>> {
    if start == 0 {
        return Ok(array.clone_ref(py));
    }
    let rest = array.bind(py).get_item(PySlice::new(py, start as isize, isize::MAX, 1))?;
    Ok(rest.cast_into::<PyArray1<u8>>()?.unbind())
}

#[pymethods]
impl Written {
    #[getter]
    fn data(&self, py: Python<'_>) -> Py<PyArray1<u8>> {
        self.data.clone_ref(py)
    }

    #[getter]
    fn with_lead(&self, py: Python<'_>) -> Py<PyArray1<u8>> {
        self.with_lead.clone_ref(py)
    }

    #[getter]
    fn position(&self, py: Python<'_>) -> Py<PyArray1<u32>> {
        read_only(py, self.rows.position.clone())
    }

    #[getter]
    fn size(&self, py: Python<'_>) -> Py<PyArray1<u32>> {
        read_only(py, self.rows.size.clone())
    }

    #[getter]
    fn source_size(&self, py: Python<'_>) -> Py<PyArray1<u32>> {
        read_only(py, self.rows.source_size.clone())
    }

    #[getter]
    fn last_offset(&self, py: Python<'_>) -> Py<PyArray1<i64>> {
        read_only(py, self.rows.last_offset.clone())
    }

    #[getter]
    fn max_timestamp(&self, py: Python<'_>) -> Py<PyArray1<i64>> {
        read_only(py, self.rows.max_timestamp.clone())
    }

    #[getter]
    fn record_count(&self, py: Python<'_>) -> Py<PyArray1<u32>> {
        read_only(py, self.rows.record_count.clone())
    }

    #[getter]
    fn consumed(&self) -> usize {
        self.rows.consumed
    }

    #[getter]
    fn needed(&self) -> usize {
        self.rows.needed
    }

    #[getter]
    fn batches_read(&self) -> usize {
        self.rows.batches_read
    }

    #[getter]
    fn records_read(&self) -> usize {
        self.rows.records_read
    }

    #[getter]
    fn without_horizon(&self) -> usize {
        self.rows.without_horizon
    }

    fn __len__(&self) -> usize {
        self.rows.size.len()
    }
}
