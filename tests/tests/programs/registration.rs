//! What a running program registers: operators, executors, implementations, rewrites and transforms with closures as
//! rules, compiled, tested, withdrawn, and replaced by other versions.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_runtime::argument::Arg;
use fulgurite_runtime::compile::{Options, Place, UserTransform};
use fulgurite_runtime::executor::{ExecutorDef, ImplementationDef, default_executors, implementations};
use fulgurite_runtime::kernel::KernelRules;
use fulgurite_runtime::kernels::access::{read_f64, write_f64};
use fulgurite_runtime::operator::OperatorDef;
use fulgurite_runtime::registration::{
    Executor, Implementation, Operator, Registration, Rewrite, Transform, registrations,
};
use fulgurite_runtime::registry::{find_operator, operators};
use fulgurite_runtime::rules::{Domain, Precondition};
use fulgurite_runtime::trace::Trace;
use fulgurite_runtime::tracer::call;
use fulgurite_runtime::{Array, Failure, Result, Tensor, jit, testing};

/// Tests that count compilations run one after the other: a registration concerns every function of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn array(values: &[f32]) -> Array {
    Array::new([values.len()], values).unwrap()
}

/// `input · sigmoid(beta · input)`; its reference computes with `factor` in the place of 1.
fn swish(name: &str, factor: f64) -> Operator {
    Operator::build(name)
        .signature("(input: tensor<floating>, beta: float = 1.0) -> tensor")
        .requires(|a| match a[1].get::<f64>() > 0.0 {
            true => Ok(()),
            false => Err(Failure::new("PositiveBeta", format!("beta is {}, expected more than 0", a[1].get::<f64>()))),
        })
        .decomposition(|a| *a[0].tensor() * sigmoid(*a[0].tensor() * a[1].get::<f64>()))
        .reference(move |a| {
            let beta = a[1].get::<f64>();
            a[0].tensor().floats().mapv(|x| factor * x / (1.0 + (-beta * x).exp()))
        })
        .samples(|s| {
            s.elementwise_unary(Domain::ALL);
            s.case(vec![Arg::Tensor(s.normal([3, 4])), Arg::value(0.25)]);
        })
        .errors(&["PositiveBeta"], |e| {
            let arguments = vec![Arg::Tensor(e.normal([2])), Arg::value(-1.0)];
            e.case(Precondition::new("PositiveBeta"), arguments, "beta is -1, expected more than 0");
        })
}

#[test]
fn an_operator_is_called_differentiated_tested_and_withdrawn() {
    let _alone = alone();
    let own = Arc::new(swish("registered::swish", 1.0).register().unwrap());
    assert_eq!(own.record().signature(), "registered::swish(input: tensor, beta: float = 1.0) -> tensor");
    assert!(operators().contains(&own.record()));
    let traced = own.clone();
    let f = jit(move |x: Tensor| traced.call([Arg::Tensor(x), Arg::value(2.0)])[0].sum()).arguments(["x"]);
    let expected = |x: f64| x / (1.0 + (-2.0 * x).exp());
    let value = f.call(array(&[1.0, -0.5])).unwrap().item().unwrap();
    assert!((value - expected(1.0) - expected(-0.5)).abs() < 1e-6);
    // The generated tests, the gradient's among them, hold it to its reference.
    assert!(testing::check("registered::swish").unwrap() > 20);

    // By name, as text and files have it.
    let by_name =
        jit(|x: Tensor| call(find_operator("registered::swish").unwrap(), vec![Arg::Tensor(x), Arg::value(1.0)])[0]);
    let compiled = by_name.compile(&array(&[1.0])).unwrap();
    let text = compiled.stages()[0].trace.to_string();
    assert!(text.contains("registered::swish"), "{text}");
    assert_eq!(fulgurite_runtime::trace::parse(&text).unwrap().to_string(), text);

    own.withdraw().unwrap();
    assert!(find_operator("registered::swish").is_err() && !operators().contains(&own.record()));
    assert!(fulgurite_runtime::trace::parse(&text).is_err());
    // What was compiled runs on.
    let out = compiled.program().run(vec![array(&[3.0])]).unwrap();
    assert!((out[0].to_f64().unwrap()[0] - 3.0 / (1.0 + (-3.0f64).exp())).abs() < 1e-6);

    // Another version under the same name is another program.
    let two = Operator::build("registered::swish").version(2);
    let two = two.signature("(input: tensor, beta: float = 1.0) -> tensor").decomposition(|a| -*a[0].tensor());
    let two = two.register().unwrap();
    assert_eq!(by_name.call(array(&[3.0])).unwrap().to_f64().unwrap(), [-3.0]);
    assert_eq!(by_name.compiles(), 2);
    two.withdraw().unwrap();
}

