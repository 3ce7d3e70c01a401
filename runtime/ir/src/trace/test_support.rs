//! Operators, executors and random traces for the tests of this folder.

// The crate `compile` has this file too, for its own tests.
#[path = "test_support/alike.rs"]
mod alike;
#[path = "test_support/random.rs"]
mod random;

pub use random::Random;
use random::{FLOATS, STRINGS};

use std::sync::Arc;

use fulgurite_kernels::DType;

use crate::argument::{Arg, Attribute, AttributeType, Scalar};
use crate::error::Failure;
use crate::executor::{Claim, EXECUTORS, ExecutorDef, HostKernel};
use crate::expansion;
use crate::kernel::KernelRules;
use crate::meta::{Device, Target, TensorMeta};
use crate::operator::{Class, Effects, OperatorDef, OperatorKind, ParamDef, ParamKind, ResultsDef};
use crate::refusal::Refusal;
use crate::registry::{OPERATORS, find_operator};
use crate::stream_kind::StreamKind;
use crate::strided::{LayoutRules, Strided, View};
use crate::trace::{
    Block, BoundSymbol, Callee, Input, InputRole, Output, Pass, Results, Schedule, Storage, Trace, ValueId,
};
use crate::tracer::rules::TracingRules;
use crate::tracer::{Tensor, call};

const FILE: &str = "trace/test_support.rs";

/// The result is as the first tensor.
const SAME: TracingRules = TracingRules { meta: Some(&same), ..TracingRules::EMPTY };

const BASE: OperatorDef =
    OperatorDef { kind: OperatorKind::Prim, rules: &[&SAME], file: FILE, ..crate::expansion::OPERATOR };

const fn tensor(name: &'static str) -> ParamDef {
    expansion::tensor::define(name, Class::Any)
}
const fn optional(name: &'static str) -> ParamDef {
    expansion::optional::define(name, Class::Any)
}
const fn operand(name: &'static str) -> ParamDef {
    expansion::operand::define(name, Class::Any)
}
const fn list(name: &'static str) -> ParamDef {
    expansion::list::define(name, Class::Any)
}
const fn attribute<T: AttributeType>(name: &'static str) -> ParamDef {
    expansion::attribute::define::<T>(name)
}

crate::attribute_enum! {
    /// A mode with two words.
    pub enum Mode {
        /// No reduction.
        None = "none",
        /// Mean.
        Mean = "mean",
    }
}

type Metas = Result<Vec<TensorMeta>, Failure>;

/// The first tensor's meta.
fn same(arguments: &[Arg<TensorMeta>]) -> Metas {
    let first = arguments.iter().flat_map(|argument| argument.tensors()).next();
    Ok(vec![first.cloned().unwrap_or_else(|| TensorMeta::new([], DType::F32, Device::CPU))])
}

/// The first tensor's memory, in order.
fn look(arguments: &[Arg<Strided>]) -> Option<View> {
    let seen = arguments[0].tensors().first()?;
    Some(View { strides: seen.strides.clone(), offset: 0 })
}

fn size(argument: &Arg<TensorMeta>) -> Result<usize, Failure> {
    let Arg::Attribute(attribute) = argument else { return Err(Failure::new("Size", "expected a size")) };
    usize::from_attribute(attribute).ok_or_else(|| Failure::new("Size", "expected a size"))
}

fn handle(argument: &Arg<Tensor>) -> Tensor {
    argument.tensors()[0]
}

pub fn op(name: &str) -> &'static OperatorDef {
    find_operator(name).unwrap()
}

macro_rules! operators {
    ($($id:ident: $name:literal { $($body:tt)* })*) => {$(
        #[linkme::distributed_slice(OPERATORS)]
        static $id: &OperatorDef = &OperatorDef { name: $name, $($body)*, ..BASE };
    )*};
}

