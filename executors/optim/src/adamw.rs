//! AdamW and Adam of many parameters in one launch. The arguments of both operators have the same places.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::argument::map_arguments;
use fulgurite_runtime::rules::{Address, Arg, Claim, DeviceTensor, LaunchShape, Plan, Result};
use fulgurite_runtime::trace::ValueId;
use fulgurite_runtime::{DType, TensorMeta, binds, refuse_unless, source_files};

use super::optim;
use super::region::{Updated, broken};
use super::tables::{MOST_TENSORS, numbers, table};
use fulgurite_executor_cuda::support::{THREADS, has_kernels_for, pack_of, type_of};
use fulgurite_ops::optim::adam;
use fulgurite_ops::optim::adamw::ARGUMENTS;

/// The most settings of a launch: the warp that computes the numbers of the step has a thread for each.
const MOST_SETTINGS: usize = 32;

/// Numbers of the step that are computed of each setting.
const NUMBERS: usize = 5;

/// What the kernel calls a setting: where learning rate and step are, and whether the update is to be made, what
/// gradients are scaled by, and the bits of β₁, β₂, weight decay and ε.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Setting {
    lr: Address,
    step: Address,
    /// Of the two: f32 or f64, as the host has them.
    dtypes: [DType; 2],
    apply: Option<Address>,
    clip: Option<Clip>,
    rates: [u64; 4],
}

/// Where the norm of all gradients is, the largest that is left as it is, and the type that scaled gradients have.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Clip {
    norm: Address,
    max_norm: f64,
    dtype: DType,
}

/// One update: the parameter, its gradient and moments, the three results, and a copy of the new parameter in another
/// type.
struct Update {
    setting: Setting,
    /// Whether the decay is a part of the gradient: of Adam.
    coupled: bool,
    tensors: [DeviceTensor; 7],
    copy: Option<DeviceTensor>,
}

impl Update {
    /// `rates` are β₁, β₂, weight decay and ε; `tensors` the parameter, its gradient, its moments.
    fn new(
        tensors: [&DeviceTensor; 4],
        ([lr, step], apply): ([&DeviceTensor; 2], Option<&DeviceTensor>),
        rates: [f64; 4],
        results: [&DeviceTensor; 3],
        coupled: bool,
    ) -> Update {
        let apply = apply.map(|apply| apply.address);
        let rates = rates.map(f64::to_bits);
        let dtypes = [lr.dtype(), step.dtype()];
        let setting = Setting { lr: lr.address, step: step.address, dtypes, apply, clip: None, rates };
        let [param, grad, mean, square] = tensors;
        let [next, next_mean, next_square] = results;
        let tensors = [param, grad, mean, square, next, next_mean, next_square].map(DeviceTensor::clone);
        Update { setting, coupled, tensors, copy: None }
    }

    /// All tensors, in the order in which the kernel has them.
    fn all(&self) -> impl Iterator<Item = &DeviceTensor> {
        self.tensors.iter().chain(&self.copy)
    }

    /// What the kernel is compiled for.
    fn kind(&self) -> Kind {
        let all: Vec<&DeviceTensor> = self.all().collect();
        Kind {
            param: self.tensors[0].dtype(),
            grad: self.tensors[1].dtype(),
            moment: self.tensors[2].dtype(),
            copy: self.copy.as_ref().map(|copy| copy.dtype()),
            scaled: self.setting.clip.map(|clip| clip.dtype),
            numbers: self.setting.dtypes,
            pack: pack_of(0, all.iter().map(|tensor| tensor.dtype().size()).max().unwrap_or(1), &all),
            conditional: self.setting.apply.is_some(),
            coupled: self.coupled,
        }
    }
}

