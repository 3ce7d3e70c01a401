//! `cuda`: every prim on an NVIDIA GPU, from its scalar rule or by a kernel of its own.

pub(crate) mod elementwise;
mod indexing;
mod making;
mod moving;
mod order;
mod products;
pub(crate) mod reducing;
mod sorting;
pub(crate) mod support;
mod topk;

use fulgurite::arithmetic::Arithmetic;
use fulgurite::operator::RuleSet;
use fulgurite::strided::LayoutRules;
use fulgurite_ops_macros::executor;

/// Every prim on an NVIDIA GPU, one kernel a symbol.
#[executor(device = "cuda", priority = 30, strided)]
pub mod cuda {
    use fulgurite::operator::OperatorDef;

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