operators! {
    EXP: "tt::exp" { params: &[tensor("input")] }
    OWN: "tt::own" { params: &[tensor("input")], kind: OperatorKind::Symbol(&["tt_host"]) }
    SHARED: "tt::shared" { params: &[tensor("input")], kind: OperatorKind::Symbol(&["tt_elsewhere", "tt_host"]) }
    CHEAP: "tt::cheap" { params: &[tensor("input")], cheap: true }
    WIDEN: "tt::widen" { params: &[tensor("input")], cheap: true, rules: &[&TracingRules { meta: Some(&|a| {
        Ok(vec![a[0].tensors()[0].with_dtype(DType::F64)])
    }), ..SAME }] }
    ADD: "tt::add" { params: &[operand("input"), operand("other")] }
    MIXED: "tt::mixed" { params: &[tensor("input"), optional("weight"), operand("other"), tensor("last")] }
    CAT: "tt::cat" { params: &[list("tensors"), attribute::<i64>("dim")] }
    GATHER: "tt::gather" { params: &[tensor("input"), list("others"), attribute::<i64>("dim")] }
    EVERY: "tt::every" { params: &[
        tensor("input"), attribute::<bool>("flag"), attribute::<i64>("count"), attribute::<usize>("size"),
        attribute::<f64>("rate"), attribute::<Scalar>("number"), attribute::<String>("text"),
        attribute::<Option<DType>>("dtype"), attribute::<Mode>("mode"), attribute::<Vec<i64>>("dims"),
        attribute::<Vec<Vec<f64>>>("nested"), attribute::<Option<f64>>("maybe"),
    ] }
    TOPK: "tt::topk" { params: &[tensor("input"), attribute::<usize>("k")],
        results: ResultsDef::Named(&["values", "indices"]),
        rules: &[&TracingRules { meta: Some(&|a| {
        let (input, k) = (a[0].tensors()[0].clone(), size(&a[1])?);
        if input.shape() != [k] { return Err(Failure::new("K", format!("input is {input}, expected {k} elements"))); }
        Ok(vec![input.clone(), input.with_dtype(DType::I64)])
    }), ..SAME }] }
    SPLIT: "tt::split" { params: &[tensor("input"), attribute::<usize>("parts")], results: ResultsDef::List,
        rules: &[&TracingRules { meta: Some(&|a| {
        Ok(vec![a[0].tensors()[0].clone(); size(&a[1])?.min(9)])
    }), ..SAME }] }
    MEAN: "tt::mean" { params: &[tensor("input")],
        rules: &[&TracingRules { meta: Some(&|a| Ok(vec![a[0].tensors()[0].with_shape([])])), ..SAME }] }
    IDENTITY: "tt::identity" { params: &[tensor("input")], kind: OperatorKind::Composite,
        rules: &[&TracingRules { decomposition: Some(&|a| vec![handle(&a[0])]), ..SAME }] }
    NORM: "tt::norm" { params: &[tensor("input"), optional("weight"), attribute::<f64>("eps")],
        kind: OperatorKind::Composite, rules: &[&TracingRules { decomposition: Some(&|a| {
            let x = call(op("tt::exp"), vec![a[0].clone()])[0];
            let x = call(op("tt::identity"), vec![Arg::Tensor(x)])[0];
            match a[1].tensors() {
                [weight] => call(op("tt::add"), vec![Arg::Tensor(x), Arg::Tensor(*weight)]),
                _ => vec![x],
            }
        }), ..SAME }] }
    DEEP: "tt::deep" { params: &[tensor("input"), optional("weight")], kind: OperatorKind::Composite,
        rules: &[&TracingRules { decomposition: Some(&|a| {
        let eps = Arg::Attribute(Attribute::Scalar(Scalar::Float(1e-5)));
        let x = call(op("tt::norm"), vec![a[0].clone(), a[1].clone(), eps.clone()]);
        call(op("tt::norm"), vec![Arg::Tensor(x[0]), a[1].clone(), eps])
    }), ..SAME }] }
    UPDATE: "tt::update" { params: &[tensor("input"), tensor("delta")], kind: OperatorKind::Symbol(&["tt_host"]),
        rules: &[&SAME, &KernelRules { in_place: true, ..KernelRules::EMPTY }] }
    LOOK: "tt::look" { params: &[tensor("input")],
        rules: &[&SAME, &LayoutRules { view: Some(&look), ..LayoutRules::EMPTY }] }
    DROPOUT: "tt::dropout" { params: &[tensor("input")], effects: Effects { random: true, ..Effects::NONE } }
    REDUCE: "tt::all_reduce" { params: &[tensor("input")], effects: Effects { collective: true, ..Effects::NONE } }
    REDUCE_ALONG: "tt::reduce_along" { params: &[tensor("input"), attribute::<String>("axis")],
        effects: Effects { collective: true, axis: Some(1), ..Effects::NONE } }
    BARRIER: "tt::barrier" { params: &[tensor("input")], results: ResultsDef::Named(&[]),
        rules: &[&TracingRules { meta: Some(&|_| Ok(vec![])), ..SAME }],
        effects: Effects { collective: true, ..Effects::NONE } }
    SLY_RANDOM: "tt::sly_random" { params: &[tensor("input")], kind: OperatorKind::Composite,
        rules: &[&TracingRules { decomposition: Some(&|a| call(op("tt::dropout"), vec![a[0].clone()])), ..SAME }] }
    SLY_COLLECTIVE: "tt::sly_collective" { params: &[tensor("input")], kind: OperatorKind::Composite,
        rules: &[&TracingRules { decomposition: Some(&|a| call(op("tt::all_reduce"), vec![a[0].clone()])), ..SAME }] }
    CHECKPOINT: "checkpoint" { params: &[tensor("input")] }
    REGION: "region" { params: &[tensor("input")] }
    DEL: "del" { params: &[tensor("input")], results: ResultsDef::Named(&[]),
        rules: &[&TracingRules { meta: Some(&|_| Ok(vec![])), ..SAME }] }
    FAILS: "tt::fails" { params: &[tensor("input")], kind: OperatorKind::Composite,
        rules: &[&TracingRules { decomposition: Some(&|a| {
            let seven = Arg::Attribute(Attribute::Scalar(Scalar::Int(7)));
            call(op("tt::topk"), vec![a[0].clone(), seven])
        }), ..SAME }] }
}

