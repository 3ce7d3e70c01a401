use fulgurite_ops_macros::operator;

use super::parts;
use super::promotion::{cast, position, result_type};

/// Tensors one after another along `dim`, in the type they meet in. As in PyTorch, tensors of shape `[0]` may be among
/// others.
#[operator(torch = "cat", complex)]
pub mod cat {
    fn cat(tensors: Vec<Tensor>, #[default(0)] dim: i64) -> Tensor;

    fn meta(tensors: &[TensorMeta], dim: i64) -> Result<TensorMeta> {
        require!(!tensors.is_empty(), NoTensors, "tensors is empty, expected at least one");
        let first = tensors.iter().find(|meta| meta.shape() != [0]).unwrap_or(&tensors[0]);
        require!(first.rank() > 0, Rank, "tensors have no dimensions, expected at least one");
        let dim = normalize_dim(dim, first.rank())?;
        let mut shape = first.shape().to_vec();
        shape[dim] = 0;
        for meta in tensors.iter().filter(|meta| meta.shape() != [0]) {
            let fits = meta.rank() == first.rank()
                && (0..first.rank()).all(|i| i == dim || meta.shape()[i] == first.shape()[i]);
            require!(
                fits,
                Shapes,
                "tensors have shapes {:?} and {:?}, expected equal extents but in dimension {dim}",
                first.shape(),
                meta.shape()
            );
            shape[dim] += meta.shape()[dim];
        }
        let operands: Vec<Operand<&TensorMeta>> = tensors.iter().map(Operand::Tensor).collect();
        Ok(TensorMeta::new(shape, result_type(&operands), first.device()))
    }

    fn decomposition(tensors: &[Tensor], dim: i64) -> Tensor {
        let operands: Vec<Operand<Tensor>> = tensors.iter().copied().map(Operand::Tensor).collect();
        let dtype = result_type(&operands);
        let mut parts: Vec<Tensor> = tensors.iter().copied().filter(|part| *part.shape() != [0]).collect();
        if parts.is_empty() {
            parts.push(tensors[0]);
        }
        let parts: Vec<Tensor> = parts.into_iter().map(|part| cast(part, dtype)).collect();
        match parts.as_slice() {
            [only] => *only,
            _ => parts::cat(&parts, position(dim, parts[0].rank())),
        }
    }

    fn reference(tensors: &[ReferenceTensor], dim: i64) -> ReferenceTensor {
        let parts: Vec<&ReferenceTensor> = tensors.iter().filter(|part| part.shape() != [0]).collect();
        let Some(first) = parts.first() else { return tensors[0].clone() };
        let axis = ndarray::Axis(dim.rem_euclid(first.shape().len() as i64) as usize);
        let fails = "the shapes were checked";
        if parts.iter().any(|part| part.imaginary().is_some()) {
            let numbers: Vec<_> = parts.iter().map(|part| part.complex()).collect();
            let views: Vec<_> = numbers.iter().map(|part| part.view()).collect();
            ndarray::concatenate(axis, &views).unwrap_or_else(|_| unreachable!("{fails}")).into()
        } else if parts.iter().any(|part| part.dtype().is_floating()) {
            let views: Vec<_> = parts.iter().map(|part| part.floats().view()).collect();
            ndarray::concatenate(axis, &views).unwrap_or_else(|_| unreachable!("{fails}")).into()
        } else {
            let views: Vec<_> = parts.iter().map(|part| part.integers().view()).collect();
            ndarray::concatenate(axis, &views).unwrap_or_else(|_| unreachable!("{fails}")).into()
        }
    }

    fn samples(s: &mut Samples) {
        s.case(with([s.normal([2, 3]), s.normal([4, 3])]));
        s.case(with([s.normal([2, 3]), s.normal([2, 1]), s.normal([2, 2])]).dim(-1));
        s.case(with([s.normal([5])]));
        s.case(with([s.normal([0, 3]), s.normal([2, 3])]));
        s.case(with([s.normal([0]), s.normal([2, 3])]).dim(1));
        s.case(with([s.normal([0]), s.normal([0])]));
        s.case(with([s.normal([2]), s.of(DType::F32, [3])]));
        s.case(with([s.normal([3, 3]), s.normal([3, 3])]).dim(1));
        s.case(with([s.normal([4097, 2]), s.normal([4097, 1])]).dim(1));
        s.case(with([s.normal([0])]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensors, with([]), "tensors is empty");
        e.case(Rank, with([e.normal([]), e.normal([])]), "tensors have no dimensions");
        e.case(Shapes, with([e.normal([2, 3]), e.normal([2, 4])]), "expected equal extents but in dimension 0");
        e.case(Shapes, with([e.normal([2, 3]), e.normal([2])]), "shapes [2, 3] and [2]");
        e.case(Shapes, with([e.normal([2, 3]), e.normal([4, 3])]).dim(1), "equal extents but in dimension 1");
    }
}

/// Tensors of one shape side by side, along a new dimension at `dim`.
#[operator(torch = "stack", complex)]
pub mod stack {
    fn stack(tensors: Vec<Tensor>, #[default(0)] dim: i64) -> Tensor;

    fn meta(tensors: &[TensorMeta], dim: i64) -> Result<TensorMeta> {
        require!(!tensors.is_empty(), NoTensors, "tensors is empty, expected at least one");
        let first = &tensors[0];
        for meta in tensors {
            require!(
                meta.shape() == first.shape(),
                Shapes,
                "tensors have shapes {:?} and {:?}, expected equal ones",
                first.shape(),
                meta.shape()
            );
        }
        let mut shape = first.shape().to_vec();
        shape.insert(normalize_dim(dim, first.rank() + 1)?, tensors.len());
        let operands: Vec<Operand<&TensorMeta>> = tensors.iter().map(Operand::Tensor).collect();
        Ok(TensorMeta::new(shape, result_type(&operands), first.device()))
    }

    fn decomposition(tensors: &[Tensor], dim: i64) -> Tensor {
        let mut shape = tensors[0].shape().to_vec();
        let dim = position(dim, shape.len() + 1);
        shape.insert(dim, 1);
        let parts: Vec<Tensor> = tensors.iter().map(|part| parts::reshape(*part, &shape)).collect();
        let operands: Vec<Operand<Tensor>> = parts.iter().copied().map(Operand::Tensor).collect();
        let dtype = result_type(&operands);
        let parts: Vec<Tensor> = parts.into_iter().map(|part| cast(part, dtype)).collect();
        match parts.as_slice() {
            [only] => *only,
            _ => parts::cat(&parts, dim),
        }
    }

    fn reference(tensors: &[ReferenceTensor], dim: i64) -> ReferenceTensor {
        let axis = ndarray::Axis(dim.rem_euclid(tensors[0].shape().len() as i64 + 1) as usize);
        if tensors.iter().any(|part| part.imaginary().is_some()) {
            let numbers: Vec<_> = tensors.iter().map(ReferenceTensor::complex).collect();
            let views: Vec<_> = numbers.iter().map(|part| part.view()).collect();
            ndarray::stack(axis, &views).unwrap_or_else(|_| unreachable!("the shapes were checked")).into()
        } else if tensors.iter().any(|part| part.dtype().is_floating()) {
            let views: Vec<_> = tensors.iter().map(|part| part.floats().view()).collect();
            ndarray::stack(axis, &views).unwrap_or_else(|_| unreachable!("the shapes were checked")).into()
        } else {
            let views: Vec<_> = tensors.iter().map(|part| part.integers().view()).collect();
            ndarray::stack(axis, &views).unwrap_or_else(|_| unreachable!("the shapes were checked")).into()
        }
    }

    fn samples(s: &mut Samples) {
        s.case(with([s.normal([2, 3]), s.normal([2, 3])]));
        s.case(with([s.normal([2, 3]), s.normal([2, 3]), s.normal([2, 3])]).dim(-1));
        s.case(with([s.normal([]), s.normal([])]));
        s.case(with([s.normal([5])]).dim(1));
        s.case(with([s.normal([0, 3]), s.normal([0, 3])]).dim(1));
        s.case(with([s.normal([4097]), s.normal([4097])]).dim(1));
        s.case(with([s.normal([2, 2049]), s.normal([2, 2049])]).dim(-1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensors, with([]), "tensors is empty");
        e.case(Shapes, with([e.normal([2, 3]), e.normal([3])]), "shapes [2, 3] and [3]");
    }
}
