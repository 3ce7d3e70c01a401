use fulgurite_ops_macros::operator;

use super::chunked_linear::{ChunkedLinear, GradientSums, LayerGradients, Range, added, rows};
use super::divergence::{CountedRows, divergence_slopes, divergence_terms, plain_divergence, plainly_reduced};
use super::{exact_log_softmax, total_along};
use crate::core::arrays::{along, log_softmax_row, permuted, product};
use crate::core::promotion::{accumulating, cast};
use crate::nn::DivergenceReduction;
use crate::prims;

/// [`jsd`](mod@super::jsd) of the log-probabilities of two linear layers: hidden states `student_input` [N, H] and
/// `student_weight` [C, H] of a student, `teacher_input` [N, K] and `teacher_weight` [C, K] of a teacher. Logits are
/// divided by `temperature`. Rows whose label in `shift_labels` [N] is `ignore_index` count nothing. In f32 for f16
/// and bf16.
///
/// Rows are computed in chunks, as in [`fused_linear_cross_entropy`](mod@super::fused_linear_cross_entropy), so that
/// the logits of all rows never exist. Where gradients are asked for they are computed in the forward pass, while a
/// chunk's logits exist; the teacher's only if the program reads them.
#[operator(autocast = low)]
pub mod fused_linear_jsd {
    fn fused_linear_jsd(
        student_input: Tensor<Floating>,
        student_weight: Tensor<Floating>,
        teacher_input: Tensor<Floating>,
        teacher_weight: Tensor<Floating>,
        #[default(None)] shift_labels: Option<Tensor<Integer>>,
        #[default(0.5)] jsd_beta: f64,
        #[default(-100)] ignore_index: i64,
        #[default(1.0)] temperature: f64,
    ) -> Tensor;

    fn meta(args: Args<&TensorMeta>) -> Result<TensorMeta> {
        let Args { student_input, student_weight, teacher_input, teacher_weight, .. } = args;
        let Args { shift_labels, jsd_beta, temperature, .. } = args;
        let dtype = student_input.dtype();
        let is_layer = |input: &TensorMeta, weight: &TensorMeta| {
            let fits = input.rank() == 2 && weight.rank() == 2 && input.shape()[1] == weight.shape()[1];
            fits && input.dtype() == dtype && weight.dtype() == dtype
        };
        require!(
            is_layer(student_input, student_weight),
            Student,
            "student_input is {student_input}, student_weight {student_weight}, expected [N, H] and [C, H] of one type"
        );
        let [count, classes] = [student_input.shape()[0], student_weight.shape()[0]];
        require!(
            is_layer(teacher_input, teacher_weight)
                && [teacher_input.shape()[0], teacher_weight.shape()[0]] == [count, classes],
            Teacher,
            "teacher_input is {teacher_input}, teacher_weight {teacher_weight}, expected {dtype}[{count}, K] and \
             {dtype}[{classes}, K]"
        );
        if let Some(labels) = shift_labels {
            require!(labels.shape() == [count], Labels, "shift_labels is {labels}, expected [{count}]");
        }
        require!((0.0..=1.0).contains(&jsd_beta), Beta, "jsd_beta is {jsd_beta}, expected 0 to 1");
        require!(temperature > 0.0, Temperature, "temperature is {temperature}, expected more than 0");
        Ok(student_input.with_shape([]).with_dtype(dtype.accumulator()))
    }

    /// The student's and the teacher's layers, and what their divergences are.
    #[derive(Clone, Copy)]
    struct Distillation {
        layers: [ChunkedLinear; 2],
        labels: Option<Tensor>,
        beta: f64,
        ignore_index: i64,
        temperature: f64,
    }

    impl Distillation {
        /// The rows of a chunk that count.
        #[track_caller]
        fn counted(&self, chunk: Range) -> CountedRows {
            CountedRows::new(self.labels.map(|labels| rows(labels, chunk)), self.ignore_index)
        }