/// What the executors here claim.
fn takes(def: &'static OperatorDef, _: &[Arg<TensorMeta>]) -> Claim {
    if ["tt::exp", "tt::add"].contains(&def.name) { Ok(()) } else { Err("takes exp and add".into()) }
}

/// No trace of these tests is run.
fn region(_: &Block, _: &[Strided], _: &[Strided]) -> Result<HostKernel, Failure> {
    Err(Failure::new("NoKernel", "regions of these tests are not run"))
}

macro_rules! executors {
    ($($id:ident: $name:literal on $device:literal;)*) => {$(
        #[linkme::distributed_slice(EXECUTORS)]
        static $id: &ExecutorDef = &ExecutorDef {
            name: $name,
            device: $device,
            claims: Some(&takes),
            prepare_region: Some(&region),
            ..crate::expansion::EXECUTOR
        };
    )*};
}
executors! {
    HOST: "tt_host" on "cpu";
    HOST2: "tt_other_host" on "cpu";
    ELSEWHERE: "tt_elsewhere" on "tt_device";
}

/// Traces that are well formed as text; their metas are any.
pub struct Generator {
    pub random: Random,
}

impl Generator {
    fn float(&mut self) -> f64 {
        let any = self.random.next();
        f64::from_bits(if self.random.one_in(3) { any } else { self.random.pick(&FLOATS) })
    }

    fn scalar(&mut self) -> Scalar {
        match self.random.below(4) {
            0 => Scalar::Bool(self.random.one_in(2)),
            1 => Scalar::Int(self.random.pick(&[0, -1, 1, i64::MIN, i64::MAX])),
            2 => Scalar::Int(self.random.next() as i64),
            _ => Scalar::Float(self.float()),
        }
    }

    fn string(&mut self) -> String {
        self.random.pick(&STRINGS).to_owned()
    }

    fn attribute(&mut self, type_name: &str) -> Attribute {
        if let Some(inner) = type_name.strip_suffix('?') {
            return if self.random.one_in(2) { Attribute::None } else { self.attribute(inner) };
        }
        if let Some(inner) = type_name.strip_suffix("[]") {
            return Attribute::List((0..self.random.below(4)).map(|_| self.attribute(inner)).collect());
        }
        match type_name {
            "bool" => self.random.one_in(2).to_attribute(),
            "int" => (self.random.next() as i64).to_attribute(),
            "size" => (self.random.next() as usize >> 1).to_attribute(),
            "float" => self.float().to_attribute(),
            "number" => self.scalar().to_attribute(),
            "str" => self.string().to_attribute(),
            "dtype" => self.random.pick(&DType::ALL).to_attribute(),
            _ => Mode::Mean.to_attribute(),
        }
    }

    fn meta(&mut self) -> TensorMeta {
        let shape: Vec<usize> = (0..self.random.below(4)).map(|_| self.random.below(70)).collect();
        let device = self.random.pick(&[Device::CPU, Device::CPU, Device::new("cuda", 0), Device::new("cuda", 3)]);
        TensorMeta::new(shape, self.random.pick(&DType::ALL), device)
    }

