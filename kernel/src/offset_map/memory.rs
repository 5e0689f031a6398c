//! Where a map lies.

use std::sync::atomic::{AtomicBool, Ordering};

use memmap2::{Advice, MmapMut};

/// Memory, all zeros, that nobody else writes to.
pub struct Memory {
    pub bytes: MmapMut,
    /// Some of it is not what was written there any more. Nothing that comes of it counts, so no call goes on with it for long: each page
    /// that is touched now may be put in place one by one.
    pub lost: &'static AtomicBool,
}

impl Memory {
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Memory of this process alone.
pub fn anonymous(bytes: usize, huge_pages: bool) -> std::io::Result<Memory> {
    static NEVER: AtomicBool = AtomicBool::new(false);
    let bytes = MmapMut::map_anon(bytes)?;
    if huge_pages {
        // Advice only: a kernel without huge pages refuses it, and the map works all the same.
        let _ = bytes.advise(Advice::HugePage);
    }
    Ok(Memory { bytes, lost: &NEVER })
}
