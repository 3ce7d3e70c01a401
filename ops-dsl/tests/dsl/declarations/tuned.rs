#[implementation(of = squared, by = blocks)]
mod squared_by_blocks {
    fn checker() -> Claim {
        Ok(())
    }

    #[tune(BLOCK in [128, 256])]
    fn plan(plan: &mut Plan, input: &DeviceTensor, BLOCK: usize, out: &DeviceTensor) -> Result<()> {
        squares(plan, BLOCK, input, out)
    }
}