    fn define(&mut self, block: &mut Block) -> ValueId {
        let base = self.string();
        let taken = |name: &str| block.values.iter().any(|value| &*value.name == name);
        let name = if taken(&base) { format!("{base}.{}", block.values.len()) } else { base };
        let meta = self.meta();
        let id = block.define(name, meta);
        block.values[id.index()].storage = match self.random.below(9) {
            0 => Some(Storage::Arena(self.random.next() >> self.random.below(64))),
            1 => Some(Storage::Output),
            // Perhaps further below.
            2 => Some(Storage::Shared(ValueId(self.random.below(block.values.len() + 1) as u32))),
            _ => None,
        };
        id
    }

    fn value(&mut self, block: &Block) -> ValueId {
        ValueId(self.random.below(block.values.len()) as u32)
    }

    /// Any values, or, now and then, some that follow one another.
    fn values(&mut self, block: &Block) -> Vec<ValueId> {
        let count = self.random.below(5);
        if self.random.one_in(3) {
            let first = self.random.below(block.values.len());
            return (first..block.values.len().min(first + 2 * count)).map(|at| ValueId(at as u32)).collect();
        }
        (0..count).map(|_| self.value(block)).collect()
    }

    pub fn block(&mut self, depth: usize) -> Block {
        let mut block = Block::default();
        for _ in 0..1 + self.random.below(5) {
            let id = self.define(&mut block);
            block.parameters.push(id);
        }
        if depth == 3 && self.random.one_in(4) {
            self.trees(&mut block);
        }
        for _ in 0..self.random.below(6) {
            let symbol = self.symbol(&mut block, depth);
            block.symbols.push(symbol);
        }
        block.results = self.values(&block);
        // Storage may have named a value that never came.
        let n = block.values.len();
        for value in &mut block.values {
            if matches!(value.storage, Some(Storage::Shared(id)) if id.index() >= n) {
                value.storage = None;
            }
        }
        block
    }

    /// A region whose body reads values of `block` by their names, often one that is written so.
    fn region(&mut self, block: &mut Block) -> BoundSymbol {
        let scope = self.random.pick(&["h.0.attn", "größe", "a.1", "1.e-5", "x"]);
        let pool = self.values(block);
        let mut body = Block::default();
        let mut inputs: Vec<ValueId> = Vec::new();
        for line in 0..1 + self.random.below(4) {
            let mut operand = |g: &mut Generator| match g.random.below(body.values.len() + pool.len()) {
                own if own < body.values.len() || pool.is_empty() => ValueId(own as u32),
                other => {
                    let outer = pool[other - body.values.len()];
                    let known = inputs.iter().position(|id| *id == outer);
                    known.map(|at| body.parameters[at]).unwrap_or_else(|| {
                        let value = block.value(outer);
                        let id = body.define(value.name.clone(), value.meta.clone());
                        body.parameters.push(id);
                        inputs.push(outer);
                        id
                    })
                }
            };
            let arguments = match pool.is_empty() && line == 0 {
                true => vec![Arg::Attribute(1.0.to_attribute()), Arg::Attribute(2.0.to_attribute())],
                false => vec![Arg::Tensor(operand(self)), Arg::Tensor(operand(self))],
            };
            let name =
                format!("{scope}.{}.{}", self.random.pick(&["add", "add.x", "0"]), 100 * block.values.len() + line);
            let meta = self.meta();
            let result = body.define(name, meta);
            let executor = if self.random.one_in(20) { "nobody" } else { "tt_host" };
            body.symbols.push(BoundSymbol {
                callee: Callee::Operator(op("tt::add")),
                arguments,
                results: std::iter::once(result).collect(),
                body: None,
                pass: self.pass(),
                executor: Some(executor),
                schedule: Default::default(),
                refusals: Vec::new(),
                place: None,
            });
            if self.random.one_in(2) {
                body.results.push(result);
            }
        }
        if self.random.one_in(20) {
            body.results.reverse();
        }
        let results = body.results.iter().map(|id| block.define(body.value(*id).name.clone(), body.meta(*id).clone()));
        let results = results.collect();
        BoundSymbol {
            callee: Callee::Region { executor: "tt_host" },
            arguments: vec![Arg::List(inputs)],
            results,
            body: Some(Arc::new(body.canonical())),
            pass: self.pass(),
            executor: Some("tt_host"),
            schedule: Default::default(),
            refusals: Vec::new(),
            place: None,
        }
    }

