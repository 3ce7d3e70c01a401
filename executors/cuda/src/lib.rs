//! `cuda`: every prim on an NVIDIA GPU, from its scalar rule or by a kernel of its own. `fusion` makes one kernel of
//! regions of its symbols. `support`, `elementwise`, `reducing` and `rows` are what other CUDA executors plan with as
//! well.

mod column_sums;
mod combining;
pub mod elementwise;
pub mod fusion;
mod indexing;
mod linalg;
mod making;
mod many;
mod moving;
mod order;
mod paths;
mod placing;
mod products;
pub mod reducing;
pub mod rows;
mod scans;
mod searching;
mod sorting;
pub mod support;
mod topk;
mod window_maxima;
mod windows;

use fulgurite_ops_macros::executor;
use fulgurite_runtime::arithmetic::Arithmetic;
use fulgurite_runtime::operator::RuleSet;
use fulgurite_runtime::strided::LayoutRules;

/// Every prim on an NVIDIA GPU, one kernel a symbol.
#[executor(device = "cuda", priority = 30, strided, strided_results = 0)]
pub mod cuda {
    use fulgurite_runtime::operator::OperatorDef;

    fn claims(operator: &'static OperatorDef, _arguments: &[Arg<TensorMeta>]) -> Claim {
        refuse_unless!(
            Arithmetic::of(operator).scalar.is_some() || LayoutRules::of(operator).view.is_some(),
            "has no kernel for it"
        );
        Ok(())
    }

    fn plan(
        plan: &mut Plan,
        operator: &'static OperatorDef,
        arguments: &[Arg<DeviceTensor>],
        results: &[DeviceTensor],
    ) -> Result<()> {
        super::elementwise::symbol(plan, operator, arguments, results)
    }
}
