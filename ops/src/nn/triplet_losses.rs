//! Losses of triplets whose distances are of one kind.

use fulgurite_ops_macros::operator;

use super::{Reduction, triplet_margin_loss};
use crate::core::arrays::reduce;

/// [`mod@triplet_margin_loss`](super::triplet_margin_loss) by the distances that PyTorch's function has if it is given
/// none, Euclid's. (A function of the caller's is no argument of an operator: write the loss with its distances.)
#[operator(torch = "nn.functional.triplet_margin_with_distance_loss", autocast = full)]
pub mod triplet_margin_with_distance_loss {
    fn triplet_margin_with_distance_loss(
        anchor: Tensor<Floating>,
        positive: Tensor<Floating>,
        negative: Tensor<Floating>,
        #[default(1.0)] margin: f64,
        #[default(false)] swap: bool,
        #[default(Reduction::Mean)] reduction: Reduction,
    ) -> Tensor;

    fn requires(anchor: &TensorMeta, positive: &TensorMeta, negative: &TensorMeta, margin: f64) -> Result<()> {
        require!(margin > 0.0, Margin, "margin is {margin}, expected a positive number");
        require!(
            anchor.shape() == positive.shape() && anchor.shape() == negative.shape(),
            Shapes,
            "anchor has shape {:?}, positive {:?}, negative {:?}, expected equal ones",
            anchor.shape(),
            positive.shape(),
            negative.shape()
        );
        Ok(())
    }

    fn decomposition(args: Args<Tensor>) -> Tensor {
        let Args { anchor, positive, negative, margin, swap, reduction } = args;
        triplet_margin_loss::with(anchor, positive, negative).margin(margin).swap(swap).reduction(reduction).call()
    }

    fn reference(args: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let Args { anchor, positive, negative, margin, swap, reduction } = args;
        let distance = |a: &ArrayD<f64>, b: &ArrayD<f64>| {
            let apart = (a - b).mapv(|x| (x + 1e-6).powi(2));
            reduce(&apart, Some(&[-1]), false, |row| row.iter().sum::<f64>().sqrt())
        };
        let (near, mut far) = (distance(anchor, positive), distance(anchor, negative));
        if swap {
            far.zip_mut_with(&distance(positive, negative), |far, other| *far = far.min(*other));
        }
        let losses = (near - far).mapv(|short| (short + margin).max(0.0));
        let count = losses.len() as f64;
        match reduction {
            Reduction::None => losses,
            Reduction::Sum => ndarray::arr0(losses.sum()).into_dyn(),
            Reduction::Mean => ndarray::arr0(losses.sum() / count).into_dyn(),
        }
    }

    fn samples(s: &mut Samples) {
        let of = |s: &Samples| with(s.normal([3, 4]), s.normal([3, 4]), s.normal([3, 4])).margin(2.5);
        s.case(of(s));
        s.case(of(s).swap(true).reduction(Reduction::None));
        s.case(of(s).reduction(Reduction::Sum));
        s.case(of(s).margin(0.25));
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |e: &ErrorSamples, shape: &[usize]| with(e.normal([2, 3]), e.normal(shape), e.normal([2, 3]));
        e.case(Margin, of(e, &[2, 3]).margin(0.0), "margin is 0");
        e.case(Shapes, of(e, &[1, 3]), "positive [1, 3]");
        e.case(Shapes, with(e.normal([2, 3]), e.normal([2, 3]), e.normal([1, 3])), "negative [1, 3]");
    }
}