#[test]
fn generated_tests_catch_a_registered_operator_that_is_wrong() {
    let _alone = alone();
    let own = swish("registered::wrong", 1.01).register().unwrap();
    let said = testing::check("registered::wrong").unwrap_err();
    assert!(said.contains("registered::wrong::consistency::cpu::f64") && !said.contains("repeat:"), "{said}");
    own.withdraw().unwrap();
    assert!(testing::check("registered::wrong").unwrap_err().contains("no test is generated"));
}

#[test]
fn an_elementwise_prim_follows_from_its_arithmetic() {
    let _alone = alone();
    let cube = Operator::build("registered::cube").signature("(input: tensor<floating>) -> tensor");
    let cube = cube.scalar(|a| *a[0].tensor() * *a[0].tensor() * *a[0].tensor()).no_grad("of no interest here");
    let cube = cube.reference(|a| a[0].tensor().floats().mapv(|x| x * x * x));
    let cube = Arc::new(cube.samples(|s| s.elementwise_unary(Domain::ALL)).register().unwrap());
    let traced = cube.clone();
    let f = jit(move |x: Tensor| traced.call([Arg::Tensor(x)])[0]);
    assert_eq!(f.call(array(&[2.0, -3.0])).unwrap().to_vec::<f32>().unwrap(), [8.0, -27.0]);
    assert!(testing::check("registered::cube").unwrap() > 10);
    cube.withdraw().unwrap();
}

/// An executor that is asked first, and its implementation of `prims::exp`, which counts its runs and gives
/// `sign · eˣ`, of a single zero. Other tests of the process may compile with it meanwhile: theirs are `eˣ`.
fn counted(
    name: &str,
    version: u32,
    sign: f64,
    runs: &Arc<AtomicUsize>,
) -> (Registration<ExecutorDef>, Registration<ImplementationDef>) {
    let executor = Executor::build(name, "cpu").version(version).priority(1).register().unwrap();
    let runs = runs.clone();
    let implementation = Implementation::build("prims::exp", name).version(version).cpu(move |a, out| {
        let given = read_f64(a[0].tensor());
        let own = given == [0.0];
        runs.fetch_add(usize::from(own), Ordering::Relaxed);
        let values: Vec<f64> = given.into_iter().map(|x| if own { sign * x.exp() } else { x.exp() }).collect();
        write_f64(&mut out[0], &values);
        Ok(())
    });
    (executor, implementation.register().unwrap())
}

#[test]
fn an_implementation_is_used_withdrawn_and_replaced() {
    let _alone = alone();
    let runs = Arc::new(AtomicUsize::new(0));
    let count = || runs.load(Ordering::Relaxed);
    let f = jit(|x: Tensor| x.exp());
    let one = || f.call(array(&[0.0])).unwrap().to_vec::<f32>().unwrap()[0];
    assert_eq!((one(), f.compiles(), count()), (1.0, 1, 0));

    let (executor, first) = counted("registered_first", 1, 1.0, &runs);
    assert!(default_executors("cpu").iter().any(|known| known.name == "registered_first"));
    assert_eq!((one(), f.compiles(), count()), (1.0, 2, 1));
    assert_eq!((one(), f.compiles(), count()), (1.0, 2, 2), "nothing changed");
    let kept = f.compile(&array(&[0.0])).unwrap();

    first.withdraw().unwrap();
    assert_eq!((one(), f.compiles(), count()), (1.0, 3, 2));
    executor.withdraw().unwrap();
    assert_eq!((one(), f.compiles(), count()), (1.0, 3, 2), "what was compiled before all of it is kept");

    let (executor, second) = counted("registered_first", 2, -1.0, &runs);
    assert_eq!((one(), f.compiles(), count()), (-1.0, 4, 3));
    assert_eq!(f.programs(), 2, "programs of registrations that never come back are dropped");
    // Its holder may run it.
    assert_eq!(kept.program().run(vec![array(&[0.0])]).unwrap()[0].to_vec::<f32>().unwrap(), [1.0]);
    assert_eq!(count(), 4);
    second.withdraw().unwrap();
    executor.withdraw().unwrap();
}

