#[implementation(of = linear, by = [products, rounded(in_place(input))], strided)]
mod linear_by_products {
    fn checker(precision: Precision) -> Claim {
        refuse_unless!(precision == Precision::Exact, "another checker");
        Ok(())
    }

    fn plan(plan: &mut Plan, precision: Precision, Args { input, weight }: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        product(plan, precision, input, weight, out)
    }
}