/// What the kernel is compiled for: element types of parameter, gradient and moments, of the copy of the new parameter
/// if there is one, that of gradients that it scales, those of learning rate and step, how many elements are read at
/// once, whether a tensor says if the update is made, and whether the decay is a part of the gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Kind {
    param: DType,
    grad: DType,
    moment: DType,
    copy: Option<DType>,
    scaled: Option<DType>,
    numbers: [DType; 2],
    pack: usize,
    conditional: bool,
    coupled: bool,
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
    plan.define("COPIED", u32::from(kind.copy.is_some()));
    plan.define("COPY", type_of(kind.copy.unwrap_or(kind.param)));
    plan.define("RATE", type_of(kind.numbers[0]));
    plan.define("STEP", type_of(kind.numbers[1]));
    plan.define("PACK", kind.pack);
    plan.define("ALIGNED", 1);
    plan.define("CONDITIONAL", u32::from(kind.conditional));
    plan.define("COUPLED", u32::from(kind.coupled));
    plan.define("CLIPPED", u32::from(kind.scaled.is_some()));
    plan.define("SCALED", type_of(kind.scaled.unwrap_or(kind.grad)));
    plan.define("THREADS", THREADS);
    plan.define("TENSORS", updates.len());
    plan.define("SETTINGS", settings.len());
    let step_numbers = plan.workspace((settings.len() * NUMBERS * size_of::<f32>()) as u64);
    let scalars = settings.iter().flat_map(|setting| {
        let norm = setting.clip.map(|clip| clip.norm);
        [setting.lr, setting.step].into_iter().chain(setting.apply).chain(norm)
    });
    let scalars: Vec<Address> = scalars.collect();
    // Of each rate all settings, one after another; behind them the largest norms.
    let of_rates = (0..4).flat_map(|rate| settings.iter().map(move |setting| setting.rates[rate].to_le_bytes()));
    let norms = settings.iter().filter_map(|setting| setting.clip.map(|clip| clip.max_norm.to_le_bytes()));
    let rates = numbers(of_rates.chain(norms));
    plan.launch("adamw_numbers", LaunchShape::linear(1, 32), binds![scalars, rates.clone(), step_numbers])?;

    let tensors: Vec<Address> = updates.iter().flat_map(|update| update.all().map(|tensor| tensor.address)).collect();
    let (table, blocks) = table(&updates.iter().map(|update| update.tensors[0].len()).collect::<Vec<_>>());
    let choice = numbers(updates.iter().map(|update| {
        let setting = settings.iter().position(|setting| *setting == update.setting).unwrap_or(0);
        (setting as u32).to_le_bytes()
    }));
    let parameters = binds![tensors, table, choice, rates, step_numbers];
    plan.launch("adamw", LaunchShape::linear(blocks, THREADS), parameters)
}

