use super::*;

/// What a row of logits comes to by the rules, in f64, written out plainly: an order by sorting pairs, sums in a loop.
fn plainly(sampling: &Sampling, logits: &[f32], occurred: &[usize]) -> Vec<f64> {
    let mut logits: Vec<f64> = logits.iter().map(|logit| f64::from(*logit)).collect();
    for (_, logit) in logits.iter_mut().enumerate().filter(|(token, _)| occurred.contains(token)) {
        let penalty = sampling.repetition_penalty;
        *logit = if *logit < 0.0 { *logit * penalty } else { *logit / penalty };
    }
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    order.truncate(sampling.top_k.unwrap_or(usize::MAX));
    let weight = |token: usize| ((logits[token] - logits[order[0]]) / sampling.temperature).exp();
    let total: f64 = order.iter().map(|token| weight(*token)).sum();
    let (mut kept, mut before) = (Vec::new(), 0.0);
    for token in &order {
        let needed = kept.is_empty() || before < sampling.top_p * total;
        if needed && weight(*token) >= sampling.min_p {
            kept.push(*token);
        }
        before += weight(*token);
    }
    let total: f64 = kept.iter().map(|token| weight(*token)).sum();
    (0..logits.len()).map(|token| if kept.contains(&token) { weight(token) / total } else { 0.0 }).collect()
}

/// The same by the traced function.
fn traced(sampling: &Sampling, logits: &Array, occurred: &[Vec<i64>]) -> Vec<f32> {
    let counts = occurrences(occurred, logits.shape()[1]).unwrap();
    let rules = sampling.rules();
    let program = fulgurite_runtime::jit(|(settings, logits, counts): (Settings<Tensor>, Tensor, Tensor)| {
        probabilities(rules, &settings, logits, Some(counts))
    });
    let result: Array = program.call((sampling.settings().unwrap(), logits.clone(), counts)).unwrap();
    result.to_vec().unwrap()
}

/// `rows` times `count` logits; those of a row differ from each other.
fn logits(rows: usize, count: usize, seed: u64) -> Vec<f32> {
    let mut random = crate::random::Stream::new(seed, 0x5A3);
    (0..rows * count).map(|_| random.below(1 << 20) as f32 / (1 << 17) as f32 - 4.0).collect()
}

fn choices() -> Vec<Sampling> {
    let all = Sampling { temperature: 1.0, top_k: None, ..Sampling::default() };
    vec![
        all,
        Sampling { temperature: 0.5, ..all },
        Sampling { top_k: Some(1), ..all },
        Sampling { top_k: Some(5), ..all },
        Sampling { top_k: Some(8), ..all },
        Sampling { top_k: Some(1000), ..all },
        Sampling { top_p: 0.9, ..all },
        Sampling { top_p: 0.3, temperature: 2.0, ..all },
        Sampling { top_p: 0.0, ..all },
        Sampling { min_p: 0.1, ..all },
        Sampling { min_p: 1.0, ..all },
        Sampling { repetition_penalty: 1.3, ..all },
        Sampling { repetition_penalty: 0.7, ..all },
        Sampling { temperature: 0.7, top_k: Some(20), top_p: 0.8, min_p: 0.05, repetition_penalty: 1.2, seed: 1 },
    ]
}

#[test]
fn every_rule_agrees_with_a_plain_reference() {
    let (rows, count) = (3, 50);
    let values = logits(rows, count, 1);
    let array = Array::new([rows, count], &values).unwrap();
    let occurred = [vec![3, 4, 4, 49], vec![], (0..50).collect::<Vec<i64>>()];
    for sampling in choices() {
        let found = traced(&sampling, &array, &occurred);
        for (row, values) in values.chunks(count).enumerate() {
            let seen: Vec<usize> = occurred[row].iter().map(|token| *token as usize).collect();
            for (token, expected) in plainly(&sampling, values, &seen).into_iter().enumerate() {
                let found = f64::from(found[row * count + token]);
                let place = format!("{sampling:?}: row {row}, token {token}: {found} and {expected}");
                assert_eq!(found > 0.0, expected > 0.0, "{place}");
                assert!((found - expected).abs() < 1e-5 * expected.max(1e-3), "{place}");
            }
        }
    }
}

/// Tokens that `draws` draws take from a row of logits, by the traced function.
fn drawn(sampling: &Sampling, logits: &[f32], draws: usize) -> Result<Vec<i64>> {
    let rules = sampling.rules();
    let program = fulgurite_runtime::jit(|(settings, logits, generator): (Settings<Tensor>, Tensor, Tensor)| {
        sample(rules, &settings, logits, None, generator)
    });
    // A row each, all alike.
    let rows = Array::new([draws, logits.len()], &logits.repeat(draws))?;
    let result: Array = program.call((sampling.settings()?, rows, Array::new([2], &[sampling.seed as i64, 0])?))?;
    result.to_vec()
}

