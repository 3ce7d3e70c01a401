//! A product of contiguous matrices with what the library does as it stores it, and what is done where the library
//! cannot.

use fulgurite_runtime::backends::cuda::{Matmul, MatmulAddresses};
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::kernels::cuda::cublaslt::{Compute, Epilogue, Operand, Problem};
use fulgurite_runtime::kernels::fused::{FusedNode, FusedProgram};
use fulgurite_runtime::kernels::scalar::ScalarNode;
use fulgurite_runtime::rules::{Command, DeviceTensor, Expr, Plan, Result, ScalarProgram};
use fulgurite_runtime::{DType, refuse_unless};

use super::turned::{self, Side};
use fulgurite_executor_cuda::elementwise::launch;
use fulgurite_executor_cuda::reducing::sum_rows;
use fulgurite_ops::nn::{GELU_CUBE_WEIGHT, GELU_INNER_SCALE};

/// Maximum workspace of the library, in bytes.
pub(crate) const WORKSPACE: u64 = 32 << 20;

/// What the rows of the matrix beside the result must be a multiple of, in elements:
/// `CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD`.
const AUX_MULTIPLE: usize = 8;

/// Whether the library can apply GELU to, or multiply with its gradient, products with rows of `columns` elements.
pub(super) fn takes_gelu(dtype: DType, columns: usize) -> Claim {
    refuse_unless!(dtype != DType::F64, "has no GELU of f64");
    refuse_unless!(
        columns.is_multiple_of(AUX_MULTIPLE),
        "keeps what GELU is applied to in rows of a multiple of {AUX_MULTIPLE} elements, these have {columns}"
    );
    Ok(())
}

/// `d = epilogue(a · b + c)` of contiguous matrices.
#[derive(Clone, Copy)]
pub(super) struct Product<'a> {
    /// Rows of the result.
    pub(super) m: usize,
    /// Columns of the result.
    pub(super) n: usize,
    /// What is summed over.
    pub(super) k: usize,
    /// The `m x k` operand.
    pub(super) a: &'a DeviceTensor,
    /// Whether its memory holds the transpose.
    pub(super) a_transposed: bool,
    /// The `k x n` operand.
    pub(super) b: &'a DeviceTensor,
    /// Whether its memory holds the transpose.
    pub(super) b_transposed: bool,
    /// What is added, if anything is.
    pub(super) c: Option<&'a DeviceTensor>,
    /// The result.
    pub(super) d: &'a DeviceTensor,
    /// How it is computed.
    pub(super) compute: Compute,
    /// The operation on the product, before it is written.
    pub(super) epilogue: Epilogue,
    /// The epilogue's vector.
    pub(super) bias: Option<&'a DeviceTensor>,
    /// The epilogue's matrix.
    pub(super) aux: Option<&'a DeviceTensor>,
}

