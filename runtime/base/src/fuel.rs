//! How much of what is optional transforms may do.

/// Optimization fuel: how many more claims, fusions and rewrites may be made. Halving it finds the one that breaks a
/// program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fuel(Option<u64>);

impl Fuel {
    /// Without a limit.
    pub const UNLIMITED: Fuel = Fuel(None);

    /// At most `steps` optimizations.
    pub fn limited(steps: u64) -> Fuel {
        Fuel(Some(steps))
    }

    /// The remaining fuel; `None` if there is no limit.
    pub fn left(self) -> Option<u64> {
        self.0
    }

    /// Takes fuel for one optimization; `false` if none is left.
    pub fn burn(&mut self) -> bool {
        match &mut self.0 {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }
}