        /// The log-probabilities of a chunk, of student and teacher.
        #[track_caller]
        fn log_probabilities(&self, chunk: Range) -> [Tensor; 2] {
            self.layers.map(|layer| {
                let logits = accumulating(layer.logits(chunk));
                exact_log_softmax(self.cooled(logits), 1)
            })
        }

        /// Divided by the temperature. A product with the reciprocal would be rounded twice.
        #[track_caller]
        fn cooled(&self, tensor: Tensor) -> Tensor {
            if self.temperature == 1.0 { tensor } else { prims::div(tensor, self.temperature) }
        }

        /// The sum of a chunk's terms.
        #[track_caller]
        fn sum(&self, chunk: Range, [student, teacher]: [Tensor; 2]) -> Tensor {
            let terms = divergence_terms(student, teacher, self.beta);
            self.counted(chunk).reduced(terms, DivergenceReduction::Sum)
        }

        /// The gradients of a chunk's sum by the logits.
        #[track_caller]
        fn slopes(&self, chunk: Range, log_p: [Tensor; 2]) -> [Tensor; 2] {
            let [student, teacher] = divergence_slopes(log_p[0], log_p[1], self.beta);
            [(student, log_p[0]), (teacher, log_p[1])].map(|(slope, log_p)| {
                let d_logits = prims::sub(slope, prims::mul(prims::exp(log_p), total_along(slope, 1)));
                // Last, so that nothing of a row that does not count gets through.
                let d_logits = self.counted(chunk).only(d_logits);
                cast(self.cooled(d_logits), self.layers[0].input.dtype())
            })
        }

        /// The mean of a sum over the rows that count.
        #[track_caller]
        fn mean(&self, sum: Tensor) -> Tensor {
            CountedRows::new(self.labels, self.ignore_index).mean(sum, self.layers[0].input.size(0))
        }
    }

    fn decomposition(args: Args<Tensor>) -> Tensor {
        let Args { student_input, student_weight, teacher_input, teacher_weight, .. } = args;
        let Args { shift_labels, jsd_beta, ignore_index, temperature, .. } = args;
        let layers = [(student_input, student_weight), (teacher_input, teacher_weight)];
        let layers = layers.map(|(input, weight)| ChunkedLinear { input, weight, bias: None });
        let all = Distillation { layers, labels: shift_labels, beta: jsd_beta, ignore_index, temperature };
        let mut sum = None;
        for chunk in layers[0].chunks() {
            added(&mut sum, all.sum(chunk, all.log_probabilities(chunk)));
        }
        all.mean(sum.unwrap_or(student_input))
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Args { student_input, student_weight, teacher_input, teacher_weight, .. } = args;
        let Args { shift_labels, jsd_beta, ignore_index, temperature, .. } = args;
        let layers = [(student_input, student_weight), (teacher_input, teacher_weight)];
        let layers = layers.map(|(input, weight)| ChunkedLinear { input, weight, bias: None });
        let all = Distillation { layers, labels: shift_labels, beta: jsd_beta, ignore_index, temperature };
        let (mut sum, mut gradients) =
            (None, layers.map(|layer| GradientSums::new(layer, layer.weight.dtype().accumulator())));
        for chunk in layers[0].chunks() {
            let log_p = all.log_probabilities(chunk);
            added(&mut sum, all.sum(chunk, log_p));
            for (sums, d_logits) in gradients.iter_mut().zip(all.slopes(chunk, log_p)) {
                sums.add(chunk, d_logits);
            }
        }
        let [student, teacher] = gradients.map(GradientSums::total);
        let out = all.mean(sum.unwrap_or(student_input));
        (out, move |d_out: Tensor| {
            let rate = all.mean(d_out);
            let scaled = |part: Tensor| {
                let rate = prims::broadcast_in_dim(rate, part.shape(), Vec::<usize>::new());
                cast(prims::mul(part, rate), student_input.dtype())
            };
            let of = |layer: LayerGradients| [layer.input, layer.weight].map(scaled);
            let ([d_input, d_weight], [d_teacher_input, d_teacher_weight]) = (of(student), of(teacher));
            Grads {
                student_input: d_input,
                student_weight: d_weight,
                teacher_input: d_teacher_input,
                teacher_weight: d_teacher_weight,
            }
        })
    }

