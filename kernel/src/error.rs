//! The kernel's errors.

use std::fmt;

/// Bytes that violate the format, or that need too much memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corrupt {
    pub reason: String,
    /// File position of the bad batch, -1 for a bare payload.
    pub position: i64,
    /// Base offset of the bad batch, -1 if unknown.
    pub base_offset: i64,
    /// Index of the bad record in its batch, -1 if the batch itself is bad.
    pub record: i64,
    /// The batch violates no rule, but needs more memory than allowed.
    pub too_large: bool,
}

#[derive(Debug)]
pub enum Error {
    Corrupt(Corrupt),
    /// Wrong arguments.
    Invalid(String),
    /// The system refused memory.
    Memory(std::io::Error),
    /// A panic in the kernel.
    Bug(String),
}

/// Why a batch or a record is bad, without its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    pub text: String,
    pub record: i64,
    pub too_large: bool,
}

impl Reason {
    #[cold]
    pub fn batch(text: impl Into<String>) -> Self {
        Self { text: text.into(), record: -1, too_large: false }
    }

    /// The batch needs more memory than allowed (U-35).
    #[cold]
    pub fn too_large(text: impl Into<String>) -> Self {
        Self { text: text.into(), record: -1, too_large: true }
    }

    #[cold]
    pub fn record(text: impl Into<String>, record: usize) -> Self {
        Self { text: text.into(), record: i64::try_from(record).unwrap_or(i64::MAX), too_large: false }
    }

    #[cold]
    pub fn at(self, position: u64, base_offset: i64) -> Error {
        Error::Corrupt(Corrupt {
            reason: self.text,
            position: i64::try_from(position).unwrap_or(i64::MAX),
            base_offset,
            record: self.record,
            too_large: self.too_large,
        })
    }

    /// For bytes without a file.
    #[cold]
    pub fn nowhere(self) -> Error {
        let Self { text: reason, record, too_large } = self;
        Error::Corrupt(Corrupt { reason, position: -1, base_offset: -1, record, too_large })
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        if self.position >= 0 {
            write!(f, " (batch at byte {}, base offset {}", self.position, self.base_offset)?;
            if self.record >= 0 {
                write!(f, ", record {}", self.record)?;
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt(corrupt) => corrupt.fmt(f),
            Self::Invalid(text) | Self::Bug(text) => f.write_str(text),
            Self::Memory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

pub fn invalid<T>(text: impl Into<String>) -> Result<T, Error> {
    Err(Error::Invalid(text.into()))
}

/// Runs `body` and turns a panic into [`Error::Bug`]. In Python, `except Exception` would not catch a panic.
pub fn guard<T>(body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "panic without a message".to_owned());
            Err(Error::Bug(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_bug_with_its_message() {
        let result: Result<(), _> = guard(|| panic!("no such {}", "thing"));
        assert!(matches!(result, Err(Error::Bug(text)) if text == "no such thing"));
    }

    #[test]
    fn an_error_says_where() {
        let error = Reason::record("bad key", 3).at(100, 7);
        assert_eq!(error.to_string(), "bad key (batch at byte 100, base offset 7, record 3)");
        assert_eq!(Reason::batch("damaged").nowhere().to_string(), "damaged");
    }
}
