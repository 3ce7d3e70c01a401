//! Combining elements at indices by other rules than addition, by the kernels of addition: see [`super::indexing`].

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::DType;
use fulgurite_runtime::rules::{DeviceTensor, Plan, Result};

use super::cuda;
use super::indexing::{Rule, combine, start_from};

/// Products; integers wrap.
fn product(dtype: DType) -> Rule {
    let combine = if dtype.is_floating() { "((x) * (y))" } else { "wrapping_mul(x, y)" };
    Rule { combine, neutral: "1" }
}

fn extremum(dtype: DType, combine: &'static str, [double, float, integer]: [&'static str; 3]) -> Rule {
    let neutral = match dtype {
        DType::F64 => double,
        dtype if dtype.is_floating() => float,
        _ => integer,
    };
    Rule { combine, neutral }
}

fn largest(dtype: DType) -> Rule {
    extremum(dtype, "maximum(x, y)", ["-INFINITY_F64", "-INFINITY_F32", "0x8000000000000000ULL"])
}

fn smallest(dtype: DType) -> Rule {
    extremum(dtype, "minimum(x, y)", ["INFINITY_F64", "INFINITY_F32", "0x7fffffffffffffffLL"])
}

macro_rules! combinations {
    ($($module:ident: $of:ident, $rule:ident;)*) => {$(
        #[implementation(of = fulgurite_ops::prims::$of, by = cuda, strided, in_place(input))]
        mod $module {
            fn checker() -> Claim {
                Ok(())
            }

            fn plan(
                plan: &mut Plan,
                Args { input, dim, index, src }: Args<&DeviceTensor>,
                out: &DeviceTensor,
            ) -> Result<()> {
                super::start_from(plan, input, out)?;
                super::combine(plan, super::$rule(src.meta.dtype()), dim, (index, src), out)
            }
        }
    )*};
}

combinations! {
    scatter_prod_by_cuda: scatter_prod, product;
    scatter_amax_by_cuda: scatter_amax, largest;
    scatter_amin_by_cuda: scatter_amin, smallest;
}
