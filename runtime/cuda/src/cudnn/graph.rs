//! Graphs of operations: tensors of four dimensions, and what is computed between them.

use super::super::error::Result;
use super::descriptor::Descriptor;
use super::problem::ALIGNMENT;
use super::sys::{Attribute, DataType, Kind, PointwiseMode, ReductionOperator};

/// A tensor of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Node(usize);

/// Extents and strides of a tensor, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) extents: [i64; 4],
    pub(super) strides: [i64; 4],
}

impl Form {
    /// A contiguous tensor.
    pub(super) fn contiguous(extents: [i64; 4]) -> Form {
        let [_, b, c, d] = extents;
        Form { extents, strides: [b * c * d, c * d, d, 1] }
    }

    /// The same memory with the last two dimensions exchanged.
    pub(super) fn transposed(self) -> Form {
        let [extents, strides] = [self.extents, self.strides].map(|[a, b, c, d]| [a, b, d, c]);
        Form { extents, strides }
    }
}

/// A graph being written down. Operations come in the order in which they are added; what its engines recognize
/// depends on it.
#[derive(Debug, Default)]
pub(super) struct Graph {
    tensors: Vec<(Descriptor, Form)>,
    operations: Vec<Descriptor>,
    /// The next id of a tensor that no caller names.
    next: i64,
}

/// Ids below are the caller's.
const FIRST_ID: i64 = 100;

/// Where a tensor's elements are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In memory of the device that a run names by the id.
    Memory,
    /// Nowhere: what one operation hands on to others.
    Virtual,
    /// In memory of the host, from where a run takes it by the id.
    Value,
}

/// A tensor in device memory, with extents and strides of any number of dimensions.
pub(super) fn in_memory(id: i64, dtype: DataType, extents: &[i64], strides: &[i64]) -> Result<Descriptor> {
    tensor(id, dtype, (extents, strides), Place::Memory)
}

fn tensor(id: i64, dtype: DataType, (extents, strides): (&[i64], &[i64]), place: Place) -> Result<Descriptor> {
    let mut tensor = Descriptor::new(Kind::Tensor)?;
    tensor.set(Attribute::TensorType, dtype)?;
    tensor.set_all(Attribute::TensorDimensions, extents)?;
    tensor.set_all(Attribute::TensorStrides, strides)?;
    tensor.set(Attribute::TensorId, id)?;
    tensor.set(Attribute::TensorAlignment, ALIGNMENT as i64)?;
    if place == Place::Virtual {
        tensor.set(Attribute::TensorIsVirtual, true)?;
    }
    if place == Place::Value {
        tensor.set(Attribute::TensorIsByValue, true)?;
    }
    tensor.finalize()?;
    Ok(tensor)
}

impl Graph {
    /// A tensor in device memory, named by an id below 100.
    pub(super) fn stored(&mut self, id: i64, dtype: DataType, form: Form) -> Result<Node> {
        self.tensor(id, dtype, form, Place::Memory)
    }

    /// A number that a run gives, named by an id below 100.
    pub(super) fn number(&mut self, id: i64, dtype: DataType) -> Result<Node> {
        self.tensor(id, dtype, Form { extents: [1; 4], strides: [1; 4] }, Place::Value)
    }

    /// A tensor between operations.
    pub(super) fn inner(&mut self, dtype: DataType, form: Form) -> Result<Node> {
        self.next += 1;
        self.tensor(FIRST_ID + self.next, dtype, form, Place::Virtual)
    }

    fn tensor(&mut self, id: i64, dtype: DataType, form: Form, place: Place) -> Result<Node> {
        let tensor = tensor(id, dtype, (&form.extents, &form.strides), place)?;
        self.tensors.push((tensor, form));
        Ok(Node(self.tensors.len() - 1))
    }

    /// Extents and strides of a tensor.
    pub(super) fn form(&self, node: Node) -> Form {
        self.tensors[node.0].1
    }

    fn descriptor(&self, node: Node) -> &Descriptor {
        &self.tensors[node.0].0
    }

    /// `c = a b`, with sums in f32.
    pub(super) fn product(&mut self, a: Node, b: Node, c: Node) -> Result<()> {
        let mut setting = Descriptor::new(Kind::Matmul)?;
        setting.set(Attribute::MatmulPrecision, DataType::F32)?;
        setting.finalize()?;
        let mut operation = Descriptor::new(Kind::OperationMatmul)?;
        operation.refer(Attribute::OperationMatmulA, self.descriptor(a))?;
        operation.refer(Attribute::OperationMatmulB, self.descriptor(b))?;
        operation.refer(Attribute::OperationMatmulC, self.descriptor(c))?;
        operation.refer(Attribute::OperationMatmulDescriptor, &setting)?;
        self.add(operation)
    }