impl<'a> Product<'a> {
    /// `input · weightᵀ`: input [..., in], weight [out, in], out [..., out].
    pub(super) fn linear(
        input: &'a DeviceTensor,
        weight: &'a DeviceTensor,
        out: &'a DeviceTensor,
        compute: Compute,
    ) -> Product<'a> {
        let [n, k] = [weight.shape()[0], weight.shape()[1]];
        Product {
            m: out.meta.len() / n.max(1),
            n,
            k,
            a: input,
            a_transposed: false,
            b: weight,
            b_transposed: true,
            c: None,
            d: out,
            compute,
            epilogue: Epilogue::None,
            bias: None,
            aux: None,
        }
    }

    /// The two gradients of a linear layer of matrices: `grad_output · weight` [rows, in] and `grad_outputᵀ · input`
    /// [out, in].
    pub(super) fn of_gradients(
        grad_output: &'a DeviceTensor,
        weight: &'a DeviceTensor,
        input: &'a DeviceTensor,
        d_input: &'a DeviceTensor,
        d_weight: &'a DeviceTensor,
        compute: Compute,
    ) -> (Product<'a>, Product<'a>) {
        let [rows, outputs, inputs] = [grad_output.shape()[0], weight.shape()[0], weight.shape()[1]];
        let of_input = Product {
            m: rows,
            n: inputs,
            k: outputs,
            a: grad_output,
            a_transposed: false,
            b: weight,
            b_transposed: false,
            c: None,
            d: d_input,
            compute,
            epilogue: Epilogue::None,
            bias: None,
            aux: None,
        };
        let of_weight =
            Product { m: outputs, n: inputs, k: rows, a_transposed: true, b: input, d: d_weight, ..of_input };
        (of_input, of_weight)
    }

    /// Plans it as one product, and what is done instead if the library has no algorithm for it on a device.
    pub(super) fn plan(self, plan: &mut Plan) -> Result<()> {
        if self.d.meta.is_empty() {
            return Ok(());
        }
        // What follows a product may read the operand as it was.
        let turned = match self.a_transposed && !self.b_transposed && self.epilogue == Epilogue::None {
            true => turned::side(plan, self.compute, [self.m, self.n, self.k]),
            false => None,
        };
        match turned {
            None => self.plan_as_it_lies(plan),
            Some(Side::Left) => {
                let rows = turned::turned(plan, &turned::transposed(&matrix(self.a, self.k, self.m)))?;
                Product { a: &rows, a_transposed: false, ..self }.plan_as_it_lies(plan)
            }
            Some(Side::Right) => {
                let rows = turned::turned(plan, &turned::transposed(&matrix(self.b, self.k, self.n)))?;
                Product { b: &rows, b_transposed: true, ..self }.plan_as_it_lies(plan)
            }
        }
    }

    fn plan_as_it_lies(self, plan: &mut Plan) -> Result<()> {
        let workspace = plan.workspace(WORKSPACE);
        let plain = self.epilogue == Epilogue::None;
        let instead = if plain { Vec::new() } else { plan.aside(|plan| self.by_parts(plan, workspace))? };
        plan.push(self.command(workspace, instead));
        Ok(())
    }

    fn command(&self, workspace: fulgurite_runtime::rules::Address, instead: Vec<Command>) -> Command {
        let dtype = self.d.dtype();
        let operand = |tensor: &DeviceTensor, transposed, rows, columns| {
            let lies = if transposed { Operand::contiguous_transposed } else { Operand::contiguous };
            Operand { alignment: tensor.alignment, ..lies(tensor.dtype(), rows, columns) }
        };
        let mut d = operand(self.d, false, self.m, self.n);
        d.alignment = self.c.map_or(d.alignment, |c| c.alignment.min(d.alignment));
        let problem = Problem {
            a: operand(self.a, self.a_transposed, self.m, self.k),
            b: operand(self.b, self.b_transposed, self.k, self.n),
            d,
            compute: self.compute,
            epilogue: self.epilogue,
            accumulate: self.c.is_some(),
            bias_alignment: self.bias.map_or(256, |bias| bias.alignment),
            aux_alignment: self.aux.map_or(256, |aux| aux.alignment),
            ..Problem::contiguous(dtype, self.m, self.n, self.k)
        };
        let addresses = MatmulAddresses {
            a: self.a.address,
            b: self.b.address,
            c: self.c.map(|c| c.address),
            d: self.d.address,
            bias: self.bias.map(|bias| bias.address),
            aux: self.aux.map(|aux| aux.address),
            workspace,
            factors: [None; 2],
        };
        Matmul { problem, alpha: 1.0, workspace_bytes: WORKSPACE }.command(&addresses, instead)
    }

    /// The product (and sum) by itself, and a kernel for each thing that follows.
    fn by_parts(self, plan: &mut Plan, workspace: fulgurite_runtime::rules::Address) -> Result<()> {
        let rows = matrix(self.d, self.m, self.n);
        let d = &rows;
        let aux = self.aux.map(|aux| matrix(aux, self.m, self.n));
        let bias = self.bias.map(|bias| DeviceTensor { strides: vec![0, 1], ..bias.clone() });
        let plain = Product { epilogue: Epilogue::None, bias: None, aux: None, ..self };
        plan.push(plain.command(workspace, Vec::new()));
        match (self.epilogue, &bias, &aux) {
            (Epilogue::Bias, Some(bias), _) => elementwise(plan, "add_bias", &[d, bias], d, |x| x[0] + x[1])?,
            (Epilogue::GeluBias, Some(bias), _) => {
                elementwise(plan, "bias_gelu", &[d, bias], d, |x| gelu(x[0] + x[1]))?
            }
            (Epilogue::GeluAuxBias, Some(bias), Some(aux)) => {
                elementwise(plan, "add_bias", &[d, bias], aux, |x| x[0] + x[1])?;
                elementwise(plan, "gelu_of_sum", &[aux], d, |x| gelu(x[0]))?;
            }
            (Epilogue::DGelu, _, Some(aux)) => {
                elementwise(plan, "times_gelu_slope", &[d, aux], d, |x| x[0] * gelu_slope(x[1]))?;
            }
            // The sums over k of the left operand, whose memory has a row for each k.
            (Epilogue::BiasGradA, Some(_), _) if self.a_transposed => {
                let summed = matrix(self.a, self.k, self.m);
                if let Some(sums) = self.bias {
                    sum_rows(plan, &summed, sums)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// A contiguous tensor seen as `rows x columns`.
fn matrix(tensor: &DeviceTensor, rows: usize, columns: usize) -> DeviceTensor {
    DeviceTensor { meta: tensor.meta.with_shape([rows, columns]), strides: vec![columns as isize, 1], ..tensor.clone() }
}

/// One generated kernel over the elements of `out`, in whose shape the operands' strides are.
fn elementwise(
    plan: &mut Plan,
    name: &str,
    operands: &[&DeviceTensor],
    out: &DeviceTensor,
    rule: fn(&[Expr]) -> Expr,
) -> Result<()> {
    let scalar = ScalarProgram::record(operands.len(), 0, |inputs, _| vec![rule(inputs)]);
    let nodes = scalar.nodes.iter().map(|node| match *node {
        ScalarNode::Input(input) => FusedNode::Input(input),
        ScalarNode::Number(number) => unreachable!("the rule has no run-time number, and here is number {number}"),
        ScalarNode::Constant(value) => FusedNode::Constant(value),
        ScalarNode::Apply(op, operands) => FusedNode::Apply(op, operands),
    });
    let program = FusedProgram {
        input_dtypes: operands.iter().map(|operand| operand.dtype()).collect(),
        nodes: nodes.collect(),
        outputs: scalar.results.iter().map(|node| (*node, out.dtype())).collect(),
    };
    let inputs: Vec<(&DeviceTensor, &[isize])> = operands.iter().map(|tensor| (*tensor, &tensor.strides[..])).collect();
    launch(plan, name, &program, out.shape(), &inputs, &[(out, out.shape(), &out.strides)])
}

/// `tanh(√(2/π) (x + 0.044715 x³))`
fn tanh_of(x: Expr) -> Expr {
    ((x + x * x * x * GELU_CUBE_WEIGHT) * GELU_INNER_SCALE).tanh()
}

fn gelu(x: Expr) -> Expr {
    x * 0.5 * (tanh_of(x) + 1.0)
}

fn gelu_slope(x: Expr) -> Expr {
    let tanh = tanh_of(x);
    let inner = x * x * (3.0 * GELU_INNER_SCALE * GELU_CUBE_WEIGHT) + GELU_INNER_SCALE;
    (tanh + 1.0) * 0.5 + x * 0.5 * (Expr::constant(1.0) - tanh * tanh) * inner
}