#[test]
fn an_executor_takes_calls_by_their_rules() {
    let _alone = alone();
    let executor = Executor::build("registered_negating", "cpu")
        .priority(1)
        .claims(|def, _| match def.name {
            "prims::neg" => Ok(()),
            _ => Err("takes neg alone".into()),
        })
        .prepare(|_, _, _| {
            Ok(Box::new(|operands, results| {
                let values: Vec<f64> = read_f64(&operands[0]).into_iter().map(|x| -x).collect();
                write_f64(&mut results[0], &values);
                Ok(())
            }))
        });
    let executor = executor.register().unwrap();
    let f = jit(|x: Tensor| -x);
    let compiled = f.compile(&array(&[1.0])).unwrap();
    assert!(compiled.explain().contains("by registered_negating"), "{}", compiled.explain());
    assert_eq!(f.call(array(&[2.0])).unwrap().to_vec::<f32>().unwrap(), [-2.0]);
    executor.withdraw().unwrap();
}

#[test]
fn clashes_and_what_does_not_exist_are_errors_with_both_places() {
    let _alone = alone();
    let said = |result: Result<Registration<OperatorDef>>| result.map(|_| ()).unwrap_err().to_string();
    let one = swish("registered::one", 1.0).register().unwrap();
    let before = line!();
    let other = said(swish("registered::one", 1.0).version(2).register());
    let place = |line: u32| format!("registration.rs:{line}:");
    assert!(other.contains(&place(before + 1)) && other.contains(&place(before - 1)), "{other}");
    assert!(other.contains("version 1 of it is registered") && other.contains("before version 2"), "{other}");
    let declared = said(swish("softmax", 1.0).register());
    assert!(declared.contains("it is declared at") && declared.contains("softmax.rs:"), "{declared}");
    let unread = said(Operator::build("registered::two").signature("(x: tensr) -> tensor").register());
    assert!(unread.contains("'tensr' is no type") && unread.contains(&place(line!() - 1)), "{unread}");
    let ruleless = said(Operator::build("registered::two").signature("(x: tensor) -> tensor").register());
    assert!(ruleless.contains("neither meta, decomposition nor scalar"), "{ruleless}");
    assert!(said(Operator::build("registered::two").register()).contains("has no signature"));

    let unknown = Implementation::build("registered::one", "cpuu").cpu(|_, _| Ok(())).register().unwrap_err();
    assert!(unknown.to_string().contains("did you mean 'cpu'?"), "{unknown}");
    let known = implementations()[0];
    let taken = Implementation::build(known.of, known.by).execution(|a| *a[0].tensor()).register().unwrap_err();
    assert!(taken.to_string().contains(&format!("it is declared at {}:{}", known.file, known.line)), "{taken}");
    let idle = Implementation::build("registered::one", "cpu").register().unwrap_err();
    assert!(idle.to_string().contains("has nothing to run on cpu"), "{idle}");
    let device = Executor::build("registered_two", "tpu").register().unwrap_err();
    assert!(device.to_string().contains("no kind of device is called 'tpu'"), "{device}");
    assert!(
        Executor::build("cpu", "cpu").register().unwrap_err().to_string().contains("it is declared by the package")
    );
    let sideless = Rewrite::build("registered_two", ["x"]).pattern(|a| *a[0].tensor()).register().unwrap_err();
    assert!(sideless.to_string().contains("has no replacement"), "{sideless}");
    let unsampled = Rewrite::build("registered_two", ["x"]).pattern(|a| *a[0].tensor()).replacement(|a| *a[0].tensor());
    let unsampled = unsampled.register().unwrap_err();
    assert!(unsampled.to_string().contains("has no samples"), "{unsampled}");
    let stage = Transform::build("claim", |trace| Ok(trace.clone())).register().unwrap_err();
    assert!(stage.to_string().contains("is a stage of every compilation"), "{stage}");

    // An implementation needs its operator and its executor.
    let own = Implementation::build("registered::one", "reference").execution(|a| *a[0].tensor()).register().unwrap();
    let needed = one.withdraw().unwrap_err().to_string();
    assert!(needed.contains("implementation 'registered::one by reference'"), "{needed}");
    assert_eq!(registrations().iter().map(|one| one.what).collect::<Vec<_>>(), ["operator", "implementation"]);
    own.withdraw().unwrap();
    one.withdraw().unwrap();
    let again = one.withdraw().unwrap_err().to_string();
    assert!(again.contains("is withdrawn already"), "{again}");
    assert!(registrations().is_empty());
}