#[test]
fn draws_are_distributed_by_the_probabilities() {
    let (count, draws) = (12, 20_000);
    let values = logits(1, count, 7);
    for sampling in choices() {
        let expected = plainly(&sampling, &values, &[]);
        let mut found = vec![0.0; count];
        drawn(&sampling, &values, draws).unwrap().iter().for_each(|token| found[*token as usize] += 1.0);
        let mut squares = 0.0;
        for (found, expected) in found.iter().zip(expected.iter().map(|share| share * draws as f64)) {
            assert!(expected > 0.0 || *found == 0.0, "{sampling:?}: a token was drawn that is left out");
            squares += if expected > 0.0 { (found - expected).powi(2) / expected } else { 0.0 };
        }
        // Chi square with 11 degrees of freedom is above 40 with a probability below 4e-5; the seed is fixed.
        assert!(squares < 40.0, "{sampling:?}: {squares}, {found:?}");
    }
    let other = Sampling { top_k: None, seed: 43, ..Sampling::default() };
    let same = Sampling { seed: 42, ..other };
    assert_ne!(drawn(&other, &values, 100).unwrap(), drawn(&same, &values, 100).unwrap());
    // A row's draw does not depend on how many rows there are.
    assert_eq!(drawn(&same, &values, 100).unwrap()[..7], drawn(&same, &values, 7).unwrap());
}

#[test]
fn of_equal_logits_the_lower_ids_are_taken() {
    let logits = [1.0, 2.0, 2.0, 0.0, 2.0, 1.0];
    let flat = Sampling { temperature: 1.0, top_k: None, ..Sampling::default() };
    let shares = |sampling: Sampling| {
        let found = traced(&sampling, &Array::new([1, 6], &logits).unwrap(), &[vec![]]);
        found.iter().map(|share| (share * 100.0).round() as i64).collect::<Vec<_>>()
    };
    assert_eq!(shares(Sampling { top_k: Some(2), ..flat }), [0, 50, 50, 0, 0, 0]);
    assert_eq!(shares(Sampling { top_k: Some(3), ..flat }), [0, 33, 33, 0, 33, 0]);
    assert_eq!(shares(Sampling { top_k: Some(usize::MAX), ..flat }), shares(flat));
    assert_eq!(shares(Sampling { top_p: 0.1, ..flat }), [0, 100, 0, 0, 0, 0]);
    assert_eq!(shares(Sampling { min_p: 1.0, ..flat }), [0, 33, 33, 0, 33, 0]);
    assert_eq!(drawn(&Sampling { temperature: 0.0, ..flat }, &logits, 2).unwrap(), [1, 1]);
}

#[test]
fn rows_without_a_largest_number_are_errors() {
    let (nan, infinity) = (f32::NAN, f32::INFINITY);
    let flat = Sampling { temperature: 1.0, top_k: None, ..Sampling::default() };
    let ways = [
        flat,
        Sampling { temperature: 0.0, ..flat },
        Sampling { top_k: Some(2), ..flat },
        Sampling { top_p: 0.5, ..flat },
        Sampling { min_p: 0.5, ..flat },
    ];
    for sampling in ways {
        for row in [[0.0, nan, 1.0], [nan, nan, nan], [0.0, infinity, 1.0], [-infinity, -infinity, -infinity]] {
            let message = drawn(&sampling, &row, 1).unwrap_err().to_string();
            assert!(message.contains("row 0 of the weights holds NaN"), "{sampling:?} {row:?}: {message}");
        }
        assert_eq!(drawn(&sampling, &[-infinity, 3.0, -infinity], 1).unwrap(), [1], "{sampling:?}");
    }
}

#[test]
fn numbers_change_without_compiling_again() {
    let first = Sampling { top_k: Some(33), top_p: 0.9, min_p: 0.1, repetition_penalty: 1.1, ..Sampling::default() };
    let rules = first.rules();
    let program = fulgurite_runtime::jit(|(settings, logits): (Settings<Tensor>, Tensor)| {
        probabilities(rules, &settings, logits, None)
    });
    let values = logits(1, 100, 3);
    let array = Array::new([1, 100], &values).unwrap();
    for other in [first, Sampling { top_k: Some(64), top_p: 0.2, min_p: 0.3, temperature: 1.5, ..first }] {
        assert_eq!(other.rules(), rules);
        let found: Array = program.call((other.settings().unwrap(), array.clone())).unwrap();
        let expected = plainly(&Sampling { repetition_penalty: 1.0, ..other }, &values, &[]);
        for (found, expected) in found.to_vec::<f32>().unwrap().into_iter().zip(expected) {
            assert!((f64::from(found) - expected).abs() < 1e-5, "{other:?}");
        }
    }
    assert_eq!(program.compiles(), 1);
}

