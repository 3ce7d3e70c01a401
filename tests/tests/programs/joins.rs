//! Joins: what is only computed to be put side by side is written where it belongs.

use fulgurite_executors as _;
use fulgurite_ops::core::SumMethod;
use fulgurite_ops::core::promotion::cast;
use fulgurite_ops::nn::scaled_dot_product_attention;
use fulgurite_ops::prims;
use fulgurite_runtime::compile::{Options, Stage, compile};
use fulgurite_runtime::executor::JOIN;
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::trace::verify::verify_layouts;
use fulgurite_runtime::trace::{BoundSymbol, Storage, Trace, parse};
use fulgurite_runtime::tracer::value_and_grad_aux;
use fulgurite_runtime::transforms::layout::{Layout, layouts};
use fulgurite_runtime::transforms::plan::memory_use;
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{Array, DType, Device, Target, Tensor, TensorMeta};

type Function = fn(Vec<Tensor>) -> Vec<Tensor>;

fn meta(shape: &[usize]) -> TensorMeta {
    TensorMeta::new(shape, DType::F32, Device::CPU)
}

fn acquired(shapes: &[&[usize]], f: Function) -> Trace {
    let names = Names { arguments: vec!["x".into()], results: vec!["y".into()] };
    let metas: Vec<TensorMeta> = shapes.iter().map(|shape| meta(shape)).collect();
    trace("f", Target::cpu(), &names, metas, f).unwrap().0
}

fn options() -> Options {
    Options { verify: true, ..Options::default() }
}

fn stages(trace: &Trace, options: &Options) -> Vec<Stage> {
    compile(trace.clone(), options).unwrap().1
}

fn last(trace: &Trace, options: &Options) -> Trace {
    stages(trace, options).pop().unwrap().trace
}

fn joins(trace: &Trace) -> usize {
    trace.block.symbols.iter().filter(|symbol| symbol.executor == Some(JOIN)).count()
}

fn inputs(shapes: &[&[usize]]) -> Vec<Array> {
    let array = |(seed, shape): (usize, &&[usize])| {
        let values: Vec<f64> =
            (0..shape.iter().product()).map(|i: usize| ((i * 7 + seed) as f64 * 0.37).sin()).collect();
        Array::from_f64(shape, DType::F32, &values).unwrap()
    };
    shapes.iter().enumerate().map(array).collect()
}

fn values(trace: &Trace, options: &Options, shapes: &[&[usize]]) -> Vec<Vec<f64>> {
    let (program, _) = compile(trace.clone(), options).unwrap();
    program.run(inputs(shapes)).unwrap().iter().map(|array| array.to_f64().unwrap()).collect()
}

/// Programs that join: shapes of the inputs, and the function.
const JOINING: [(&str, &[&[usize]], Function); 7] = [
    ("columns", &[&[5, 3], &[5, 4]], |x| vec![prims::cat([x[0] * 0.5, x[1] * 2.0], 1) + 1.0]),
    ("returned", &[&[5, 3], &[5, 4]], |x| vec![prims::cat([x[0] * 0.5, x[1] * 2.0], 1)]),
    ("rows", &[&[2, 3], &[4, 3], &[1, 3]], |x| vec![prims::cat([x[0] * 0.5, x[1] * 2.0, x[2] - 1.0], 0) * 3.0]),
    ("heads", &[&[2, 5, 3, 4], &[2, 5, 2, 4]], |x| {
        // Seen as [B, L, H * E] before they are joined.
        let flat = |x: Tensor, heads: usize| prims::reshape(x * 0.5, vec![2, 5, heads * 4]);
        vec![prims::cat([flat(x[0], 3), flat(x[1], 2)], 2) * 3.0]
    }),
    ("permuted", &[&[3, 5], &[4, 5]], |x| {
        vec![prims::cat([prims::permute(x[0] + 1.0, vec![1, 0]), prims::permute(x[1] * 2.0, vec![1, 0])], 1) * 3.0]
    }),
    ("read by others", &[&[2, 16], &[4, 16]], |x| {
        let (a, b) = (x[0] * 0.5, x[1] * 2.0);
        let (most, other) = (prims::amax(b, [0]), prims::reshape(a, [16, 2]) - 1.0);
        vec![prims::cat([a, b], 0) * 3.0, most, other]
    }),
    ("long", &[&[4099, 3], &[4099, 5]], |x| vec![prims::cat([x[0] * 0.5, x[1] * 2.0], 1) + 1.0]),
];