#[test]
fn names_are_those_that_declarations_can_have() {
    let said = |error: fulgurite_runtime::Error| error.to_string();
    let before = line!();
    let operator = said(swish("a b", 1.0).register().unwrap_err());
    assert!(operator.contains("'a b' is no name of an operator") && operator.contains(&format!(":{}:", before + 1)));
    let executor = said(Executor::build("a::b", "cpu").register().unwrap_err());
    assert!(executor.contains("'a::b' is no name, expected one word"), "{executor}");
    let sides = |name: &str, tensor: &str| {
        let rewrite = Rewrite::build(name, [tensor]).pattern(|a| a[0].tensor().exp()).replacement(|a| *a[0].tensor());
        said(rewrite.register().unwrap_err())
    };
    assert!(sides("a b", "x").contains("'a b' is no name") && sides("fine", "x y").contains("'x y' is no name"));
    let transform = said(Transform::build("", |trace| Ok(trace.clone())).register().unwrap_err());
    assert!(transform.contains("a transform's name is not empty"), "{transform}");
}

#[test]
fn a_symbol_with_a_host_kernel_belongs_to_an_executor_of_the_host() {
    let symbol = Operator::build("cuda::registered").signature("(input: tensor) -> tensor");
    let symbol = symbol.meta(|a| Ok(a[0].tensor().clone())).symbol_of("cuda", &|_, _| Ok(()));
    let error = symbol.register().unwrap_err().to_string();
    assert!(error.contains("is a symbol of cuda, which runs on cuda, and has no `plan`, but `cpu`"), "{error}");
    let twice = Operator::build("cpu::registered").signature("(input: tensor) -> tensor");
    let kernel = KernelRules { cpu: Some(&|_, _| Ok(())), ..KernelRules::EMPTY };
    let twice = twice.meta(|a| Ok(a[0].tensor().clone())).kernels_of(["cpu", "reference"], kernel);
    let error = twice.register().unwrap_err().to_string();
    assert!(error.contains("is a symbol of cpu and reference, which both run on cpu"), "{error}");
    let both = Implementation::build("prims::exp", "cublaslt").cpu(|_, _| Ok(())).execution(|a| *a[0].tensor());
    let error = both.register().unwrap_err().to_string();
    assert!(error.contains("`cpu` is never run: cublaslt runs on cuda, where the rule is `plan`"), "{error}");
    let planning = Executor::build("registered_planning", "cpu").plan(|_, _, _, _| Ok(()));
    let error = planning.register().unwrap_err().to_string();
    assert!(error.contains("`plan` is never run: registered_planning runs on cpu"), "{error}");
}