#[test]
fn tokens_are_counted_row_by_row() {
    let counts = occurrences(&[vec![1, 1], vec![0]], 3).unwrap();
    let counted = fulgurite_runtime::jit(|(counts, tokens): (Tensor, Tensor)| count_tokens(counts, tokens));
    let again: Array = counted.call((counts, Array::new([2], &[1_i64, 2]).unwrap())).unwrap();
    assert_eq!(again.to_vec::<i32>().unwrap(), [0, 3, 0, 1, 0, 1]);
    for token in [3, -1] {
        let message = occurrences(&[vec![], vec![token]], 3).unwrap_err().to_string();
        assert!(message.contains(&format!("token {token} of row 1 is not in the vocabulary of 3")), "{message}");
    }
}

#[test]
fn numbers_that_are_none_of_a_rule_are_refused() {
    let usual = Sampling::default();
    for (sampling, expected) in [
        (Sampling { top_k: Some(0), ..usual }, "argument 'top_k': is 0, expected at least 1"),
        (Sampling { top_p: 1.5, ..usual }, "argument 'top_p': is 1.5, expected a number from 0 to 1"),
        (Sampling { top_p: f64::NAN, ..usual }, "argument 'top_p': is NaN"),
        (Sampling { min_p: -0.1, ..usual }, "argument 'min_p': is -0.1"),
        (Sampling { repetition_penalty: 0.0, ..usual }, "argument 'repetition_penalty': is 0e0, expected a number"),
        (Sampling { repetition_penalty: 1e39, ..usual }, "argument 'repetition_penalty': is 1e39"),
        (Sampling { temperature: -1.0, ..usual }, "argument 'temperature': is -1e0"),
    ] {
        let message = sampling.validate().unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

/// What `tests/golden/tokenizer_files.py` wrote: what the processors of `transformers` leave of logits.
#[test]
fn every_rule_agrees_with_transformers() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/tokenizer_files");
    let file = crate::tensor_file::TensorFile::load(&path.join("sampling.safetensors")).unwrap();
    let floats = |name: &str| file.tensors[name].to_f32().unwrap();
    let occurred = file.tensors["occurred"].to_i64().unwrap();
    let occurred: Vec<Vec<i64>> = occurred.chunks(8).map(<[i64]>::to_vec).collect();
    let logits = Array::new([3, 97], &floats("logits")).unwrap();
    let none = Sampling { temperature: 1.0, top_k: None, ..Sampling::default() };
    let all = Sampling { temperature: 1.4, top_k: Some(40), top_p: 0.9, min_p: 0.05, repetition_penalty: 1.2, seed: 0 };
    for (name, sampling) in [
        ("temperature", Sampling { temperature: 0.6, ..none }),
        ("top_k", Sampling { top_k: Some(12), ..none }),
        ("top_p", Sampling { top_p: 0.85, ..none }),
        ("min_p", Sampling { min_p: 0.08, ..none }),
        ("repetition_penalty", Sampling { repetition_penalty: 1.3, ..none }),
        ("all", all),
    ] {
        let found = traced(&sampling, &logits, &occurred);
        for (place, (found, expected)) in found.into_iter().zip(floats(name)).enumerate() {
            assert_eq!(found > 0.0, expected > 0.0, "{name} at {place}: {found} and {expected}");
            assert!((found - expected).abs() <= 1e-5 * expected.max(1e-3), "{name} at {place}: {found} and {expected}");
        }
    }
}

/// All of it is computed on the device: nothing is copied to the host in between.
#[test]
fn every_rule_has_kernels_on_cuda() {
    use fulgurite_runtime::compile::{Options, stages};
    use fulgurite_runtime::jit::{Names, trace};
    use fulgurite_runtime::transforms::retarget::retarget;
    use fulgurite_runtime::{Target, TensorMeta};

    let meta = |shape: &[usize], dtype| TensorMeta::new(shape, dtype, fulgurite_runtime::Device::CPU);
    let number = |dtype| meta(&[], dtype);
    let names = Names { arguments: Vec::new(), results: Vec::new() };
    let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
    for sampling in choices().into_iter().chain([greedy]) {
        let settings = Settings {
            temperature: number(DType::F32),
            top_k: number(DType::I64),
            top_p: number(DType::F32),
            min_p: number(DType::F32),
            repetition_penalty: number(DType::F32),
        };
        let inputs = (meta(&[4, 32_000], DType::BF16), meta(&[4, 32_000], DType::I32), meta(&[2], DType::I64));
        let rules = sampling.rules();
        let traced =
            trace("sample", Target::cpu(), &names, (settings, inputs), |(settings, (logits, counts, random))| {
                let next = sample(rules, &settings, logits, Some(counts), random);
                (next, count_tokens(counts, next))
            });
        let target: Target = "cuda:sm_90a".parse().unwrap();
        let planned = stages(retarget(&traced.unwrap().0, &target), &Options::default()).unwrap().pop().unwrap().trace;
        for symbol in &planned.block.symbols {
            for result in &symbol.results {
                let device = planned.block.meta(*result).device();
                assert!(!device.is_cpu(), "{sampling:?}: {} is computed on {device}", symbol.name());
            }
        }
    }
}
