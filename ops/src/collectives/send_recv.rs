use fulgurite_ops_macros::operator;

use super::among;

/// The `input` of another rank: each rank along `axis` gives its own to the one `shift` places further, and gets that
/// of the one as many places before; the last places go on at the first.
///
/// There is no `send` without its `recv`: ranks run one program, so that a line that only some of them call is in no
/// trace, and neither has a result and a gradient without the other.
#[operator(prim, exact, effects(collective))]
pub mod send_recv {
    fn send_recv(input: Tensor<Number>, axis: String, shift: usize) -> Tensor;

    fn meta(input: &TensorMeta, axis: &str, shift: usize) -> Result<TensorMeta> {
        let ranks = among::extent(axis, Code::Axis)?;
        require!(
            shift < ranks,
            Shift,
            "shift is {shift}, expected a number below {ranks}, the number of ranks along the axis"
        );
        Ok(input.clone())
    }

    fn grad(input: Tensor, axis: String, shift: usize) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (send_recv(input, &axis, shift), move |d_out: Tensor| {
            let back = (among::ranks_of(&axis) - shift) % among::ranks_of(&axis);
            Grads { input: send_recv(d_out, axis, back) }
        })
    }

    fn reference(input: &ReferenceTensor, axis: &str, shift: usize) -> Result<ReferenceTensor> {
        let (all, place) = among::all_ranks(&format!("send_recv of {shift} places"), axis, input)?;
        Ok(all[(place + all.len() - shift) % all.len()].clone())
    }

    fn samples(s: &mut Samples) {
        for shape in [&[][..], &[7], &[4, 6], &[0, 3], &[67, 65]] {
            s.case(with(s.normal(shape), "data=1", 0));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Axis, with(e.normal([2]), "data=", 0), "'data=' is not an axis of a mesh");
        e.case(Shift, with(e.normal([2]), "data=2", 2), "shift is 2, expected a number below 2");
    }
}