/// A thread that compiles sees the state of the beginning; what it registers is added to the present one.
#[test]
fn a_need_that_was_withdrawn_meanwhile_is_an_error() {
    let _alone = alone();
    let executor = Executor::build("registered_gone", "cpu").register().unwrap();
    let said = Mutex::new(String::new());
    let f = jit(|x: Tensor| {
        executor.withdraw().unwrap();
        let late = Implementation::build("prims::exp", "registered_gone").cpu(|_, _| Ok(())).register();
        *said.lock().unwrap() = late.map(|_| ()).unwrap_err().to_string();
        x.exp()
    });
    f.call(array(&[1.0])).unwrap();
    let said = said.into_inner().unwrap();
    assert!(said.contains("the executor 'registered_gone', which it needs, was withdrawn meanwhile"), "{said}");
    assert!(registrations().is_empty());
}

#[test]
fn options_with_a_withdrawn_record_do_not_compile() {
    let _alone = alone();
    let runs = Arc::new(AtomicUsize::new(0));
    let (executor, implementation) = counted("registered_listed", 1, 1.0, &runs);
    let options = Options::default().with_executors(&["registered_listed", "cpu", "reference"]).unwrap();
    let f = jit(|x: Tensor| x.exp()).options(options.clone());
    let compiled = f.compile(&array(&[0.0])).unwrap();
    let vjp = jit(|x: Tensor| x.exp()).options(options.clone()).vjp();
    let (_, pullback) = vjp.call(array(&[0.0])).unwrap();
    let said = || {
        let vjp = vjp.call(array(&[0.0])).map(|_| ()).unwrap_err().to_string();
        let other = jit(|x: Tensor| x.exp()).options(options.clone()).call(array(&[0.0])).unwrap_err().to_string();
        let called = f.call(array(&[0.0])).unwrap_err().to_string();
        assert!(called == vjp && called == other, "{called}\n{vjp}\n{other}");
        assert!(called.contains("executors") && called.contains("'registered_listed' is not registered any more"));
        called
    };
    implementation.withdraw().unwrap();
    executor.withdraw().unwrap();
    assert!(said().contains("nothing of this name"));
    let (executor, implementation) = counted("registered_listed", 2, -1.0, &runs);
    assert!(said().contains("another version of it"));
    // Options that are made again mean the version that is there now; the holder of a program may run it.
    let again = Options::default().with_executors(&["registered_listed", "cpu", "reference"]).unwrap();
    assert_eq!(jit(|x: Tensor| x.exp()).options(again).call(array(&[0.0])).unwrap().item().unwrap(), -1.0);
    assert_eq!(compiled.program().run(vec![array(&[0.0])]).unwrap()[0].item().unwrap(), 1.0);
    assert!(pullback.call([("result", array(&[1.0]))]).is_ok());
    implementation.withdraw().unwrap();
    executor.withdraw().unwrap();

    let rewrite = || {
        let rewrite = Rewrite::build("registered_listed", ["x"]).pattern(|a| a[0].tensor().exp().log());
        let rewrite = rewrite.replacement(|a| *a[0].tensor()).samples(|s| {
            s.case(vec![Arg::Tensor(s.uniform(-1.0, 1.0, [4]))]);
        });
        rewrite.register().unwrap()
    };
    let first = rewrite();
    let options = Options { rewrites: Some(vec![first.record()]), ..Options::default() };
    let f = jit(|x: Tensor| x.exp().log()).options(options);
    assert!(f.compile(&array(&[1.0])).unwrap().stage("rewrite").unwrap().block.symbols.is_empty());
    first.withdraw().unwrap();
    let second = rewrite();
    let error = f.call(array(&[1.0])).unwrap_err().to_string();
    assert!(error.contains("rewrites") && error.contains("another version of it"), "{error}");
    second.withdraw().unwrap();
}

