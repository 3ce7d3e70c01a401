//! What the history of a trace is made of: the stages of every compilation. Transforms of a user's own have names of
//! their own beside these.

use std::fmt;

/// A stage of every compilation, in their order, or what a trace begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StageName {
    /// A traced function.
    Acquire,
    /// Complex numbers become pairs of real ones.
    ComplexToReal,
    /// Rewrites of the program as it was written.
    Rewrite,
    /// Mixed precision.
    Autocast,
    /// Lines `value_and_grad` are expanded.
    Autodiff,
    /// In place of [`StageName::Autodiff`]: the program with its vector-Jacobian product.
    Vjp,
    /// What nothing reads is removed.
    Dce,
    /// Equal lines are merged.
    Cse,
    /// Small products and sums that are alike become one.
    Batch,
    /// Rewrites of the differentiated program.
    LateRewrite,
    /// Cheap values are computed again for the backward pass.
    Recompute,
    /// The forward or the backward half of a program with its vector-Jacobian product.
    Split,
    /// Each line gets its executor.
    Claim,
    /// Collectives that are alike become one over a list of tensors.
    Bucket,
    /// Kernels get the larger operands that they ask for.
    Pad,
    /// Kernels that gain by it have the channels of images innermost in memory.
    Channels,
    /// Lines become regions.
    Fuse,
    /// Views, joins and the copies between layouts.
    Layout,
    /// The stream of each line.
    Schedule,
    /// Results take the memory of donated inputs.
    Donate,
    /// Each value has its place.
    PlanMemory,
    /// Values end behind the lines that read them last.
    DeleteLastUsed,
}

impl StageName {
    /// Every stage.
    pub const ALL: [StageName; 22] = [
        StageName::Acquire,
        StageName::ComplexToReal,
        StageName::Rewrite,
        StageName::Autocast,
        StageName::Autodiff,
        StageName::Vjp,
        StageName::Dce,
        StageName::Cse,
        StageName::Batch,
        StageName::LateRewrite,
        StageName::Recompute,
        StageName::Split,
        StageName::Claim,
        StageName::Bucket,
        StageName::Pad,
        StageName::Channels,
        StageName::Fuse,
        StageName::Layout,
        StageName::Schedule,
        StageName::Donate,
        StageName::PlanMemory,
        StageName::DeleteLastUsed,
    ];

    /// The word in the history of a trace, by which users name the stage.
    pub const fn name(self) -> &'static str {
        match self {
            StageName::Acquire => "acquire",
            StageName::ComplexToReal => "complex_to_real",
            StageName::Rewrite => "rewrite",
            StageName::Autocast => "autocast",
            StageName::Autodiff => "autodiff",
            StageName::Vjp => "vjp",
            StageName::Dce => "dce",
            StageName::Cse => "cse",
            StageName::Batch => "batch",
            StageName::LateRewrite => "late_rewrite",
            StageName::Recompute => "recompute",
            StageName::Split => "split",
            StageName::Claim => "claim",
            StageName::Bucket => "bucket",
            StageName::Pad => "pad",
            StageName::Channels => "channels",
            StageName::Fuse => "fuse",
            StageName::Layout => "layout",
            StageName::Schedule => "schedule",
            StageName::Donate => "donate",
            StageName::PlanMemory => "plan_memory",
            StageName::DeleteLastUsed => "delete_last_used",
        }
    }

    /// The stage of this name.
    pub fn of(name: &str) -> Option<StageName> {
        StageName::ALL.into_iter().find(|stage| stage.name() == name)
    }

    /// Whether every line has an executor from its end on.
    pub fn is_claimed(self) -> bool {
        self >= StageName::Claim
    }
}

impl fmt::Display for StageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_found_by_their_names_and_are_in_order() {
        for (at, stage) in StageName::ALL.into_iter().enumerate() {
            assert_eq!(StageName::of(stage.name()), Some(stage));
            assert_eq!(stage as usize, at, "{stage}");
        }
        assert_eq!(StageName::of("claimed"), None);
    }
}