    /// `y = mode(x, b, t)` of each element, computed in `precision`; `axis` is that of [`PointwiseMode::Index`]. The
    /// operand `t` decides a [`PointwiseMode::Select`]: x where it is true, else b.
    pub(super) fn pointwise(&mut self, of: Pointwise, y: Node) -> Result<()> {
        let mut setting = Descriptor::new(Kind::Pointwise)?;
        setting.set(Attribute::PointwiseMode, of.mode)?;
        setting.set(Attribute::PointwisePrecision, of.precision)?;
        if let Some(axis) = of.axis {
            setting.set(Attribute::PointwiseAxis, axis)?;
        }
        setting.finalize()?;
        let mut operation = Descriptor::new(Kind::OperationPointwise)?;
        operation.refer(Attribute::OperationPointwiseDescriptor, &setting)?;
        operation.refer(Attribute::OperationPointwiseX, self.descriptor(of.x))?;
        operation.refer(Attribute::OperationPointwiseY, self.descriptor(y))?;
        for (attribute, node) in [(Attribute::OperationPointwiseB, of.b), (Attribute::OperationPointwiseT, of.t)] {
            if let Some(node) = node {
                operation.refer(attribute, self.descriptor(node))?;
            }
        }
        self.add(operation)
    }

    /// [`Self::pointwise`] into a tensor between operations, of the form of `x`.
    pub(super) fn mapped(&mut self, of: Pointwise, dtype: DataType) -> Result<Node> {
        let y = self.inner(dtype, self.form(of.x))?;
        self.pointwise(of, y)?;
        Ok(y)
    }

    /// `y` = the sums, or largest elements, of `x` along each dimension where `y` has one element; of several
    /// neighbours along a dimension where `y` has fewer.
    pub(super) fn reduction(&mut self, operator: ReductionOperator, x: Node, y: Node) -> Result<()> {
        let mut setting = Descriptor::new(Kind::Reduction)?;
        setting.set(Attribute::ReductionPrecision, DataType::F32)?;
        setting.set(Attribute::ReductionOperator, operator)?;
        setting.set(Attribute::ReductionIsDeterministic, true)?;
        setting.finalize()?;
        let mut operation = Descriptor::new(Kind::OperationReduction)?;
        operation.refer(Attribute::OperationReductionDescriptor, &setting)?;
        operation.refer(Attribute::OperationReductionX, self.descriptor(x))?;
        operation.refer(Attribute::OperationReductionY, self.descriptor(y))?;
        self.add(operation)
    }

    /// The elements of `x` as a tensor of another form; the tensor between operations.
    pub(super) fn reshaped(&mut self, x: Node, dtype: DataType, form: Form) -> Result<Node> {
        let y = self.inner(dtype, form)?;
        let mut operation = Descriptor::new(Kind::OperationReshape)?;
        operation.refer(Attribute::OperationReshapeX, self.descriptor(x))?;
        operation.refer(Attribute::OperationReshapeY, self.descriptor(y))?;
        self.add(operation)?;
        Ok(y)
    }

    fn add(&mut self, mut operation: Descriptor) -> Result<()> {
        operation.finalize()?;
        self.operations.push(operation);
        Ok(())
    }

    /// The operations, in order.
    pub(super) fn operations(&self) -> Vec<&Descriptor> {
        self.operations.iter().collect()
    }
}

/// An operation on each element.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pointwise {
    mode: PointwiseMode,
    precision: DataType,
    axis: Option<i64>,
    x: Node,
    b: Option<Node>,
    t: Option<Node>,
}

impl Pointwise {
    /// Of one operand, in f32.
    pub(super) fn of(mode: PointwiseMode, x: Node) -> Pointwise {
        Pointwise { mode, precision: DataType::F32, axis: None, x, b: None, t: None }
    }

    /// Of two operands, in f32.
    pub(super) fn of_two(mode: PointwiseMode, x: Node, b: Node) -> Pointwise {
        Pointwise { b: Some(b), ..Pointwise::of(mode, x) }
    }

    /// `x` where `condition` is true, else `b`.
    pub(super) fn select(x: Node, b: Node, condition: Node) -> Pointwise {
        Pointwise { t: Some(condition), ..Pointwise::of_two(PointwiseMode::Select, x, b) }
    }

    /// The number of each element of `like` along an axis.
    pub(super) fn index(like: Node, axis: i64) -> Pointwise {
        Pointwise { axis: Some(axis), ..Pointwise::of(PointwiseMode::Index, like) }
    }

    /// Computed in another type.
    pub(super) fn in_type(self, precision: DataType) -> Pointwise {
        Pointwise { precision, ..self }
    }
}
