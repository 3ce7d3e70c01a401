//! Says what a process was doing when a signal ends it, such as SIGSEGV after a kernel wrote out of bounds.

#[cfg(unix)]
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

/// How many things at a time are named; further ones are not.
const SLOTS: usize = 64;

/// What is being done: leaked texts, or null.
static TEXTS: [AtomicPtr<&'static str>; SLOTS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; SLOTS];

/// Work with a name, until it is dropped.
#[derive(Debug)]
pub struct Doing(Option<usize>);

impl Drop for Doing {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            TEXTS[slot].store(std::ptr::null_mut(), Ordering::Release);
        }
    }
}

/// If a signal ends the process before the result is dropped, standard error says "killed by SIGSEGV while running: "
/// and `what`. The text is never freed, since a signal may come at any time: name few things, such as tests.
pub fn doing(what: &str) -> Doing {
    #[cfg(unix)]
    {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(signals::install);
    }
    let text: *mut &'static str = Box::leak(Box::new(&*String::leak(what.to_owned())));
    for (slot, kept) in TEXTS.iter().enumerate() {
        if kept.compare_exchange(std::ptr::null_mut(), text, Ordering::Release, Ordering::Relaxed).is_ok() {
            return Doing(Some(slot));
        }
    }
    Doing(None)
}

#[cfg(unix)]
mod signals {
    use super::TEXTS;
    use std::cell::UnsafeCell;
    use std::mem::MaybeUninit;
    use std::sync::atomic::Ordering;

    /// The signals by which wrong memory accesses and aborts end a process.
    const SIGNALS: [(libc::c_int, &str); 5] = [
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGABRT, "SIGABRT"),
    ];

    /// What the process did at each signal before; the standard library reports overflows of the stack so.
    struct Before(UnsafeCell<[MaybeUninit<libc::sigaction>; SIGNALS.len()]>);
    // SAFETY: it is written once, before the handler that reads it is installed.
    unsafe impl Sync for Before {}
    static BEFORE: Before = Before(UnsafeCell::new([const { MaybeUninit::uninit() }; SIGNALS.len()]));

    pub fn install() {
        for (i, (signal, _)) in SIGNALS.iter().enumerate() {
            // SAFETY: a zeroed `sigaction` is one without flags and with an empty mask. The handler only calls
            // functions that are safe in one. `call_once` makes this the only writer, and the handler of a signal reads
            // its own element, which is written before the handler is installed.
            unsafe {
                let before = (*BEFORE.0.get())[i].as_mut_ptr();
                if libc::sigaction(*signal, std::ptr::null(), before) != 0 {
                    continue;
                }
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handle as *const () as usize;
                // On the thread's own stack for signals, which the standard library makes: the usual one may be used
                // up.
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigaction(*signal, &action, std::ptr::null_mut());
            }
        }
    }

    extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        let Some(i) = SIGNALS.iter().position(|(known, _)| *known == signal) else { return };
        say(b"killed by ");
        say(SIGNALS[i].1.as_bytes());
        say(b" while running:");
        for text in &TEXTS {
            // SAFETY: the pointer is null, or one to a text that is never freed.
            if let Some(text) = unsafe { text.load(Ordering::Acquire).as_ref() } {
                say(b"\n  ");
                say(text.as_bytes());
            }
        }
        say(b"\n");
        // SAFETY: `install` wrote the element before this handler could be called. The instruction that faulted runs
        // again and meets the handler of before, and so does an abort, which raises its signal once more.
        unsafe { libc::sigaction(signal, (*BEFORE.0.get())[i].as_ptr(), std::ptr::null_mut()) };
        // SAFETY: the system gives the handler what is known of the signal. One that another process sent does not come
        // again by itself.
        if unsafe { (*info).si_code } <= 0 {
            // SAFETY: `raise` may be called in a handler; the signal is delivered when the handler returns.
            unsafe { libc::raise(signal) };
        }
    }

    fn say(bytes: &[u8]) {
        // SAFETY: the bytes are there; `write` may be called in a handler.
        unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
    }
}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use super::*;
    use std::process::Command;

    const CHILD: &str = "FULGURITE_TEST_CRASH";

    #[test]
    fn a_process_that_dies_says_what_it_did() {
        if let Some(how) = std::env::var_os(CHILD) {
            let _first = doing("left before");
            drop(_first);
            let _one = doing("softmax::consistency");
            let _other = doing("exp::bounds");
            if how == "abort" {
                std::process::abort();
            }
            // SAFETY: none is claimed: the write at the null page is what the test is of.
            unsafe { std::ptr::write_volatile(16 as *mut u8, 1) };
            return;
        }
        for (how, signal) in [("write", "SIGSEGV"), ("abort", "SIGABRT")] {
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "crash::tests::a_process_that_dies_says_what_it_did", "--nocapture"])
                .env(CHILD, how)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{how}: {said}");
            let expected = format!("killed by {signal} while running:\n  softmax::consistency\n  exp::bounds\n");
            assert!(said.contains(&expected), "{how}: {said}");
        }
    }
}