#[test]
fn a_registered_rewrite_binds_attributes() {
    let _alone = alone();
    let scaled = |name: &str| {
        Rewrite::build(name, ["x"])
            .attribute::<f64>("scale")
            .rank("x", 1..3)
            .pattern(|a| prims::mul(a[0].tensor().exp(), a[1].get::<f64>()))
            .replacement(|a| prims::exp(prims::add(*a[0].tensor(), a[1].get::<f64>().ln())))
            .condition(|a| match a[1].get::<f64>() {
                scale if scale > 0.0 => Ok(()),
                scale => Err(format!("scale is {scale}")),
            })
            .by_default()
            .samples(|s| {
                s.case(vec![Arg::Tensor(s.normal([4])), Arg::value(2.0)]);
            })
    };
    let rewrite = scaled("registered_scaled").register().unwrap();
    let stage = |scale: f64| {
        let f = jit(move |x: Tensor| prims::mul(x.exp(), scale));
        f.compile(&array(&[1.0])).unwrap().stage("rewrite").unwrap().to_string()
    };
    assert!(stage(7.0).contains("add(") && stage(1e-8).contains("add("), "{}", stage(7.0));
    assert!(stage(-7.0).contains("refused by registered_scaled: \"scale is -7\""), "{}", stage(-7.0));
    assert!(testing::check("registered_scaled").unwrap() > 0);
    rewrite.withdraw().unwrap();

    let said = |rewrite: Rewrite| rewrite.register().unwrap_err().to_string();
    let twice = said(scaled("registered_twice").attribute::<f64>("scale"));
    assert!(twice.contains("has two arguments 'scale'"), "{twice}");
    for nothing in [0..0, 3..3] {
        let empty = said(scaled("registered_empty").rank("x", nothing));
        assert!(empty.contains("lets 'x' have no number of dimensions"), "{empty}");
    }
    let unknown = said(scaled("registered_unknown").rank("y", 2..=2));
    assert!(unknown.contains("'y' has, which is no tensor of it"), "{unknown}");
    let unbound = said(scaled("registered_unbound").pattern(|a| prims::mul(a[0].tensor().exp(), 2.0)));
    assert!(unbound.contains("gives 'scale' to no operator as it is"), "{unbound}");
    let typed = said(scaled("registered_typed").attribute::<bool>("flag"));
    assert!(typed.contains("a sample has 2 arguments, the pattern takes 3"), "{typed}");
}

#[test]
fn a_rewrite_takes_part_while_it_is_registered() {
    let _alone = alone();
    let f = jit(|x: Tensor| x.exp().log());
    let lines = || f.compile(&array(&[1.0])).unwrap().stage("rewrite").unwrap().block.symbols.len();
    assert_eq!(lines(), 2);
    let rewrite = Rewrite::build("registered_log_of_exp", ["x"])
        .docs("`log(exp(x))` is `x`.")
        .pattern(|a| a[0].tensor().exp().log())
        .replacement(|a| *a[0].tensor())
        .by_default()
        .samples(|s| {
            s.case(vec![Arg::Tensor(s.uniform(-1.0, 1.0, [4]))]);
        });
    let rewrite = rewrite.register().unwrap();
    assert_eq!(lines(), 0);
    assert!(testing::check("registered_log_of_exp").unwrap() > 0);
    rewrite.withdraw().unwrap();
    assert_eq!(lines(), 2);
}

/// Keeps the trace, and notes that it saw it.
/// The name of the function whose traces are noted.
const NOTED: &str = "noted_places";

fn noted(seen: &Arc<Mutex<Vec<usize>>>) -> impl Fn(&Trace) -> Result<Trace> + Send + Sync + 'static {
    let seen = seen.clone();
    move |trace| {
        // Other tests compile meanwhile, with what they had pinned before it was withdrawn.
        if trace.name == NOTED {
            seen.lock().unwrap().push(trace.block.symbols.len());
        }
        Ok(trace.transformed("noted", trace.block.clone()))
    }
}

