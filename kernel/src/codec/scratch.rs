//! A growing output buffer with a hard limit, reused for all batches.

use crate::error::Reason;

const FIRST_ROOM: usize = 16 << 10;

/// Bytes `0..len` are filled. The rest of `bytes` is old output, which is kept to avoid zeroing it again.
#[derive(Default)]
pub struct Scratch {
    bytes: Vec<u8>,
    len: usize,
    limit: usize,
}

impl Scratch {
    pub fn start(&mut self, limit: usize) {
        self.len = 0;
        self.limit = limit;
    }

    pub fn filled(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Bytes up to the limit.
    pub fn left(&self) -> usize {
        self.limit - self.len
    }

    /// Room for exactly `wanted` bytes.
    pub fn exactly(&mut self, wanted: usize) -> Result<&mut [u8], Reason> {
        if wanted > self.left() {
            return Err(self.too_much());
        }
        let end = self.len + wanted;
        if self.bytes.len() < end {
            self.grow_to(end)?;
        }
        Ok(self.bytes.get_mut(self.len..end).unwrap_or_default())
    }

    /// Room for at least one byte, at best `hint`. It may include one byte beyond the limit, which shows that a stream goes on
    /// there.
    pub fn some(&mut self, hint: usize) -> Result<&mut [u8], Reason> {
        let most = self.limit.saturating_add(1);
        if self.bytes.len() <= self.len {
            let wanted = self.len.saturating_add(hint.max(self.len).max(FIRST_ROOM)).min(most);
            self.grow_to(wanted)?;
        }
        let end = self.bytes.len().min(most);
        Ok(self.bytes.get_mut(self.len..end).unwrap_or_default())
    }

    /// A failed allocation is an error here; Rust's default ends the process.
    #[cold]
    #[inline(never)]
    fn grow_to(&mut self, end: usize) -> Result<(), Reason> {
        let more = end.saturating_sub(self.bytes.len());
        if more > 0 {
            self.bytes.try_reserve(more).map_err(|_| no_memory(end))?;
            self.bytes.resize(end, 0);
        }
        Ok(())
    }

    /// Counts `count` more bytes as filled.
    pub fn advance(&mut self, count: usize) -> Result<(), Reason> {
        if count > self.left() {
            return Err(self.too_much());
        }
        self.len += count;
        Ok(())
    }

    pub fn push(&mut self, data: &[u8]) -> Result<(), Reason> {
        self.exactly(data.len())?.copy_from_slice(data);
        self.advance(data.len())
    }

    pub fn shrink_to(&mut self, most: usize) {
        if self.bytes.capacity() > most {
            *self = Self::default();
        }
    }

    #[cold]
    pub fn too_much(&self) -> Reason {
        Reason::too_large(format!("decompresses to more than {} bytes", self.limit))
    }
}

#[cold]
fn no_memory(bytes: usize) -> Reason {
    Reason::too_large(format!("decompresses to {bytes} bytes or more, for which the system has no memory"))
}