    fn pass(&mut self) -> Pass {
        if self.random.one_in(4) { self.random.pick(&Pass::ALL) } else { Pass::Forward }
    }

    fn symbol(&mut self, block: &mut Block, depth: usize) -> BoundSymbol {
        if depth > 0 && self.random.one_in(8) {
            return self.region(block);
        }
        let lists = |g: &mut Generator, block: &Block| match g.random.below(2) {
            0 => vec![Arg::List(g.values(block))],
            _ => vec![Arg::Tensor(g.value(block)), Arg::Tensor(g.value(block))],
        };
        let (callee, arguments, results) = match self.random.below(12) {
            0 => (Callee::Delete, lists(self, block), 0),
            1 => {
                let wrt = (0..self.random.below(4)).map(|_| self.random.below(9)).collect();
                (Callee::ValueAndGrad { wrt }, lists(self, block), 1 + self.random.below(4))
            }
            2 => (Callee::Checkpoint, lists(self, block), 1 + self.random.below(3)),
            3 => (Callee::Region { executor: "tt_host" }, lists(self, block), 1 + self.random.below(3)),
            _ => {
                // Other tests of this crate may register operators too.
                let mut own: Vec<_> = OPERATORS.iter().copied().filter(|def| def.file == FILE).collect();
                own.sort_by_key(|def| def.name);
                let def: &'static OperatorDef = self.random.pick(&own);
                let arguments = def.params.iter().map(|param| match param.kind {
                    ParamKind::Tensor(_) => Arg::Tensor(self.value(block)),
                    ParamKind::Optional(_) if self.random.one_in(2) => Arg::Optional(None),
                    ParamKind::Optional(_) => Arg::Optional(Some(self.value(block))),
                    ParamKind::List(_) => Arg::List(self.values(block)),
                    ParamKind::Operand(_) if self.random.one_in(2) => Arg::Attribute(self.scalar().to_attribute()),
                    ParamKind::Operand(_) => Arg::Tensor(self.value(block)),
                    ParamKind::Attribute => Arg::Attribute(self.attribute(&(param.type_name)())),
                });
                let arguments = arguments.collect();
                let results = match def.results {
                    ResultsDef::Named(names) => names.len(),
                    ResultsDef::List => self.random.below(4),
                };
                (Callee::Operator(def), arguments, results)
            }
        };
        let earlier: Vec<ValueId> = (0..block.values.len() as u32).map(ValueId).collect();
        let results: Results = (0..results).map(|_| self.define(block)).collect();
        let delete = callee == Callee::Delete;
        let body = (depth > 0 && !delete && self.random.one_in(3)).then(|| Arc::new(self.block(depth - 1)));
        let executors = ["tt_host", "tt_elsewhere", "nobody", "a b", crate::executor::VIEW];
        let executor = (!delete && self.random.one_in(3)).then(|| self.random.pick(&executors));
        let streams = [StreamKind::Compute, StreamKind::Compute, StreamKind::Copy, StreamKind::Communication];
        let schedule = match !delete && self.random.one_in(4) {
            true => Schedule {
                stream: self.random.pick(&streams),
                after: (0..self.random.below(3)).map(|_| earlier[self.random.below(earlier.len())]).collect(),
            },
            false => Schedule::default(),
        };
        let refusals = if delete { 0 } else { self.random.below(8).saturating_sub(5) };
        let refusals =
            (0..refusals).map(|_| Refusal { executor: self.random.pick(&executors), reason: self.string() }).collect();
        BoundSymbol { callee, arguments, results, body, pass: self.pass(), executor, schedule, refusals, place: None }
    }

    pub fn trace(&mut self) -> Trace {
        let block = self.block(3);
        let inputs = block.parameters.iter().map(|_| Input {
            role: self.random.pick(&[InputRole::Input, InputRole::Parameter, InputRole::Saved, InputRole::Cotangent]),
            donated: self.random.one_in(3),
            strides: self
                .random
                .one_in(3)
                .then(|| (0..self.random.below(4)).map(|_| self.random.next() as isize).collect()),
        });
        let inputs = inputs.collect();
        let outputs = block
            .results
            .iter()
            .map(|_| Output { path: if self.random.one_in(3) { String::new() } else { self.string() } });
        let outputs = outputs.collect();
        let history = (0..self.random.below(4)).map(|_| self.string()).collect();
        let target: Target = self.random.pick(&["cpu", "cuda:sm_90a", "tt_device"]).parse().unwrap();
        let arena = self.random.one_in(2).then(|| self.random.next());
        Trace { name: self.string(), target, history, inputs, outputs, arena, block }
    }
}

