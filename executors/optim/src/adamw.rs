//! AdamW of many parameters in one launch.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::argument::map_arguments;
use fulgurite_runtime::rules::{Address, Arg, DeviceTensor, Failure, LaunchShape, Plan, Result};
use fulgurite_runtime::trace::{Block, BoundSymbol, ValueId};
use fulgurite_runtime::{DType, binds, source_files};
use rustc_hash::FxHashMap;

use super::optim;
use super::tables::{MOST_TENSORS, numbers, table};
use fulgurite_executor_cuda::support::{THREADS, has_kernels_for, pack_of, type_of};
use fulgurite_executor_regions::widening::widened;
use fulgurite_ops::optim::adamw::ARGUMENTS;

/// The most settings of a launch: the warp that computes the numbers of the step has a thread for each.
const MOST_SETTINGS: usize = 32;

/// What the kernel calls a setting: where learning rate and step are, and whether the update is to be made, and the
/// bits of β₁, β₂, weight decay and ε.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Setting {
    lr: Address,
    step: Address,
    apply: Option<Address>,
    rates: [u64; 4],
}

/// One update: the parameter, its gradient and moments, and the three results.
struct Update {
    setting: Setting,
    tensors: [DeviceTensor; 7],
}

impl Update {
    /// `rates` are β₁, β₂, weight decay and ε; `tensors` the parameter, its gradient, its moments.
    fn new(
        tensors: [&DeviceTensor; 4],
        ([lr, step], apply): ([&DeviceTensor; 2], Option<&DeviceTensor>),
        rates: [f64; 4],
        results: [&DeviceTensor; 3],
    ) -> Update {
        let apply = apply.map(|apply| apply.address);
        let setting = Setting { lr: lr.address, step: step.address, apply, rates: rates.map(f64::to_bits) };
        let [param, grad, mean, square] = tensors;
        let [next, next_mean, next_square] = results;
        Update { setting, tensors: [param, grad, mean, square, next, next_mean, next_square].map(DeviceTensor::clone) }
    }

    /// What the kernel is compiled for.
    fn kind(&self) -> Kind {
        let all: Vec<&DeviceTensor> = self.tensors.iter().collect();
        Kind {
            param: self.tensors[0].dtype(),
            grad: self.tensors[1].dtype(),
            moment: self.tensors[2].dtype(),
            pack: pack_of(0, all.iter().map(|tensor| tensor.dtype().size()).max().unwrap_or(1), &all),
            conditional: self.setting.apply.is_some(),
        }
    }
}

/// What the kernel is compiled for: element types of parameter, gradient and moments, how many elements are read at
/// once, and whether a tensor says if the update is made.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Kind {
    param: DType,
    grad: DType,
    moment: DType,
    pack: usize,
    conditional: bool,
}

/// Plans all updates: those of a kind in one launch, as long as the tables have room.
fn plan_all(plan: &mut Plan, updates: &[Update]) -> Result<()> {
    let mut kinds: Vec<(Kind, Vec<Vec<&Update>>)> = Vec::new();
    for update in updates.iter().filter(|update| !update.tensors[0].is_empty()) {
        let kind = update.kind();
        let at = kinds.iter().position(|(other, _)| *other == kind).unwrap_or_else(|| {
            kinds.push((kind, vec![Vec::new()]));
            kinds.len() - 1
        });
        let launches = &mut kinds[at].1;
        let last = launches.len() - 1;
        let settings = settings_of(&launches[last]);
        let room = launches[last].len() < MOST_TENSORS
            && (settings.contains(&update.setting) || settings.len() < MOST_SETTINGS);
        if room {
            launches[last].push(update);
        } else {
            launches.push(vec![update]);
        }
    }
    for (kind, launches) in kinds {
        for updates in launches {
            launch(plan, kind, &updates)?;
        }
    }
    Ok(())
}

fn settings_of(updates: &[&Update]) -> Vec<Setting> {
    let mut settings: Vec<Setting> = Vec::new();
    for update in updates {
        if !settings.contains(&update.setting) {
            settings.push(update.setting);
        }
    }
    settings
}

fn launch(plan: &mut Plan, kind: Kind, updates: &[&Update]) -> Result<()> {
    let settings = settings_of(updates);
    plan.source(source_files!["chunks.cuh", "adamw.cu"]);
    plan.define("ELEMENT", type_of(kind.param));
    plan.define("GRAD", type_of(kind.grad));
    plan.define("MOMENT", type_of(kind.moment));
    plan.define("PACK", kind.pack);
    plan.define("ALIGNED", 1);
    plan.define("CONDITIONAL", u32::from(kind.conditional));
    plan.define("THREADS", THREADS);
    plan.define("TENSORS", updates.len());
    plan.define("SETTINGS", settings.len());
    let step_numbers = plan.workspace((settings.len() * 4 * size_of::<f32>()) as u64);
    let scalars: Vec<Address> =
        settings.iter().flat_map(|setting| [setting.lr, setting.step].into_iter().chain(setting.apply)).collect();
    // Of each rate all settings, one after another.
    let rates = numbers((0..4).flat_map(|rate| settings.iter().map(move |setting| setting.rates[rate].to_le_bytes())));
    plan.launch("adamw_numbers", LaunchShape::linear(1, 32), binds![scalars, rates.clone(), step_numbers])?;

    let tensors: Vec<Address> =
        updates.iter().flat_map(|update| update.tensors.iter().map(|tensor| tensor.address)).collect();
    let (table, blocks) = table(&updates.iter().map(|update| update.tensors[0].len()).collect::<Vec<_>>());
    let choice = numbers(updates.iter().map(|update| {
        let setting = settings.iter().position(|setting| *setting == update.setting).unwrap_or(0);
        (setting as u32).to_le_bytes()
    }));
    let parameters = binds![tensors, table, choice, rates, step_numbers];
    plan.launch("adamw", LaunchShape::linear(blocks, THREADS), parameters)
}

