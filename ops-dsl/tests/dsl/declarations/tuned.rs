#[implementation(of = squared, by = blocks)]
mod squared_by_blocks {
    fn checker(input: &TensorMeta, BLOCK: usize) -> Claim {
        whole_blocks(input, BLOCK)
    }

    #[tune(BLOCK in [128, 256])]
    fn plan(plan: &mut Plan, input: &DeviceTensor, BLOCK: usize, out: &DeviceTensor) -> Result<()> {
        squares(plan, BLOCK, input, out)
    }
}
