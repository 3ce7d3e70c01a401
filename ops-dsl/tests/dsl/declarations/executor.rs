/// Fused kernels.
#[executor(device = "cpu", priority = 10)]
pub mod liger {
    fn claims(def: &'static OperatorDef, _arguments: &[Arg<TensorMeta>]) -> Claim {
        refuse_unless!(def.scalar.is_some(), "has no scalar rule");
        Ok(())
    }
}
