//! A file as memory (U-19): the one module with `unsafe`.
//!
//! A page of a file may fail to come (the disk fails, the file system had no room for it after all, somebody cut the file), and then
//! the system ends the process with SIGBUS. Here it does not: the handler puts an empty page in its place, so that the instruction goes
//! on, and notes that the memory is no longer what was written to it. Who called asks for that after every call ([`Range::whole`]).
//!
//! The handler only reads atomics and calls `mmap`; a SIGBUS from anywhere else goes where it went before.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memmap2::{Advice, MmapMut, MmapOptions};

/// As many threads as may clean at once; one more than that is refused and does without.
const RANGES: usize = 1024;

/// Where the mappings are, for the handler: `start` is 0 where there is none.
struct Slot {
    taken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    lost: AtomicBool,
}

static SLOTS: [Slot; RANGES] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; RANGES];

static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// What was done at SIGBUS before us; written under `INSTALLING`, and only while our handler is not the one in force.
struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: see `install`: no write overlaps another write or a read by the handler.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::zeroed()));
static INSTALLING: Mutex<()> = Mutex::new(());

/// A SIGBUS that is not ours went to who was there before: if it comes back, he passes it on to us, and it goes to the system.
static PASSED_ON: AtomicBool = AtomicBool::new(false);

/// A mapping that the handler knows; given back when it is dropped, which must be after the memory.
pub struct Range(&'static Slot);

impl Range {
    fn of(memory: &MmapMut) -> io::Result<Self> {
        install()?;
        let free = SLOTS.iter().find(|slot| !slot.taken.swap(true, Ordering::AcqRel));
        let slot = free.ok_or_else(|| io::Error::other(format!("{RANGES} files are mapped already")))?;
        let start = memory.as_ptr() as usize;
        slot.lost.store(false, Ordering::Release);
        slot.end.store(start + memory.len(), Ordering::Release);
        slot.start.store(start, Ordering::Release);
        Ok(Self(slot))
    }

    /// Set as soon as a page of it is missing. It belongs to another mapping once this one is given back.
    pub fn lost(&self) -> &'static AtomicBool {
        &self.0.lost
    }

    /// Does the memory hold all that was written to it?
    pub fn whole(&self) -> bool {
        !self.0.lost.load(Ordering::Acquire)
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        self.0.start.store(0, Ordering::Release);
        self.0.end.store(0, Ordering::Release);
        self.0.taken.store(false, Ordering::Release);
    }
}

/// The first `bytes` of the file `fd`, shared with it, so that the system may take the pages away and read them again.
///
/// The file must have no name and no other user.
pub fn map(fd: i32, bytes: usize) -> io::Result<(MmapMut, Range)> {
    // SAFETY: the memory is only read and written through the value that is returned. The file has no name, so nobody else opens it; who
    // does it all the same through /proc can change words that are any bit pattern, and pages that he cuts off are caught by the handler.
    let memory = unsafe { MmapOptions::new().len(bytes).map_mut(fd)? };
    // The next key lies anywhere: to read ahead would throw out pages that are needed. Advice only.
    let _ = memory.advise(Advice::Random);
    let range = Range::of(&memory)?;
    Ok((memory, range))
}

/// Our handler is in force when this returns, also where somebody (`faulthandler`) put his own there since.
fn install() -> io::Result<()> {
    let _one = INSTALLING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // SAFETY: plain calls with structures of their own. BEFORE is written while our handler is not in force, and only by who holds the lock.
    unsafe {
        PAGE_BYTES.store(usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).unwrap_or(4096), Ordering::Release);
        let mut now = MaybeUninit::<libc::sigaction>::zeroed();
        if libc::sigaction(libc::SIGBUS, ptr::null(), now.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let ours = on_bus as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        if now.assume_init_ref().sa_sigaction == ours {
            return Ok(());
        }
        (*BEFORE.0.get()).write(now.assume_init());
        PASSED_ON.store(false, Ordering::Release);
        let mut handler = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        handler.sa_sigaction = ours;
        handler.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut handler.sa_mask);
        if libc::sigaction(libc::SIGBUS, &handler, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn on_bus(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the system gives a valid `info` for SA_SIGINFO. A page inside of one of our mappings is replaced, nothing else.
    unsafe {
        let from_a_fault = (*info).si_code > 0;
        let at = (*info).si_addr() as usize;
        if from_a_fault && let Some(slot) = SLOTS.iter().find(|slot| slot.holds(at)) {
            let page_bytes = PAGE_BYTES.load(Ordering::Acquire);
            let page = (at & !(page_bytes - 1)) as *mut libc::c_void;
            let errno = *libc::__errno_location();
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let got = libc::mmap(page, page_bytes, access, how, -1, 0);
            *libc::__errno_location() = errno;
            if got != libc::MAP_FAILED {
                slot.lost.store(true, Ordering::Release);
                return;
            }
        }
        // Not ours: as before. The instruction faults again and meets that; a signal that was sent is sent again.
        if PASSED_ON.swap(true, Ordering::AcqRel) {
            libc::signal(signal, libc::SIG_DFL);
        } else {
            libc::sigaction(signal, (*BEFORE.0.get()).as_ptr(), ptr::null_mut());
        }
        if !from_a_fault {
            libc::raise(signal);
        }
    }
}

impl Slot {
    fn holds(&self, at: usize) -> bool {
        let start = self.start.load(Ordering::Acquire);
        start != 0 && start <= at && at < self.end.load(Ordering::Acquire)
    }
}
