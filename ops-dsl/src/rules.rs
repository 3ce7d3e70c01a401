//! The rules that declarations have, by kind.

use std::fmt;

/// Declares the kinds of rules, each with the name of its functions.
macro_rules! rule_kinds {
    ($($kind:ident $name:literal)*) => {
        /// What a function of a declaration is, by its name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum RuleKind {
            $(#[doc = concat!("`fn ", $name, "`")] $kind,)*
        }

        impl RuleKind {
            /// The name of the function.
            pub fn name(self) -> &'static str {
                match self {
                    $(RuleKind::$kind => $name,)*
                }
            }
        }
    };
}

rule_kinds! {
    Requires "requires"
    Meta "meta"
    Decomposition "decomposition"
    Grad "grad"
    Scalar "scalar"
    Flops "flops"
    View "view"
    Channels "channels"
    Reference "reference"
    Cpu "cpu"
    Plan "plan"
    Samples "samples"
    Errors "errors"
    Checker "checker"
    Execution "execution"
    Padded "padded"
    Claims "claims"
    Prepare "prepare"
    Fuse "fuse"
    AdmitsRegion "admits_region"
    PrepareRegion "prepare_region"
    PlanRegion "plan_region"
    Pattern "pattern"
    Replacement "replacement"
    Condition "condition"
}

impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

use RuleKind::*;

/// The rules of an operator.
pub const OPERATOR_RULES: [RuleKind; 13] =
    [Requires, Meta, Decomposition, Grad, Scalar, Flops, View, Channels, Reference, Cpu, Plan, Samples, Errors];

/// The rules of an implementation.
pub const IMPLEMENTATION_RULES: [RuleKind; 6] = [Checker, Execution, Grad, Cpu, Plan, Padded];

/// The rules of an executor; all of them may be absent.
pub const EXECUTOR_RULES: [RuleKind; 7] = [Claims, Prepare, Plan, Fuse, AdmitsRegion, PrepareRegion, PlanRegion];

/// The rules of a rewrite.
pub const REWRITE_RULES: [RuleKind; 4] = [Pattern, Replacement, Condition, Samples];
