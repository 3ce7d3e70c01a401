//! Factorizations and solutions of small matrices.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::kernels::linalg;

use super::cpu;

#[implementation(of = fulgurite_ops::prims::cholesky, by = cpu, strided)]
mod cholesky_by_cpu {
    use fulgurite_ops::prims::not_positive_definite;

    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        linalg::cholesky(input, out.reborrow()).map_err(|fault| not_positive_definite(fault.matrix, fault.place))
    }
}

#[implementation(of = fulgurite_ops::prims::lu, by = cpu, strided)]
mod lu_by_cpu {
    use fulgurite_ops::prims::singular_matrix;

    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(
        input: TensorRef,
        refuse_singular: bool,
        factors: &mut TensorMut,
        pivots: &mut TensorMut,
        permutation: &mut TensorMut,
    ) -> Result<()> {
        linalg::lu(input, refuse_singular, factors.reborrow(), pivots.reborrow(), permutation.reborrow())
            .map_err(|fault| singular_matrix(fault.matrix, fault.place))
    }
}

#[implementation(of = fulgurite_ops::prims::solve, by = cpu, strided)]
mod solve_by_cpu {
    use fulgurite_ops::prims::singular_matrix;

    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(a: TensorRef, b: TensorRef, out: &mut TensorMut) -> Result<()> {
        linalg::solve(a, b, out.reborrow()).map_err(|fault| singular_matrix(fault.matrix, fault.place))
    }
}

#[implementation(of = fulgurite_ops::prims::triangular_solve, by = cpu, strided)]
mod triangular_solve_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(a: TensorRef, b: TensorRef, upper: bool, unit_diagonal: bool, out: &mut TensorMut) -> Result<()> {
        linalg::triangular_solve(a, b, upper, unit_diagonal, out.reborrow());
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::prims::qr, by = cpu, strided)]
mod qr_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, q: &mut TensorMut, r: &mut TensorMut) -> Result<()> {
        linalg::qr(input, q.reborrow(), r.reborrow());
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::prims::complete_qr, by = cpu, strided)]
mod complete_qr_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, q: &mut TensorMut, r: &mut TensorMut) -> Result<()> {
        linalg::qr(input, q.reborrow(), r.reborrow());
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::prims::eigh, by = cpu, strided)]
mod eigh_by_cpu {
    use fulgurite_ops::prims::no_spectrum;

    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, values: &mut TensorMut, vectors: &mut TensorMut) -> Result<()> {
        linalg::eigh(input, values.reborrow(), vectors.reborrow())
            .map_err(|fault| no_spectrum(fault.matrix, fault.place))
    }
}

#[implementation(of = fulgurite_ops::prims::svd, by = cpu, strided)]
mod svd_by_cpu {
    use fulgurite_ops::prims::no_spectrum;

    fn checker() -> Claim {
        Ok(())
    }

    // The shapes of the results say whether the matrices are full.
    fn cpu(input: TensorRef, u: &mut TensorMut, s: &mut TensorMut, vh: &mut TensorMut) -> Result<()> {
        linalg::svd(input, u.reborrow(), s.reborrow(), vh.reborrow())
            .map_err(|fault| no_spectrum(fault.matrix, fault.place))
    }
}

#[implementation(of = fulgurite_ops::prims::matrix_exp, by = cpu, strided)]
mod matrix_exp_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        linalg::matrix_exp(input, out.reborrow());
        Ok(())
    }
}
