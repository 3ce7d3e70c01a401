//! Why a rule refuses.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fulgurite_kernels::buffer::OutOfMemory;

use crate::panic_places;

/// What messages of panics have between the name of the rule that panicked and the text; messages are all that
/// templates keep of an error.
pub const PANICKED: &str = " panicked: ";

/// Why a rule (meta, checker, kernel) does not accept its arguments: a named precondition and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The name of the precondition, e.g. `WeightShape`.
    pub code: &'static str,
    /// What was expected and what came, naming the argument.
    pub message: String,
}

impl Failure {
    /// A failure of the precondition `code`.
    pub fn new(code: &'static str, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }

    /// Runs a rule. If it panics, this is the failure, which says the place in the rule's sources as well.
    ///
    /// # Errors
    /// If it panics.
    pub fn caught<T>(who: &str, run: impl FnOnce() -> T) -> Result<T, Failure> {
        panic_places::watch();
        // What a panic leaves behind is not read: the caller gets the failure alone.
        catch_unwind(AssertUnwindSafe(run)).map_err(|panic| Failure::panicked(who, &*panic))
    }

    /// The message of a panic; that there is no memory, where [`scratch`](fulgurite_kernels::scratch) unwound.
    pub fn panicked(who: &str, panic: &(dyn Any + Send)) -> Failure {
        if let Some(error) = panic.downcast_ref::<OutOfMemory>() {
            return Failure::from(error.clone());
        }
        let text = Failure::text_of_panic(panic);
        let place = panic_places::take(&text).map_or_else(String::new, |place| format!(" (at {place})"));
        Failure::new("Panicked", format!("{who}{PANICKED}{text}{place}"))
    }

    /// What a panic says, for those that catch one; also that there is no memory.
    pub fn text_of_panic(panic: &(dyn Any + Send)) -> Cow<'_, str> {
        match panic.downcast_ref::<OutOfMemory>() {
            Some(error) => error.to_string().into(),
            None => panic_places::text(panic).into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<fulgurite_kernels::not_contiguous::NotContiguous> for Failure {
    fn from(error: fulgurite_kernels::not_contiguous::NotContiguous) -> Failure {
        Failure::new("KernelLayout", error.to_string())
    }
}

impl From<fulgurite_kernels::ranks::RankError> for Failure {
    fn from(error: fulgurite_kernels::ranks::RankError) -> Failure {
        Failure::new("Ranks", error.to_string())
    }
}

impl From<OutOfMemory> for Failure {
    fn from(error: OutOfMemory) -> Failure {
        Failure::new("OutOfMemory", error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_memory_is_said_by_name() {
        let lack = OutOfMemory { bytes: 1 << 40 };
        assert_eq!(Failure::text_of_panic(&lack), lack.to_string());
        assert_eq!(Failure::panicked("kernel", &lack).code, "OutOfMemory");
        assert_eq!(Failure::text_of_panic(&"no rows"), "no rows");
        assert_eq!(Failure::panicked("kernel", &"no rows".to_owned()).message, "kernel panicked: no rows");
        assert_eq!(Failure::text_of_panic(&7), "without a message");
    }

    #[test]
    fn a_panic_says_where_it_began() {
        let line = line!() + 1;
        let failure = Failure::caught("kernel", || -> usize { panic!("no columns") }).unwrap_err();
        let place = format!("(at {}:{line}:", file!());
        assert!(failure.message.starts_with("kernel panicked: no columns (at "), "{failure}");
        assert!(failure.message.contains(&place), "{failure}");

        // Work of other threads unwinds on the one that waits for it.
        let line = line!() + 1;
        let worker = std::thread::spawn(|| panic!("no rows in a worker")).join().unwrap_err();
        let failure = Failure::caught("kernel", || std::panic::resume_unwind(worker)).unwrap_err();
        assert!(failure.message.contains(&format!("(at {}:{line}:", file!())), "{failure}");
        assert_eq!(Failure::caught("kernel", || 3), Ok(3));
    }
}