/// A trace that is right in every respect, and uses much of the language. All types are in the text.
pub const GOOD: &str = "\
# fulgurite trace 2
# made by acquire, delete-last-used
# memory: 160 resident (128 in inputs, 32 in outputs) + 96 transient = 256 bytes
trace step for cpu (
  params.w: f32[8] parameter donated,
  x: f32[8] strides [1],
  saved: f32[8] saved,
  dy: f32[8] cotangent,
) arena 96 {
  exp: f32[8] = tt::exp(x) by tt_host
    refused by liger: \"needs CUDA, input is on cpu\"
  view: f32[8] = tt::look(exp) by view
  values: f32[8], indices: i64[8] = tt::topk(view, k=8); del exp, view
  norm: f32[8] = tt::norm(values, weight=x, eps=1e-5) {
    exp: f32[8] = tt::exp(input)
    identity: f32[8] = tt::identity(exp) {
      yield input
    }
    yield add: f32[8] = tt::add(identity, weight)
  }
  h.0: f32[8] = region([norm, dy], executor=tt_host) by tt_host {
    (a, b: f32[8])
    yield r: f32[8] = tt::add(a, b) by tt_host
  }
  region by tt_host in block.1 {
    .exp: f32[8] = tt::exp(h.0)
    yield .add: f32[8] = tt::add(.exp, x)
  }
  many, many.1: f32[8] = tt::split(saved, parts=2)
  mixed: f32[8] = tt::mixed(x, other=-0.0, last=many)
  cat: f32[8] = tt::cat([mixed, x], dim=0)
  every: f32[8] = tt::every(cat, flag=true, count=-3, size=4, rate=nan(0xfff8000000000001), number=2, text=\"a \\\"b\\\"\\n\",
      dtype=bf16, mode=\"mean\", dims=[0, -1], nested=[[1.0], [], [inf, -inf]])
  tt::barrier(every)
  loss: f32[], grad.w: f32[8] = value_and_grad([params.w, x], wrt=[0]) {
    (w, x: f32[8])
    yield mean: f32[] = tt::mean(w)
  }
  new: f32[8] = tt::update(params.w, every)
  return loss = loss, params.w = new, h.0
  memory {
    exp at 0, view in exp, values at 32, norm at 0, loss at none
  }
}
";

/// The same as it is printed.
pub const SHORT: &str = "\
# fulgurite trace 2
# made by acquire, delete-last-used
# memory: 160 resident (128 in inputs, 32 in outputs) + 96 transient = 256 bytes
trace step for cpu (
  params.w: f32[8] parameter donated,
  x: f32[8] strides [1], saved: f32[8] saved, dy: f32[8] cotangent,
) arena 96 {
  exp = tt::exp(x) by tt_host
    refused by liger: \"needs CUDA, input is on cpu\"
  view = tt::look(exp) by view
  values: f32[8], indices: i64[8] = tt::topk(view, k=8); del exp, view
  norm = tt::norm(values, weight=x, eps=1e-5) {
    exp = tt::exp(input)
    identity = tt::identity(exp) {
      yield input
    }
    yield add = tt::add(identity, weight)
  }
  h.0: f32[8] = region([norm, dy], executor=tt_host) by tt_host {
    (a, b: f32[8])
    yield r = tt::add(a, b) by tt_host
  }
  region by tt_host in block.1 {
    .exp = tt::exp(h.0)
    yield .add = tt::add(.exp, x)
  }
  many, many.1 = tt::split(saved, parts=2)
  mixed = tt::mixed(x, other=-0.0, last=many)
  cat: f32[8] = tt::cat([mixed, x], dim=0)
  every = tt::every(cat, flag=true, count=-3, size=4, rate=nan(0xfff8000000000001), number=2, text=\"a \\\"b\\\"\\n\",
      dtype=bf16, mode=\"mean\", dims=[0, -1], nested=[[1.0], [], [inf, -inf]])
  tt::barrier(every)
  loss: f32[], grad.w: f32[8] = value_and_grad([params.w, x], wrt=[0]) {
    (w, x: f32[8])
    yield mean: f32[] = tt::mean(w)
  }
  new = tt::update(params.w, every)
  return loss = loss, params.w = new, h.0
  memory {
    exp at 0, values at 32, norm at 0, loss at none
  }
}
";