/// Plans the updates of a region. `tensor` gives the tensors that values of the region have.
pub(super) fn plan_updates(
    plan: &mut Plan,
    updates: &[Updated<'_>],
    tensor: &dyn Fn(ValueId) -> Result<DeviceTensor>,
) -> Result<()> {
    let mut planned = Vec::with_capacity(updates.len());
    for Updated { symbol, gradient, copy } in updates {
        let grad = tensor(gradient.value)?;
        let own = *ARGUMENTS.grad.read(&symbol.arguments);
        // The gradient as the kernel reads it has another place, and may have another type.
        symbol.operands().filter(|id| *id != own).try_for_each(|id| tensor(id).map(drop))?;
        let arguments: Vec<Arg<DeviceTensor>> =
            map_arguments(&symbol.arguments, |id| tensor(*id).unwrap_or_else(|_| grad.clone()));
        let written: Vec<DeviceTensor> = symbol.results.iter().map(|id| tensor(*id)).collect::<Result<_>>()?;
        let [next, mean, square] = &written[..] else { return Err(broken()) };
        let a = &arguments[..];
        let mut update = Update::new(
            [ARGUMENTS.param.read(a), &grad, ARGUMENTS.exp_avg.read(a), ARGUMENTS.exp_avg_sq.read(a)],
            ([ARGUMENTS.lr.read(a), ARGUMENTS.step.read(a)], ARGUMENTS.apply.read(a).as_ref()),
            [
                *ARGUMENTS.beta1.read(a),
                *ARGUMENTS.beta2.read(a),
                *ARGUMENTS.weight_decay.read(a),
                *ARGUMENTS.eps.read(a),
            ],
            [next, mean, square],
            symbol.operator() == Some(&adam::OPERATOR),
        );
        if let Some(scale) = gradient.scale {
            let (norm, max_norm) = (tensor(scale.norm)?.address, scale.max_norm);
            update.setting.clip = Some(Clip { norm, max_norm, dtype: gradient.dtype });
        }
        update.copy = copy.map(tensor).transpose()?;
        planned.push(update);
    }
    plan_all(plan, &planned)
}

/// Refuses numbers of the step of other types than the kernel reads.
fn takes_numbers(numbers: [&TensorMeta; 2]) -> Claim {
    for (name, tensor) in ["lr", "step"].into_iter().zip(numbers) {
        let dtype = tensor.dtype();
        refuse_unless!(matches!(dtype, DType::F32 | DType::F64), "{name} is {dtype}, takes f32 and f64");
    }
    Ok(())
}

#[implementation(of = fulgurite_ops::optim::adamw, by = optim, in_place)]
mod adamw_by_optim {
    fn checker(Args { param, grad, exp_avg, lr, step, .. }: Args<&TensorMeta>) -> Claim {
        for (name, tensor) in [("param", param), ("grad", grad)] {
            refuse_unless!(has_kernels_for(tensor.dtype()), "{name} is {}, takes f32, bf16 and f16", tensor.dtype());
        }
        let moment = exp_avg.dtype();
        refuse_unless!(has_kernels_for(moment), "exp_avg is {moment}, takes f32, bf16 and f16");
        super::takes_numbers([lr, step])
    }

    fn plan(
        plan: &mut Plan,
        args: Args<&DeviceTensor>,
        out: &DeviceTensor,
        mean: &DeviceTensor,
        square: &DeviceTensor,
    ) -> Result<()> {
        let Args { param, grad, exp_avg, exp_avg_sq, lr, step, beta1, beta2, eps, weight_decay, apply } = args;
        let update = super::Update::new(
            [param, grad, exp_avg, exp_avg_sq],
            ([lr, step], apply),
            [beta1, beta2, weight_decay, eps],
            [out, mean, square],
            false,
        );
        super::plan_all(plan, &[update])
    }
}

#[implementation(of = fulgurite_ops::optim::adam, by = optim, in_place)]
mod adam_by_optim {
    fn checker(Args { param, grad, exp_avg, exp_avg_sq, lr, step, .. }: Args<&TensorMeta>) -> Claim {
        for (name, tensor) in [("param", param), ("grad", grad), ("exp_avg", exp_avg)] {
            refuse_unless!(has_kernels_for(tensor.dtype()), "{name} is {}, takes f32, bf16 and f16", tensor.dtype());
        }
        let (mean, square) = (exp_avg.dtype(), exp_avg_sq.dtype());
        refuse_unless!(mean == square, "exp_avg is {mean}, exp_avg_sq {square}, takes moments of one type");
        super::takes_numbers([lr, step])
    }

    fn plan(
        plan: &mut Plan,
        args: Args<&DeviceTensor>,
        out: &DeviceTensor,
        mean: &DeviceTensor,
        second: &DeviceTensor,
    ) -> Result<()> {
        let Args { param, grad, exp_avg, exp_avg_sq, lr, step, beta1, beta2, eps, weight_decay, apply } = args;
        let update = super::Update::new(
            [param, grad, exp_avg, exp_avg_sq],
            ([lr, step], apply),
            [beta1, beta2, weight_decay, eps],
            [out, mean, second],
            true,
        );
        super::plan_all(plan, &[update])
    }
}