/// Whether a line is an update: the operator that this executor implements for several tensors at once.
pub(super) fn is_update(symbol: &BoundSymbol) -> bool {
    symbol.operator() == Some(&fulgurite_ops::optim::adamw::OPERATOR)
}

/// A region is a list of updates that do not read each other's results, and before them what widens gradients.
pub fn plan_region(plan: &mut Plan, body: &Block, operands: &[DeviceTensor], results: &[DeviceTensor]) -> Result<()> {
    let broken = || Failure::new("Region", "a region of the optim executor is no list of independent updates");
    let mut tensors: FxHashMap<ValueId, DeviceTensor> =
        body.parameters.iter().copied().zip(operands.iter().cloned()).collect();
    let written_to: FxHashMap<ValueId, &DeviceTensor> = body.results.iter().copied().zip(results).collect();
    let mut updates = Vec::with_capacity(body.symbols.len());
    for symbol in &body.symbols {
        if let Some((from, to)) = widened(body, symbol) {
            // The kernel widens.
            let gradient = tensors.get(&from).ok_or_else(broken)?.clone();
            tensors.insert(to, gradient);
            continue;
        }
        if !is_update(symbol) {
            return Err(broken());
        }
        symbol.operands().try_for_each(|id| tensors.get(&id).ok_or_else(broken).map(drop))?;
        let arguments: Vec<Arg<DeviceTensor>> = map_arguments(&symbol.arguments, |id| tensors[id].clone());
        let written: Vec<DeviceTensor> = symbol
            .results
            .iter()
            .map(|id| written_to.get(id).copied().cloned().ok_or_else(broken))
            .collect::<Result<_>>()?;
        let [next, mean, square] = &written[..] else { return Err(broken()) };
        let a = &arguments[..];
        updates.push(Update::new(
            [ARGUMENTS.param.read(a), ARGUMENTS.grad.read(a), ARGUMENTS.exp_avg.read(a), ARGUMENTS.exp_avg_sq.read(a)],
            ([ARGUMENTS.lr.read(a), ARGUMENTS.step.read(a)], ARGUMENTS.apply.read(a).as_ref()),
            [
                *ARGUMENTS.beta1.read(a),
                *ARGUMENTS.beta2.read(a),
                *ARGUMENTS.weight_decay.read(a),
                *ARGUMENTS.eps.read(a),
            ],
            [next, mean, square],
        ));
    }
    plan_all(plan, &updates)
}

#[implementation(of = fulgurite_ops::optim::adamw, by = optim, in_place)]
mod adamw_by_optim {
    fn checker(
        param: &TensorMeta,
        grad: &TensorMeta,
        exp_avg: &TensorMeta,
        lr: &TensorMeta,
        step: &TensorMeta,
    ) -> Claim {
        for (name, tensor) in [("param", param), ("grad", grad)] {
            refuse_unless!(has_kernels_for(tensor.dtype()), "{name} is {}, takes f32, bf16 and f16", tensor.dtype());
        }
        let moment = exp_avg.dtype();
        refuse_unless!(has_kernels_for(moment), "exp_avg is {moment}, takes f32, bf16 and f16");
        for (name, tensor) in [("lr", lr), ("step", step)] {
            refuse_unless!(tensor.dtype() == DType::F32, "{name} is {}, takes f32", tensor.dtype());
        }
        Ok(())
    }

    fn plan(
        plan: &mut Plan,
        param: &DeviceTensor,
        grad: &DeviceTensor,
        exp_avg: &DeviceTensor,
        exp_avg_sq: &DeviceTensor,
        lr: &DeviceTensor,
        step: &DeviceTensor,
        beta1: f64,
        beta2: f64,
        eps: f64,
        weight_decay: f64,
        apply: Option<&DeviceTensor>,
        out: &DeviceTensor,
        mean: &DeviceTensor,
        square: &DeviceTensor,
    ) -> Result<()> {
        let update = super::Update::new(
            [param, grad, exp_avg, exp_avg_sq],
            ([lr, step], apply),
            [beta1, beta2, weight_decay, eps],
            [out, mean, square],
        );
        super::plan_all(plan, &[update])
    }
}
