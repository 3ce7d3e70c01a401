//! Wrong collectives, which are right on one rank.

use fulgurite_executors::cpu::cpu;
use fulgurite_ops_macros::{implementation, operator};

/// The sum over the ranks, whose gradient is this rank's cotangent alone: right on one rank.
#[operator(prim, name = "wrong::own_cotangent", effects(collective))]
pub mod own_cotangent {
    use fulgurite_ops::collectives::{Reduce, among};

    fn own_cotangent(input: Tensor<Floating>, axis: String) -> Tensor;

    fn meta(input: &TensorMeta, axis: &str) -> Result<TensorMeta> {
        among::extent(axis, Code::Axis)?;
        Ok(input.clone())
    }

    fn grad(input: Tensor, axis: String) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (own_cotangent(input, axis), move |d_out| Grads { input: d_out })
    }

    fn reference(input: &ReferenceTensor, axis: &str) -> Result<ReferenceTensor> {
        Ok(among::reduced(&among::all_ranks("own_cotangent", axis, input)?.0, Reduce::Sum, None))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), "data=1"));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Axis, with(e.normal([2]), "data"), "'data' is not an axis of a mesh");
    }
}

/// The sum over the ranks, of which the kernel takes its own part alone.
#[operator(prim, name = "wrong::own_data", effects(collective), no_grad = "its kernel is what is wrong")]
pub mod own_data {
    use fulgurite_ops::collectives::{Reduce, among};

    fn own_data(input: Tensor<Floating>, axis: String) -> Tensor;

    fn meta(input: &TensorMeta, axis: &str) -> Result<TensorMeta> {
        among::extent(axis, Code::Axis)?;
        Ok(input.clone())
    }

    fn reference(input: &ReferenceTensor, axis: &str) -> Result<ReferenceTensor> {
        Ok(among::reduced(&among::all_ranks("own_data", axis, input)?.0, Reduce::Sum, None))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), "data=1"));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Axis, with(e.normal([2]), "data"), "'data' is not an axis of a mesh");
    }
}

#[implementation(of = own_data, by = cpu, strided)]
mod own_data_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        fulgurite_kernels::elementwise::copy(input, out.reborrow());
        Ok(())
    }
}

/// What the rank at the place `root` gives, of which the kernel takes the first rank's: right where `root` is 0, which
/// it is in every sample that one rank can run.
#[operator(prim, name = "wrong::first_root", effects(collective), no_grad = "its kernel is what is wrong")]
pub mod first_root {
    use fulgurite_ops::collectives::among;

    fn first_root(input: Tensor<Floating>, axis: String, root: usize) -> Tensor;

    fn meta(input: &TensorMeta, axis: &str, root: usize) -> Result<TensorMeta> {
        let ranks = among::extent(axis, Code::Axis)?;
        require!(root < ranks, Root, "root is {root}, expected a place below {ranks}");
        Ok(input.clone())
    }

    fn reference(input: &ReferenceTensor, axis: &str, root: usize) -> Result<ReferenceTensor> {
        Ok(among::all_ranks("first_root", axis, input)?.0[root].clone())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), "data=1", 0));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Axis, with(e.normal([2]), "data", 0), "'data' is not an axis of a mesh");
        e.case(Root, with(e.normal([2]), "data=2", 2), "root is 2");
    }
}

#[implementation(of = first_root, by = cpu, strided)]
mod first_root_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, axis: &str, out: &mut TensorMut) -> Result<()> {
        use fulgurite_kernels::access::{read_f64, write_f64};
        let axis = axis.parse().map_err(|message: String| Failure::new("Axis", message))?;
        let bytes: Vec<u8> = read_f64(&input).iter().flat_map(|value| value.to_ne_bytes()).collect();
        let given = fulgurite_runtime::ranks::exchange(&axis, "first_root", &bytes)?;
        let words = given[0].as_chunks::<8>().0.iter();
        write_f64(out, &words.map(|word| f64::from_ne_bytes(*word)).collect::<Vec<f64>>());
        Ok(())
    }
}

/// The sums of two tensors over the ranks, of which the kernel adds the other ranks' tensors in the wrong order: right
/// on one rank.
#[operator(prim, name = "wrong::others_swapped", effects(collective), no_grad = "its kernel is what is wrong")]
pub mod others_swapped {
    use fulgurite_ops::collectives::{Reduce, among};

    fn others_swapped(inputs: Vec<Tensor<Floating>>, axis: String) -> Vec<Tensor>;

    fn meta(inputs: &[TensorMeta], axis: &str) -> Result<Vec<TensorMeta>> {
        among::extent(axis, Code::Axis)?;
        Ok(inputs.to_vec())
    }

    fn reference(inputs: &[ReferenceTensor], axis: &str) -> Result<Vec<ReferenceTensor>> {
        let (all, _) = among::all_ranks_of_each("others_swapped", axis, inputs)?;
        Ok(all.iter().map(|tensors| among::reduced(tensors, Reduce::Sum, None)).collect())
    }

    fn samples(s: &mut Samples) {
        s.case(with([s.normal([4, 8]), s.normal([4, 8])], "data=1"));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Axis, with([e.normal([2])], "data"), "'data' is not an axis of a mesh");
    }
}

#[implementation(of = others_swapped, by = cpu, strided)]
mod others_swapped_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(inputs: &[TensorRef], axis: &str, out: &mut [TensorMut]) -> Result<()> {
        use fulgurite_kernels::access::{read_f64, write_f64};
        use fulgurite_runtime::ranks;
        let axis = axis.parse().map_err(|message: String| Failure::new("Axis", message))?;
        let own: Vec<Vec<f64>> = inputs.iter().map(read_f64).collect();
        let bytes: Vec<u8> = own.iter().flatten().flat_map(|value| value.to_ne_bytes()).collect();
        let given = ranks::exchange(&axis, "others_swapped", &bytes)?;
        let others = (0..).zip(&given).filter(|(place, _)| ranks::place(&axis) != Ok(*place));
        let mut sums = own;
        for (_, bytes) in others {
            let words = bytes.as_chunks::<8>().0;
            for (sum, words) in sums.iter_mut().rev().zip(words.chunks(inputs[0].len())) {
                sum.iter_mut().zip(words).for_each(|(sum, word)| *sum += f64::from_ne_bytes(*word));
            }
        }
        out.iter_mut().zip(&sums).for_each(|(out, sum)| write_f64(out, sum));
        Ok(())
    }
}