#[test]
fn transforms_run_at_their_places_in_jit_and_vjp() {
    let _alone = alone();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let registered = [Place::Start, Place::AfterAutodiff, Place::BeforeClaim].map(|place| {
        let transform = Transform::build(format!("at {place:?}"), noted(&seen)).at(place);
        transform.register().unwrap()
    });
    let own = UserTransform::new("own", |trace| Ok(trace.clone())).at(Place::BeforeClaim);
    let options = Options { transforms: vec![own], ..Options::default() };
    let f = jit(|x: Tensor| (x.exp() * x).sum()).named(NOTED).arguments(["x"]).results(["y"]).options(options.clone());
    let compiled = f.compile(&array(&[1.0])).unwrap();
    let names: Vec<&str> = compiled.stages().iter().map(|stage| stage.name.as_str()).collect();
    let after = |name: &str, before: &str| {
        let at = names.iter().position(|stage| *stage == name).unwrap();
        assert_eq!(names[at - 1], before, "{names:?}");
    };
    after("at Start", "rewrite");
    after("at AfterAutodiff", "autodiff");
    after("own", "at BeforeClaim");
    after("claim", "own");

    // Of a function and its derivative: on both halves before they are claimed.
    let vjp = jit(|x: Tensor| (x.exp() * x).sum()).arguments(["x"]).results(["y"]).options(options).vjp();
    let compiled = vjp.compile(&array(&[1.0])).unwrap();
    let programs = compiled.programs();
    let has = |stages: &[fulgurite_runtime::compile::Stage], name: &str| stages.iter().any(|stage| stage.name == name);
    assert!(has(&programs.joint, "at AfterAutodiff") && !has(&programs.joint, "at BeforeClaim"));
    assert!(has(&programs.forward, "at BeforeClaim") && has(&programs.backward, "own"));
    let (_, pullback) = vjp.call(array(&[1.0])).unwrap();
    let gradient = pullback.call([("y", Array::scalar(1.0))]).unwrap().of("x").unwrap().item().unwrap();
    assert!((gradient - 2.0 * 1f64.exp()).abs() < 1e-5);
    registered.iter().for_each(|transform| transform.withdraw().unwrap());
    let calls = seen.lock().unwrap().len();
    assert!(calls > 0, "they ran");
    f.call(array(&[1.0, 2.0])).unwrap();
    assert_eq!(seen.lock().unwrap().len(), calls, "withdrawn");

    // What a transform makes is verified whatever the options say, and its name is no stage's.
    let broken = UserTransform::new("broken", |trace| {
        let mut block = trace.block.clone();
        block.symbols.clear();
        Ok(trace.transformed("broken", block))
    });
    let options = |transform| Options { transforms: vec![transform], verify: false, ..Options::default() };
    let error = jit(|x: Tensor| x.exp()).options(options(broken.at(Place::AfterAutodiff))).call(array(&[1.0]));
    assert!(error.unwrap_err().to_string().contains("after broken"));
    let named = UserTransform::new("plan_memory", |trace| Ok(trace.clone()));
    let error = jit(|x: Tensor| x.exp()).options(options(named)).call(array(&[1.0])).unwrap_err();
    assert!(error.to_string().contains("is a stage of every compilation"), "{error}");
}

#[test]
fn threads_register_while_others_compile() {
    let _alone = alone();
    let runs = Arc::new(AtomicUsize::new(0));
    let done = AtomicBool::new(false);
    let compiled = AtomicUsize::new(0);
    thread::scope(|scope| {
        let spawn = |_| {
            scope.spawn(|| {
                let twice = |x: Tensor| x.exp() * 2.0;
                let shared = jit(twice);
                while !done.load(Ordering::Relaxed) {
                    // Claim, verifier and the kernels' preparation see one state, whichever it is.
                    for f in [&shared, &jit(twice)] {
                        assert_eq!(f.call(array(&[0.0])).unwrap().to_vec::<f32>().unwrap(), [2.0]);
                    }
                    compiled.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let threads = [0; 3].map(spawn);
        let _ended = EndsWith(&done);
        for version in 0..200 {
            let (executor, implementation) = counted("registered_often", version, 1.0, &runs);
            thread::yield_now();
            implementation.withdraw().unwrap();
            executor.withdraw().unwrap();
            // However slow the others are, each state is there for some of them.
            let waits = || compiled.load(Ordering::Relaxed) < 30 && !threads.iter().all(|thread| thread.is_finished());
            while version == 199 && waits() {
                thread::yield_now();
            }
        }
    });
    assert!(compiled.load(Ordering::Relaxed) >= 30);
}

/// Ends the other threads, also where this one fails.
struct EndsWith<'a>(&'a AtomicBool);

impl Drop for EndsWith<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
