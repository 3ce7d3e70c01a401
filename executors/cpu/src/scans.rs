//! Scans along one dimension.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::kernels::scan;

use super::cpu;

macro_rules! folds {
    ($($module:ident: $of:ident;)*) => {$(
        #[implementation(of = fulgurite_ops::prims::$of, by = cpu, strided)]
        mod $module {
            fn checker() -> Claim {
                Ok(())
            }

            fn cpu(input: TensorRef, dim: usize, out: &mut TensorMut) -> Result<()> {
                scan::$of(input, dim, out.reborrow());
                Ok(())
            }
        }
    )*};
}

folds! {
    cumsum_by_cpu: cumsum;
    cumprod_by_cpu: cumprod;
    logcumsumexp_by_cpu: logcumsumexp;
}

macro_rules! choices {
    ($($module:ident: $of:ident;)*) => {$(
        #[implementation(of = fulgurite_ops::prims::$of, by = cpu, strided)]
        mod $module {
            fn checker() -> Claim {
                Ok(())
            }

            fn cpu(input: TensorRef, dim: usize, values: &mut TensorMut, indices: &mut TensorMut) -> Result<()> {
                scan::$of(input, dim, values.reborrow(), indices.reborrow());
                Ok(())
            }
        }
    )*};
}

choices! {
    cummax_by_cpu: cummax;
    cummin_by_cpu: cummin;
}

#[implementation(of = fulgurite_ops::prims::linear_scan, by = cpu, strided)]
mod linear_scan_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(coefficients: TensorRef, input: TensorRef, dim: usize, out: &mut TensorMut) -> Result<()> {
        scan::linear_scan(coefficients, input, dim, out.reborrow());
        Ok(())
    }
}
