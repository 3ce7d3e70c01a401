//! What a product is compared with: the best of the library's algorithms.

use fulgurite::kernels::cuda::cublaslt::{Operand, Problem, survey};
use fulgurite::{DType, Device};

use super::figures::Figure;
use super::work::{Form, Work};

/// Algorithms of the library that are measured.
const ALGORITHMS: usize = 64;

/// The time of the library's best algorithm beside a row that is a product on a CUDA device; nothing for other rows.
///
/// # Errors
/// Those of the library, in words.
pub fn library(work: &Work, device: Device, figures: &mut Vec<Figure>) -> Result<(), String> {
    let Work::Product { m, n, k, form, dtype } = *work else { return Ok(()) };
    if device.kind() != "cuda" {
        return Ok(());
    }
    let dtype: DType = dtype.parse().map_err(|error| format!("'{dtype}': {error}"))?;
    let (a, b) = match form {
        Form::Linear => (Operand::contiguous(dtype, m, k), Operand::contiguous_transposed(dtype, k, n)),
        Form::Input => (Operand::contiguous(dtype, m, k), Operand::contiguous(dtype, k, n)),
        Form::Weight => (Operand::contiguous_transposed(dtype, m, k), Operand::contiguous(dtype, k, n)),
    };
    let problem = Problem { a, b, ..Problem::contiguous(dtype, m, n, k) };
    let found = survey(device.index() as usize, &problem, ALGORITHMS).map_err(|error| error.to_string())?;
    if let (Some(found), Some(forward)) = (found, figures.first_mut()) {
        let best = f64::from(found.microseconds);
        let name = format!("best of {} algorithms of the library", found.tried);
        let of_rate = forward.share.as_ref().map(|(share, _)| share * forward.median / best);
        *forward = forward.clone().with_share(Some(best / forward.median), "the library's best");
        figures.push(Figure::one(&name, "us", best).with_share(of_rate, "products"));
    }
    Ok(())
}
