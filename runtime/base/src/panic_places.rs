//! Where panics began, which what `catch_unwind` gives does not say.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::{ThreadId, current, panicking};

/// The most that are kept: those that nobody caught here stay in the list.
const KEPT: usize = 64;

struct Seen {
    thread: ThreadId,
    text: String,
    place: String,
}

static SEEN: Mutex<VecDeque<Seen>> = Mutex::new(VecDeque::new());

/// Notes the places of all panics from now on. What the process does at a panic (it prints a message, say) it goes on
/// doing.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    // The hook cannot be changed while the thread unwinds.
    if !panicking() {
        WATCHED.call_once(|| {
            let before = take_hook();
            set_hook(Box::new(move |info| {
                note(info);
                before(info);
            }));
        });
    }
}

fn note(info: &PanicHookInfo<'_>) {
    let Some(location) = info.location() else { return };
    let seen = Seen { thread: current().id(), text: text(info.payload()).to_owned(), place: location.to_string() };
    let mut all = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() == KEPT {
        all.pop_front();
    }
    all.push_back(seen);
}

/// The place of the last panic that said `text`: on this thread, or on another, whose work unwound on this one.
pub(crate) fn take(text: &str) -> Option<String> {
    let mut all = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let own = all.iter().rposition(|seen| seen.text == text && seen.thread == current().id());
    let at = own.or_else(|| all.iter().rposition(|seen| seen.text == text))?;
    all.remove(at).map(|seen| seen.place)
}

/// The text of a panic.
pub(crate) fn text<'a>(panic: &'a (dyn Any + Send + 'static)) -> &'a str {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without a message")
}
