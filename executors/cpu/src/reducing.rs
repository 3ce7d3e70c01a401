//! Reductions.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::kernels::reduce::{Reduction, reduce};

use super::cpu;

macro_rules! reduction {
    ($($module:ident: $of:ident, $reduction:ident;)*) => {$(
        #[implementation(of = fulgurite_ops::prims::$of, by = cpu, strided)]
        mod $module {
            fn checker() -> Claim {
                Ok(())
            }

            fn cpu(input: TensorRef, dims: &[usize], out: &mut TensorMut) -> Result<()> {
                reduce(Reduction::$reduction, input, dims, out.reborrow());
                Ok(())
            }
        }
    )*};
}

reduction! {
    sum_by_cpu: sum, Sum;
    prod_by_cpu: prod, Product;
    amax_by_cpu: amax, Max;
    amin_by_cpu: amin, Min;
}
