//! `linalg`: factorizations and solutions of small matrices, which the host computes. Operands are copied there, and
//! results back; the program waits for both, and is launched line by line. A library's kernels would need a workspace
//! of their own for each shape, and are slower than the copies where matrices are small.

use std::sync::Arc;

use fulgurite_ops::prims::{no_spectrum, not_positive_definite, singular_matrix};
use fulgurite_ops_macros::{executor, implementation};
use fulgurite_runtime::Failure;
use fulgurite_runtime::device::host_work::HostWork;
use fulgurite_runtime::executor::HostKernel;
use fulgurite_runtime::kernels::linalg as kernels;
use fulgurite_runtime::kernels::view::{TensorMut, TensorRef};
use fulgurite_runtime::rules::{DeviceTensor, Plan};

/// Linear algebra of small matrices, computed on the host for an NVIDIA GPU.
#[executor(device = "cuda", priority = 25, strided)]
pub mod linalg {}

#[implementation(of = fulgurite_ops::prims::cholesky, by = linalg, strided)]
mod cholesky_by_linalg {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        super::on_host(plan, &[input], &[out], |operands, results| {
            let [out] = results else { return Err(super::count(results.len())) };
            super::kernels::cholesky(operands[0], out.reborrow())
                .map_err(|fault| super::not_positive_definite(fault.matrix, fault.place))
        });
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::prims::lu, by = linalg, strided)]
mod lu_by_linalg {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(
        plan: &mut Plan,
        input: &DeviceTensor,
        refuse_singular: bool,
        factors: &DeviceTensor,
        pivots: &DeviceTensor,
        permutation: &DeviceTensor,
    ) -> Result<()> {
        super::on_host(plan, &[input], &[factors, pivots, permutation], move |operands, results| {
            let [factors, pivots, permutation] = results else { return Err(super::count(results.len())) };
            let results = [factors, pivots, permutation].map(|result| result.reborrow());
            let [factors, pivots, permutation] = results;
            super::kernels::lu(operands[0], refuse_singular, factors, pivots, permutation)
                .map_err(|fault| super::singular_matrix(fault.matrix, fault.place))
        });
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::prims::solve, by = linalg, strided)]
mod solve_by_linalg {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, a: &DeviceTensor, b: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        super::on_host(plan, &[a, b], &[out], |operands, results| {
            let [out] = results else { return Err(super::count(results.len())) };
            super::kernels::solve(operands[0], operands[1], out.reborrow())
                .map_err(|fault| super::singular_matrix(fault.matrix, fault.place))
        });
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::prims::triangular_solve, by = linalg, strided)]
mod triangular_solve_by_linalg {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(
        plan: &mut Plan,
        a: &DeviceTensor,
        b: &DeviceTensor,
        upper: bool,
        unit_diagonal: bool,
        out: &DeviceTensor,
    ) -> Result<()> {
        super::on_host(plan, &[a, b], &[out], move |operands, results| {
            let [out] = results else { return Err(super::count(results.len())) };
            super::kernels::triangular_solve(operands[0], operands[1], upper, unit_diagonal, out.reborrow());
            Ok(())
        });
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::prims::qr, by = linalg, strided)]
mod qr_by_linalg {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, q: &DeviceTensor, r: &DeviceTensor) -> Result<()> {
        super::qr(plan, input, q, r);
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::prims::complete_qr, by = linalg, strided)]
mod complete_qr_by_linalg {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, q: &DeviceTensor, r: &DeviceTensor) -> Result<()> {
        super::qr(plan, input, q, r);
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::prims::eigh, by = linalg, strided)]
mod eigh_by_linalg {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, values: &DeviceTensor, vectors: &DeviceTensor) -> Result<()> {
        super::on_host(plan, &[input], &[values, vectors], |operands, results| {
            let [values, vectors] = results else { return Err(super::count(results.len())) };
            super::kernels::eigh(operands[0], values.reborrow(), vectors.reborrow())
                .map_err(|fault| super::no_spectrum(fault.matrix, fault.place))
        });
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::prims::svd, by = linalg, strided)]
mod svd_by_linalg {
    fn checker() -> Claim {
        Ok(())
    }

    // The shapes of the results say whether the matrices are full.
    fn plan(
        plan: &mut Plan,
        input: &DeviceTensor,
        u: &DeviceTensor,
        s: &DeviceTensor,
        vh: &DeviceTensor,
    ) -> Result<()> {
        super::on_host(plan, &[input], &[u, s, vh], |operands, results| {
            let [u, s, vh] = results else { return Err(super::count(results.len())) };
            super::kernels::svd(operands[0], u.reborrow(), s.reborrow(), vh.reborrow())
                .map_err(|fault| super::no_spectrum(fault.matrix, fault.place))
        });
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::prims::matrix_exp, by = linalg, strided)]
mod matrix_exp_by_linalg {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        super::on_host(plan, &[input], &[out], |operands, results| {
            let [out] = results else { return Err(super::count(results.len())) };
            super::kernels::matrix_exp(operands[0], out.reborrow());
            Ok(())
        });
        Ok(())
    }
}

fn qr(plan: &mut Plan, input: &DeviceTensor, q: &DeviceTensor, r: &DeviceTensor) {
    on_host(plan, &[input], &[q, r], |operands, results| {
        let [q, r] = results else { return Err(count(results.len())) };
        kernels::qr(operands[0], q.reborrow(), r.reborrow());
        Ok(())
    });
}

/// The failure of a runtime that calls a kernel with other results than it was planned with.
fn count(results: usize) -> Failure {
    Failure::new("Results", format!("the kernel is called with {results} results"))
}

/// Plans a line that the host runs. Kernels take operands of any strides, and results come without gaps.
fn on_host(
    plan: &mut Plan,
    operands: &[&DeviceTensor],
    results: &[&DeviceTensor],
    kernel: impl Fn(&[TensorRef<'_>], &mut [TensorMut<'_>]) -> Result<(), Failure> + Send + Sync + 'static,
) {
    let kernel: HostKernel = Box::new(kernel);
    let of = |tensors: &[&DeviceTensor]| tensors.iter().map(|tensor| (*tensor).clone()).collect();
    plan.on_host(HostWork {
        operands: of(operands),
        results: of(results),
        contiguous: false,
        kernel: Arc::new(kernel),
    });
}