#[test]
fn joined_parts_have_the_bits_of_a_copy() {
    for (name, shapes, f) in JOINING {
        let trace = acquired(shapes, f);
        for fuse in [true, false] {
            let options = Options { fuse, ..options() };
            let planned = last(&trace, &options);
            assert_eq!(joins(&planned), 1, "{name}\n{planned}");
            let plain = options.clone().with_executors(&["reference"]).unwrap();
            assert_eq!(joins(&last(&trace, &plain)), 0, "{name}");
            assert_eq!(values(&trace, &options, shapes), values(&trace, &plain, shapes), "{name}, fuse {fuse}");
        }
    }
}

#[test]
fn a_join_is_text_that_parses_and_verifies() {
    for (name, shapes, f) in JOINING {
        for target in ["cpu", "cuda:sm_90a"] {
            let trace = retarget(&acquired(shapes, f), &target.parse().unwrap());
            for stage in stages(&trace, &options()) {
                let parsed = parse(&stage.trace.to_string()).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(parsed, stage.trace, "{name}, {}", stage.name);
                parsed.verify().unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
    }
    let (_, shapes, f) = JOINING[3];
    insta::assert_snapshot!(last(&acquired(shapes, f), &Options { fuse: false, ..options() }));
}

/// A join that is row by row in a larger whole is a part of it, and its parts are written there.
#[test]
fn joins_are_parts_of_joins() {
    let shapes: [&[usize]; 3] = [&[4, 8], &[4, 8], &[4, 16]];
    let nested: Function = |x| {
        let inner = prims::cat([x[0] * 0.5, x[1] * 2.0], 1);
        let (one, most) = (|x: Tensor| prims::reshape(x, [1, 4, 16]), prims::amax(inner, [0]));
        vec![prims::cat([one(x[2] + 1.0), one(inner), one(x[2] * inner)], 0) * 3.0, most]
    };
    let across: Function = |x| {
        let inner = prims::cat([x[0] * 0.5, x[1] * 2.0], 1);
        vec![prims::cat([x[2] + 1.0, inner], 1) * 3.0]
    };
    // Halves of the rows of heads, which are beside each other in the rows of the whole.
    let heads: Function = |x| {
        let half = |x: Tensor, factor: f64| prims::reshape(x, [2, 2, 2, 4]) * factor;
        let inner = prims::cat([half(x[0], 0.5), half(x[1], 2.0)], 3);
        let rows = prims::reshape(prims::permute(inner, vec![0, 2, 1, 3]), [4, 16]);
        vec![prims::cat([x[2] + 1.0, rows], 1) * 3.0]
    };
    // A part of the inner whole has another reader, for whom its rows stay one after the other.
    let shared: Function = |x| {
        let own = x[0] * 0.5;
        let (most, inner) = (prims::amax(own, [0]), prims::cat([own, x[1] * 2.0], 0));
        let beside = prims::reshape(x[2] + 1.0, [8, 8]);
        vec![prims::cat([beside, inner], 1) * 3.0, most]
    };
    for (f, expected) in [(nested, 2), (across, 2), (heads, 3), (shared, 1)] {
        let trace = acquired(&shapes, f);
        for fuse in [true, false] {
            let options = Options { fuse, ..options() };
            let planned = last(&trace, &options);
            assert_eq!(joins(&planned), expected, "{planned}");
            let plain = options.clone().with_executors(&["reference"]).unwrap();
            assert_eq!(values(&trace, &options, &shapes), values(&trace, &plain, &shapes), "fuse {fuse}");
        }
    }
}

/// Texts of plans in which a part of a join is elsewhere than its line says are refused.
#[test]
fn a_part_of_two_wholes_is_refused() {
    let program = |lines: &str| {
        format!(
            "# fulgurite trace 2\n# made by rewrite, autodiff, dce, cse, late_rewrite, claim, layout, donate\n\
             trace f for cpu (\n  x: f32[2, 3],\n  r: f32[4, 3],\n) {{\n\
             {lines}  return (\n    y = z,\n  )\n}}\n"
        )
    };
    let good = "  p: f32[2, 3] = prims::neg(x) by cpu\n  q: f32[4, 3] = prims::neg(r) by cpu\n  \
                w: f32[6, 3] = prims::cat([p, q], dim=0) by join\n";
    let one = program(&format!("{good}  z: f32[6, 3] = prims::mul(w, 3.0) by cpu\n"));
    parse(&one).unwrap_or_else(|error| panic!("{error}\n{one}")).verify().unwrap();
    let two = program(&format!(
        "{good}  v: f32[8, 3] = prims::cat([w, p], dim=0) by join\n  z: f32[8, 3] = prims::mul(v, 3.0) by cpu\n"
    ));
    let error = parse(&two).unwrap_or_else(|error| panic!("{error}\n{two}")).verify().unwrap_err().to_string();
    assert!(error.contains("cannot be written in its result"), "{error}");
    let refused = |lines: &str| {
        let text = program(lines);
        parse(&text).and_then(|trace| trace.verify()).expect_err(&text).to_string()
    };
    let input = refused("  z: f32[2, 3] = prims::contiguous(x) by join\n");
    assert!(input.contains("'x' cannot be written in its result"), "{input}");
    // Through two copies a kernel writes the order of the outer one, if it can write in any.
    let turned = |first: &str| {
        format!(
            "  p: f32[2, 3] = {first} by cpu\n  w: f32[2, 3] = prims::contiguous(p) by join\n  \
             v: f32[3, 2] = prims::permute(w, dims=[1, 0]) by view\n  z: f32[3, 2] = prims::contiguous(v) by join\n"
        )
    };
    let any = program(&turned("prims::neg(x)"));
    parse(&any).unwrap_or_else(|error| panic!("{error}\n{any}")).verify().unwrap();
    let rows = refused(&turned("prims::cumsum(x, dim=0)"));
    assert!(rows.contains("does not write"), "{rows}");
}

/// What leaves the program beside the whole that it is a part of has memory of its own, that of an input if one is
/// donated for it.
#[test]
fn a_returned_part_is_copied_into_its_whole() {
    let shapes: [&[usize]; 3] = [&[4, 16]; 3];
    let rows: Function = |x| {
        let (s, t) = (x[0] + x[1], x[1] * x[2]);
        vec![s, prims::cat([s, t], 0)]
    };
    let heads: Function = |x| {
        let s = prims::reshape(prims::reshape(x[0], [2, 2, 4, 4]) + 1.0, [4, 16]);
        vec![s, x[1] * x[2]]
    };
    for (f, donates) in [(rows, false), (rows, true), (heads, true)] {
        let mut trace = acquired(&shapes, f);
        trace.inputs[0].donated = donates;
        if donates {
            // The first result is the first input's next value.
            trace.outputs[0].path = trace.block.value(trace.block.parameters[0]).name.to_string();
        }
        for fuse in [true, false] {
            let options = Options { fuse, ..options() };
            let planned = last(&trace, &options);
            assert_eq!(joins(&planned), 0, "{planned}");
            let over = matches!(planned.block.value(planned.block.results[0]).storage, Some(Storage::Shared(_)));
            assert_eq!(over, donates, "{planned}");
            let plain = options.clone().with_executors(&["reference"]).unwrap();
            assert_eq!(values(&trace, &options, &shapes), values(&trace, &plain, &shapes), "fuse {fuse}");
        }
    }
}

/// A part that is read after its whole would keep it alive.
#[test]
fn a_whole_lives_no_longer_for_its_parts() {
    let shapes: [&[usize]; 2] = [&[16, 4], &[64, 4]];
    let late: Function = |x| {
        let (a, b) = (x[0] * 0.5, x[1] * 2.0);
        let most = prims::amax(prims::cat([a, b], 0), [0, 1]);
        vec![a * prims::broadcast_in_dim(most, [16, 4], [])]
    };
    assert_eq!(joins(&last(&acquired(&shapes, late), &Options { fuse: false, ..options() })), 0);
}

/// One value has one place: the second line that would join it copies it.
#[test]
fn a_value_is_a_part_of_one_whole() {
    let shapes: [&[usize]; 2] = [&[2, 16], &[2, 16]];
    let twice: Function = |x| {
        let (a, b) = (x[0] * 0.5, x[1] * 2.0);
        let (first, second) = (prims::cat([a, b], 0), prims::cat([b, a], 0) - 1.0);
        vec![first * 3.0, second]
    };
    let trace = acquired(&shapes, twice);
    let planned = last(&trace, &Options { fuse: false, ..options() });
    assert_eq!(joins(&planned), 1, "{planned}");
    let plain = options().with_executors(&["reference"]).unwrap();
    assert_eq!(values(&trace, &options(), &shapes), values(&trace, &plain, &shapes));
}

/// Products, and the gradients of queries, keys and values in a model, by the executors of CUDA.
#[test]
fn products_write_their_part() {
    let products: Function = |x| {
        let [a, b, c] = [x[0], x[1], x[2]];
        vec![prims::cat([prims::matmul(a, b), prims::matmul(a, c)], 1) * 2.0]
    };
    let heads: Function = |x| {
        // [B, H, L, E], with the heads of a position beside each other.
        let flat = |x: Tensor| prims::reshape(prims::permute(x, vec![0, 2, 1, 3]), vec![2, 5, 12]);
        let [q, k] = [x[3], x[4]].map(|x| flat(prims::permute(x * 0.5, vec![0, 2, 1, 3])));
        vec![prims::cat([q, k], 2) * 2.0]
    };
    for f in [products, heads] {
        let shapes: [&[usize]; 5] = [&[8, 16], &[16, 24], &[16, 40], &[2, 5, 3, 4], &[2, 5, 3, 4]];
        let trace = retarget(&acquired(&shapes, f), &"cuda:sm_90a".parse().unwrap());
        let planned = last(&trace, &options());
        assert_eq!(joins(&planned), 1, "{planned}");
    }
}

#[test]
fn a_join_takes_less_memory() {
    let (_, shapes, f) = JOINING[6];
    let trace = acquired(shapes, f);
    let joined = last(&trace, &Options { fuse: false, ..options() });
    let text = joined.to_string();
    assert_eq!(memory_use(&joined).transient, (4099 * 8 * 4_u64).next_multiple_of(64), "{text}");
}

/// Programs whose results are laid out in another way than they are computed in, and with how many joins.
const LAID_OUT: [(&str, &[&[usize]], Function, usize); 11] = [
    ("a last extent of one", &[&[5, 3, 1]], |x| vec![prims::permute(x[0] * 0.5, vec![1, 0, 2])], 0),
    ("short rows", &[&[5, 3, 2]], |x| vec![prims::permute(x[0] * 0.5, vec![1, 0, 2])], 0),
    ("numbers", &[&[5, 3, 8]], |x| vec![prims::permute(cast(x[0] * 2.0, DType::I64), vec![1, 0, 2])], 1),
    ("one element", &[&[1, 1]], |x| vec![prims::reshape(x[0] * 0.5, vec![1])], 1),
    ("nothing", &[&[2, 0, 4]], |x| vec![prims::permute(x[0] * 0.5, vec![1, 0, 2])], 0),
    (
        "a copy of a copy",
        &[&[2, 5, 3, 4]],
        |x| {
            let y = prims::contiguous(prims::permute(x[0] * 0.5, vec![0, 2, 1, 3]));
            vec![prims::permute(y, vec![1, 0, 2, 3])]
        },
        2,
    ),
    ("heads", &[&[2, 5, 3, 4]], |x| vec![prims::permute(x[0] * 0.5, vec![0, 2, 1, 3])], 1),
    ("another shape", &[&[2, 6]], |x| vec![prims::reshape(x[0] * 0.5, vec![3, 4])], 1),
    (
        "read by others",
        &[&[2, 5, 3, 4]],
        |x| {
            let y = x[0] * 0.5;
            vec![prims::permute(y, vec![0, 2, 1, 3]), prims::abs(y)]
        },
        1,
    ),
    (
        "twice",
        &[&[2, 5, 3, 4]],
        |x| {
            let y = x[0] * 0.5;
            vec![prims::permute(y, vec![0, 2, 1, 3]), prims::permute(y, vec![1, 0, 2, 3])]
        },
        0,
    ),
    (
        "as it is computed too",
        &[&[2, 5, 3, 4]],
        |x| {
            let y = x[0] * 0.5;
            vec![y, prims::permute(y, vec![0, 2, 1, 3]), prims::reshape(y, vec![10, 12])]
        },
        0,
    ),
];

/// What a program returns in another layout is written so, if rows stay rows and nobody else wants it as it was.
#[test]
fn results_are_written_as_they_are_returned() {
    let columns: Function = |x| vec![prims::permute(x[0] * 0.5, vec![1, 0])];
    let more: [(&str, &[&[usize]], Function, usize); 1] = [("columns as rows", &[&[5, 3]], columns, 0)];
    for (name, shapes, f, expected) in LAID_OUT.into_iter().chain(more) {
        let trace = acquired(shapes, f);
        for fuse in [true, false] {
            let options = Options { fuse, ..options() };
            let planned = last(&trace, &options);
            assert_eq!(joins(&planned), expected, "{name}, fuse {fuse}\n{planned}");
            let plain = options.clone().with_executors(&["reference"]).unwrap();
            assert_eq!(values(&trace, &options, shapes), values(&trace, &plain, shapes), "{name}, fuse {fuse}");
            let target = "cuda:sm_90a".parse().unwrap();
            let planned = last(&retarget(&trace, &target), &options);
            assert_eq!(joins(&planned), expected, "{name}, fuse {fuse}\n{planned}");
            assert_eq!(parse(&planned.to_string()).unwrap(), planned, "{name}");
        }
    }
}

/// No copy follows attention, whose kernels have the heads of a position beside each other otherwise.
#[test]
fn attention_is_written_as_it_is_returned() {
    let attention: Function = |x| {
        let ((_, out), (query, key, value)) = value_and_grad_aux((x[0], x[1], x[2]), |(query, key, value)| {
            let out = scaled_dot_product_attention::with(*query, *key, *value).is_causal(true).call();
            ((out * x[3]).sum(), out)
        });
        vec![out, query, key, value]
    };
    let metas = vec![TensorMeta::new([2, 4, 256, 64], DType::BF16, Device::CPU); 4];
    let names = Names { arguments: vec!["x".into()], results: vec!["y".into()] };
    let traced = trace("f", Target::cpu(), &names, metas, attention).unwrap().0;
    for executors in [&["flash", "cuda"], &["cudnn", "cuda"]] {
        let options = options().with_executors(executors).unwrap();
        let planned = last(&retarget(&traced, &"cuda:sm_90a".parse().unwrap()), &options);
        let runs = planned.block.symbols.iter().filter(|symbol| symbol.executor.is_some_and(|by| by == executors[0]));
        assert_eq!((runs.count(), joins(&planned)), (2, 4), "{planned}");
        let copies = |symbol: &&BoundSymbol| symbol.name() == "prims::contiguous" && symbol.executor != Some(JOIN);
        assert_eq!(planned.block.symbols.iter().filter(copies).count(), 0, "{planned}");
    }
}

#[test]
fn what_others_read_is_copied() {
    let shapes: &[&[usize]] = &[&[5, 3], &[5, 4]];
    let not: [(&str, Function); 5] = [
        ("read elsewhere", |x| {
            let y = x[0] * 0.5;
            vec![prims::cat([y, x[1] - 1.0], 1) * 2.0, prims::cumsum(y, 1)]
        }),
        ("returned", |x| {
            let y = x[0] * 0.5;
            vec![prims::cat([y, x[1] - 1.0], 1) * 2.0, y]
        }),
        ("an input", |x| vec![prims::cat([x[0], x[1] - 1.0], 1) * 2.0]),
        ("a part of a value", |x| {
            let y = prims::slice(x[1] - 1.0, vec![0, 0], vec![5, 2], vec![1, 1]);
            vec![prims::cat([x[0] * 0.5, y], 1) * 2.0]
        }),
        ("twice", |x| {
            let y = x[0] * 0.5;
            vec![prims::cat([y, y], 1) * 2.0]
        }),
    ];
    for (name, f) in not {
        let trace = acquired(shapes, f);
        for fuse in [true, false] {
            let options = Options { fuse, ..options() };
            let planned = last(&trace, &options);
            assert_eq!(joins(&planned), 0, "{name}\n{planned}");
            let plain = options.clone().with_executors(&["reference"]).unwrap();
            assert_eq!(values(&trace, &options, shapes), values(&trace, &plain, shapes), "{name}");
        }
    }
}

/// Programs run with the layouts that the planner makes. The verifier compares them with the lines: it finds each that
/// is changed.
#[test]
fn layouts_that_the_lines_do_not_say_are_refused() {
    let mut changed = 0;
    for (name, shapes, f) in JOINING {
        for target in ["cpu", "cuda:sm_90a"] {
            let trace = retarget(&acquired(shapes, f), &target.parse().unwrap());
            let planned = last(&trace, &Options { fuse: false, ..options() });
            let layouts = layouts(&planned);
            verify_layouts(&planned, &layouts).unwrap();
            for (at, value) in planned.block.values.iter().enumerate() {
                let mut refuses = |what: &str, change: &dyn Fn(&mut Layout)| {
                    let mut wrong = layouts.clone();
                    change(&mut wrong[at]);
                    let verified = verify_layouts(&planned, &wrong);
                    assert!(verified.is_err(), "{name} for {target}: another {what} of '{}'\n{planned}", value.name);
                    changed += 1;
                };
                refuses("offset", &|layout| layout.offset += 1);
                refuses("offset", &|layout| layout.offset -= 1);
                refuses("root", &|layout| layout.root = planned.block.parameters[usize::from(at == 0)]);
                for axis in (0..value.meta.rank()).filter(|axis| value.meta.shape()[*axis] > 1) {
                    refuses("stride", &|layout| layout.strides[axis] += 1);
                    refuses("stride", &|layout| layout.strides[axis] = 0);
                }
            }
        }
    }
    assert!(changed > 500, "only {changed}");
}

/// A plan that is changed is refused: a part elsewhere, and a kernel that writes no such results.
#[test]
fn a_wrong_join_is_refused() {
    let (_, shapes, f) = JOINING[0];
    let planned = last(&acquired(shapes, f), &Options { fuse: false, ..options() });
    let part = planned.block.symbols.iter().find(|symbol| symbol.executor == Some(JOIN)).unwrap().operands().next();
    let part = part.unwrap();
    assert!(matches!(planned.block.value(part).storage, Some(Storage::Shared(_))), "{planned}");
    let mut elsewhere = planned.clone();
    elsewhere.block.values[part.index()].storage = Some(Storage::Arena(0));
    let error = elsewhere.verify().unwrap_err().to_string();
    assert!(error.contains("is a view of") || error.contains("takes bytes"), "{error}");
    let mut unable = planned.clone();
    let writer = unable.block.symbols.iter_mut().find(|symbol| symbol.results.contains(&part)).unwrap();
    writer.executor = Some("reference");
    let error = unable.verify().unwrap_err().to_string();
    assert!(error.contains("does not write"), "{error}");
    let mut other = planned.clone();
    let writer = other.block.symbols.iter_mut().find(|symbol| symbol.results.contains(&part)).unwrap();
    writer.executor = Some(JOIN);
    let error = other.verify().unwrap_err().to_string();
    assert!(error.contains("does not join tensors"), "{error}");
}
