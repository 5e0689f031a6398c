//! Where a map lies that has memory of its own.

use memmap2::{Advice, MmapMut};

/// Memory of this process alone, all zeros.
pub fn anonymous(bytes: usize, huge_pages: bool) -> std::io::Result<MmapMut> {
    let memory = MmapMut::map_anon(bytes)?;
    if huge_pages {
        // Advice only: a kernel without huge pages refuses it, and the map works all the same.
        let _ = memory.advise(Advice::HugePage);
    }
    Ok(memory)
}