    fn reference(args: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let Args { student_input, student_weight, teacher_input, teacher_weight, .. } = args;
        let Args { shift_labels, jsd_beta, ignore_index, temperature, .. } = args;
        let log_p = |input: &ArrayD<f64>, weight: &ArrayD<f64>| {
            let logits = product(input, &permuted(weight, &[1, 0])) / temperature;
            along(&logits, 1, log_softmax_row)
        };
        let (student, teacher) = (log_p(student_input, student_weight), log_p(teacher_input, teacher_weight));
        let terms = crate::core::arrays::zip(&student, &teacher, |x, y| plain_divergence(x, y, jsd_beta));
        plainly_reduced(terms, shift_labels, ignore_index, DivergenceReduction::BatchMean)
    }

    fn samples(s: &mut Samples) {
        let of = |s: &Samples, [rows, width, of_teacher, classes]: [usize; 4]| {
            let student = (s.normal([rows, width]), s.uniform(-0.5, 0.5, [classes, width]));
            let teacher = (s.normal([rows, of_teacher]), s.uniform(-0.5, 0.5, [classes, of_teacher]));
            with(student.0, student.1, teacher.0, teacher.1)
        };
        let short = of(s, [7, 14, 6, 5]);
        s.case(short);
        for beta in [0.0, 0.3, 1.0] {
            // Several chunks, the last one shorter.
            let plain = of(s, [7, 4, 6, 5]).jsd_beta(beta);
            s.case(plain);
            let all = of(s, [5, 6, 3, 9]).shift_labels(s.integers(0, 3, [5])).ignore_index(1).temperature(2.0);
            s.case(all.jsd_beta(beta));
        }
        let [one, wide, none] = [[3, 16, 16, 1], [33, 24, 40, 130], [0, 4, 3, 5]].map(|shape| of(s, shape));
        s.case(one);
        s.case(wide);
        s.case(none);
        // A row that does not count, of NaN.
        let of_nan = [f64::NAN, 1.0, 0.5, -0.5];
        let (student, teacher) = (s.values([2, 2], of_nan), s.values([2, 2], of_nan));
        let layer = || s.uniform(-0.5, 0.5, [3, 2]);
        let ignored = with(student, layer(), teacher, layer()).shift_labels(s.values([2], [1.0, 0.0]).cast(DType::I64));
        s.case(ignored.ignore_index(1)).forward_only("NaN has no differences");
        let cooled = of(s, [3, 4, 2, 5]).temperature(0.25);
        s.case(cooled);
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.normal(shape);
        let good = || with(of(&[6, 4]), of(&[5, 4]), of(&[6, 3]), of(&[5, 3]));
        e.case(Student, with(of(&[6, 4]), of(&[5, 3]), of(&[6, 3]), of(&[5, 3])), "expected [N, H] and [C, H]");
        e.case(Student, with(of(&[6, 4]), of(&[5, 4, 1]), of(&[6, 3]), of(&[5, 3])), "expected [N, H] and [C, H]");
        e.case(Student, with(of(&[6, 4, 1]), of(&[5, 4]), of(&[6, 3]), of(&[5, 3])), "expected [N, H] and [C, H]");
        let other = e.of(DType::F64, [5, 3]);
        e.case(Teacher, with(of(&[6, 4]), of(&[5, 4]), of(&[6, 3]), other), "f32[6, K] and f32[5, K]");
        e.case(Teacher, with(of(&[6, 4]), of(&[5, 4]), of(&[6, 3]), of(&[4, 3])), "f32[6, K] and f32[5, K]");
        e.case(Labels, good().shift_labels(e.integers(0, 5, [5])), "expected [6]");
        e.case(Beta, good().jsd_beta(-0.5), "jsd_beta is -0.5, expected 0 to 1");
        e.case(Temperature, good().temperature(0.0), "temperature is 0, expected more than 0");
    }
}
