//! A gallery of deliberately wrong operators, kernels and rewrites. For each it is known which template must catch it,
//! and on what; a template that stays green fails here. They live in this binary alone and never enter the registry of
//! the suite.

use fulgurite_runtime::jit::jit;
use fulgurite_runtime::testing::directives::Template;
use fulgurite_runtime::testing::{Filter, GeneratedTest, Settings, generated_tests, unmatched_directives};

use fulgurite_executors as _;
use fulgurite_runtime::{Array, Tensor};

#[path = "../src/wrong/blind_spots.rs"]
mod blind_spots;
#[path = "../src/wrong/collectives.rs"]
mod collectives;
mod device;
#[path = "../src/wrong/fusion.rs"]
mod fusion;
#[path = "../src/wrong/gradients.rs"]
mod gradients;
#[path = "../src/wrong/groups.rs"]
mod groups;
#[path = "../src/wrong/in_place.rs"]
mod in_place;
#[path = "wrong_operators/in_place.rs"]
mod in_place_is_caught;
#[path = "../src/wrong/kernels.rs"]
mod kernels;
#[path = "../src/wrong/rewrites.rs"]
mod rewrites;
#[path = "../src/wrong/rules.rs"]
mod rules;
#[path = "../src/wrong/uncompiled.rs"]
mod uncompiled;
#[path = "../src/wrong/unsloth.rs"]
mod unsloth;

fn tests_of(operator: &str, template: Template) -> Vec<GeneratedTest> {
    let filter = Filter { templates: vec![template], ..Filter::operator(operator) };
    let mut tests = generated_tests(&filter, &Settings::default());
    tests.retain(|test| test.operator == operator);
    assert!(!tests.is_empty(), "{operator} has no test '{}'", template.name());
    tests
}

/// What the failing tests of a template say.
fn caught(operator: &str, template: Template) -> String {
    let messages: Vec<String> = tests_of(operator, template).iter().filter_map(|test| (test.run)().err()).collect();
    assert!(!messages.is_empty(), "'{}' does not catch {operator}", template.name());
    messages.join("\n")
}

/// The template catches the operator, and says what is wrong.
#[track_caller]
fn must_catch(operator: &str, template: Template, what: &str) {
    let message = caught(operator, template);
    assert!(
        message.contains(what),
        "'{}' on {operator}: expected a message with '{what}', got\n{message}",
        template.name()
    );
    assert!(message.contains("repeat: "), "the message does not say how to repeat it:\n{message}");
}

/// The template has nothing to say against the operator.
#[track_caller]
fn must_pass(operator: &str, template: Template) {
    for test in tests_of(operator, template) {
        if let Err(message) = (test.run)() {
            panic!("'{}' fails although it should not:\n{message}", test.name);
        }
    }
}

#[test]
fn a_number_that_is_not_rounded_to_the_element_type() {
    must_catch("wrong::number_left_unrounded", Template::Bits, "a number, against a tensor filled with it");
    must_pass("wrong::number_left_unrounded", Template::Meta);
}

#[test]
fn a_kernel_on_a_device_that_ignores_alignment() {
    if device::cuda().is_none() {
        return;
    }
    must_catch("wrong::alignment_ignored", Template::Bounds, "aligned to an element alone");
    must_pass("wrong::alignment_ignored", Template::Determinism);
}

#[test]
fn a_zero_of_the_other_sign() {
    must_catch("wrong::sign_of_zero_lost", Template::Consistency, "expected -0.0, got 0.0");
    must_pass("wrong::sign_of_zero_lost", Template::Bits);
}

#[test]
fn a_term_dropped_from_a_gradient() {
    must_catch("wrong::dropped_term", Template::Gradient, "by central differences");
    must_catch("wrong::dropped_term", Template::Decomposition, "declared grad against that of the decomposition");
    must_pass("wrong::dropped_term", Template::Consistency);
    must_pass("wrong::dropped_term", Template::CotangentLinearity);
}

/// The others compare the gradient with that in f64, which is as wrong.
#[test]
fn a_term_dropped_from_a_gradient_is_seen_in_f64_alone() {
    let tests = tests_of("wrong::dropped_term", Template::Gradient);
    let (sharp, others): (Vec<_>, Vec<_>) = tests.iter().partition(|test| test.name.ends_with("::f64"));
    assert!(!sharp.is_empty() && !others.is_empty());
    assert!(sharp.iter().all(|test| (test.run)().is_err()));
    for test in others {
        assert_eq!((test.run)().map(drop), Ok(()), "{}", test.name);
    }
}

/// Where nothing compiles sources, their tests do not pass: they are ignored, and fail if they are run all the same.
#[test]
fn sources_that_nothing_compiles() {
    let tests = tests_of("wrong::uncompiled", Template::Sources);
    let [compiled, plain] = &tests[..] else { panic!("two tests, got {tests:?}") };
    assert_eq!(compiled.name, "wrong::uncompiled::sources::uncompiled_kernels");
    let lacks = compiled.lacks.as_deref().expect("there is no compiler");
    assert!(lacks.contains("devices of kind 'uncompiled' compile no sources"), "{lacks}");
    assert!((compiled.run)().unwrap_err().contains(lacks));
    // What needs no compiler is checked.
    assert_eq!(plain.name, "wrong::uncompiled::sources::uncompiled_kernels::uncompiled");
    assert_eq!(plain.lacks, None);
    let message = (plain.run)().unwrap_err();
    assert!(
        message.contains("takes 'const double* input', which is a pointer to f64; it is given operand 0 of f32"),
        "{message}"
    );
    assert!(message.contains("implemented for uncompiled_kernels at "), "{message}");
}

/// Neither of two operators of one name is found or called, and the message says where both are.
#[test]
fn two_operators_of_one_name() {
    let name = "wrong::declared_twice";
    let call = |def: fn(Tensor) -> Tensor| {
        let f = jit(def);
        f.call(Array::new([2], &[0.0_f32, 1.0]).unwrap()).map(drop)
    };
    let problems = [
        fulgurite_runtime::registry::find_operator(name).map(drop),
        call(rules::declared_first::declared_twice),
        call(rules::declared_again::declared_twice),
    ];
    let lines =
        [rules::declared_first::declared_twice::OPERATOR.line, rules::declared_again::declared_twice::OPERATOR.line];
    for problem in problems {
        let message = problem.unwrap_err().to_string();
        assert!(message.contains("two operators are called 'wrong::declared_twice'"), "{message}");
        for line in lines {
            assert!(message.contains(&format!("wrong/rules.rs:{line}, in the package fulgurite-tests")), "{message}");
        }
    }
    assert_eq!(fulgurite_runtime::registry::clashes().len(), 1);
}

#[test]
fn a_result_of_the_gradients_rule_that_is_another() {
    must_catch("wrong::result_beside_gradient", Template::Gradient, "as the rule of the gradient has it");
    must_pass("wrong::result_beside_gradient", Template::Consistency);
    must_pass("wrong::result_beside_gradient", Template::CotangentLinearity);
}

#[test]
fn a_gradient_that_is_another_where_an_operand_is_frozen() {
    must_catch("wrong::frozen_operand", Template::Gradient, "gradient of input where scale is frozen");
    must_pass("wrong::frozen_operand", Template::Decomposition);
    must_pass("wrong::frozen_operand", Template::CotangentLinearity);
}

/// What an executor makes of a loss and of a gated layer, with the mistakes of `careless_unsloth`.
#[test]
fn contracts_of_unsloth_that_are_broken() {
    let broken = [
        ("cross_entropy", Template::Gradient, "grad.input: along a random direction"),
        ("logsumexp", Template::Consistency, "got inf"),
        ("unsloth::gated_linear", Template::Gradient, "grad.weight: along a random direction"),
    ];
    for (operator, template, what) in broken {
        let message = caught_by(operator, template, "careless_unsloth");
        assert!(message.contains(what), "{operator}: expected a message with '{what}', got\n{message}");
        // It says where the implementation is, not only the operator.
        let place = message.lines().find(|line| line.contains("implemented for careless_unsloth at "));
        let place = place.unwrap_or_else(|| panic!("no place of the implementation in\n{message}"));
        assert!(place.contains("wrong/unsloth.rs:"), "{place}");
        assert_eq!(place.ends_with("with a `grad` of its own"), template == Template::Gradient, "{place}");
    }
}

/// Rows that meet the matrices of other groups, with the mistakes of `careless_groups`.
#[test]
fn products_of_groups_that_mix_them() {
    for (operator, what) in
        [("grouped_linear", "got NaN"), ("grouped_outer", "sample 2, executor careless_groups: result 1")]
    {
        let message = caught_by(operator, Template::Consistency, "careless_groups");
        assert!(message.contains(what), "{operator}: expected a message with '{what}', got\n{message}");
    }
}

#[test]
fn a_cotangent_that_does_not_arrive_and_is_not_zero() {
    must_catch("wrong::absent_cotangent", Template::CotangentLinearity, "for the cotangent of result 0 alone");
    must_pass("wrong::absent_cotangent", Template::Gradient);
}

#[test]
fn a_slope_at_a_kink_that_is_not_the_stated_one() {
    must_catch("wrong::slope_at_kink", Template::Gradient, "for cotangents of 1, 2, 3, ...: element [0]");
    must_pass("wrong::slope_at_kink", Template::Decomposition);
    must_pass("wrong::slope_at_kink", Template::CotangentLinearity);
}

#[test]
fn data_that_a_kernel_does_not_refuse() {
    must_catch("wrong::data_accepted", Template::Errors, "expected the error 'Weights', careless ran it");
    must_pass("wrong::data_accepted", Template::Consistency);
}

#[test]
fn a_cotangent_that_is_ignored() {
    must_catch("wrong::cotangent_ignored", Template::CotangentLinearity, "times the cotangent");
    must_catch("wrong::cotangent_ignored", Template::Gradient, "by central differences");
}

#[test]
fn a_meta_of_another_shape() {
    must_catch("wrong::bad_meta", Template::Meta, "meta says f32[2, 3], its decomposition gives f32[3, 2]");
    must_catch("wrong::bad_meta", Template::Decomposition, "its decomposition gives");
}

#[test]
fn a_tensor_that_is_made_on_the_host() {
    must_catch("wrong::made_on_the_host", Template::Meta, "on another device: ");
    must_catch("wrong::made_on_the_host", Template::Meta, "is on cpu, but input is on elsewhere:1");
    must_catch("wrong::made_on_the_host", Template::Meta, "`.device(input.device())`");
    must_pass("wrong::made_on_the_host", Template::Consistency);
}

#[test]
fn an_operator_that_nothing_is_compared_with() {
    must_catch("wrong::no_reference", Template::Consistency, "has no rule `reference`");
}

#[test]
fn swapped_arguments() {
    must_catch("wrong::swapped_arguments", Template::Consistency, "expected");
    must_catch("wrong::swapped_arguments", Template::Decomposition, "decomposition against reference");
    must_pass("wrong::swapped_arguments", Template::Meta);
}

#[test]
fn a_sum_in_low_precision() {
    must_catch("wrong::low_precision_sum", Template::Consistency, "bf16");
    // Its class of autocast loses too much.
    must_catch("wrong::low_precision_sum", Template::Autocast, "autocast to bf16: result 0: element []");
}

#[test]
fn a_class_of_autocast_that_the_operator_refuses() {
    must_catch("wrong::refuses_its_class", Template::Autocast, "an operand is f32");
    must_pass("wrong::refuses_its_class", Template::Consistency);
}

#[test]
fn a_precondition_that_its_sample_does_not_trip() {
    must_catch("wrong::untripped_precondition", Template::Errors, "expected the error 'Rank', it was accepted");
}

#[test]
fn a_precondition_that_a_part_of_the_operator_checks() {
    must_catch("wrong::precondition_of_a_part", Template::Errors, "is not checked by the operator itself");
}

#[test]
fn an_expected_failure_that_passes() {
    must_catch("wrong::expected_failure_that_passes", Template::Meta, "although a directive expects it to fail");
}

#[test]
fn a_directive_that_speaks_of_no_test() {
    let tests = generated_tests(&Filter::default(), &Settings::default());
    let unmatched = unmatched_directives(&tests);
    assert_eq!(unmatched.len(), 1, "{unmatched:?}");
    assert!(unmatched[0].contains("wrong::expected_failure_that_passes"), "{unmatched:?}");
    assert!(unmatched[0].contains("'gradient'"), "{unmatched:?}");
}

#[test]
fn a_last_row_that_is_not_written() {
    must_catch("wrong::last_row_unwritten", Template::Bounds, "left element 10 of 'last_row_unwritten' unwritten");
    must_catch("wrong::last_row_unwritten", Template::Consistency, "element [2, 0]");
}

#[test]
fn an_input_that_is_mutated() {
    must_catch("wrong::input_mutated", Template::Bounds, "changed its operand 'input'");
    must_catch("wrong::input_mutated", Template::Effects, "input 'input' was changed");
}

#[test]
fn collectives_that_are_right_on_one_rank() {
    must_catch("wrong::own_cotangent", Template::Ranks, "on 2 ranks: the sum of all losses moves by");
    must_pass("wrong::own_cotangent", Template::Gradient);
    for operator in ["wrong::own_data", "wrong::first_root", "wrong::others_swapped"] {
        must_catch(operator, Template::Ranks, "on 2 ranks: rank");
        must_pass(operator, Template::Consistency);
    }
}

#[test]
fn a_write_past_the_end() {
    must_catch("wrong::write_past_the_end", Template::Bounds, "wrote past the end");
    must_pass("wrong::write_past_the_end", Template::Consistency);
}

#[test]
fn strides_that_are_ignored() {
    must_catch("wrong::strides_ignored", Template::Layout, "permuted arrays");
    must_pass("wrong::strides_ignored", Template::Consistency);
}

#[test]
fn results_with_gaps_that_are_written_to_as_if_there_were_none() {
    must_catch("wrong::gaps_overwritten", Template::Bounds, "wrote between the elements of");
    must_catch("wrong::last_at_the_start", Template::Bounds, "is another where there are gaps");
    for operator in ["wrong::gaps_overwritten", "wrong::last_at_the_start"] {
        must_pass(operator, Template::Consistency);
        must_pass(operator, Template::Layout);
    }
}

#[test]
fn a_checker_that_accepts_too_much() {
    must_catch("wrong::accepts_too_much", Template::Checker, "the checker accepts it, but it does not run");
}

#[test]
fn a_sum_whose_order_depends_on_the_threads() {
    must_catch("wrong::unstable_order", Template::Determinism, "threads");
    must_pass("wrong::unstable_order", Template::Consistency);
}

#[test]
fn operands_that_do_not_commute() {
    must_catch("wrong::commuted_difference", Template::Consistency, "declares that its first two operands commute");
}

#[test]
fn an_operator_that_says_it_is_exact_and_rounds() {
    must_catch("wrong::rounded_exactly", Template::Consistency, "declares to be exact");
}

#[test]
fn an_operator_without_a_sample_that_it_accepts() {
    must_catch("wrong::no_samples", Template::Samples, "has no samples");
}

#[test]
fn a_symbol_that_nothing_is_compared_with() {
    must_catch("wrong::nothing_computes", Template::Samples, "has neither a rule `reference` nor a decomposition");
}

#[test]
fn a_gradient_rule_that_draws_other_numbers() {
    must_catch(
        "wrong::draws_otherwise",
        Template::Decomposition,
        "declared grad against that of the decomposition: result",
    );
    must_pass("wrong::draws_alike", Template::Decomposition);
}

#[test]
fn an_argument_that_no_sample_varies() {
    must_catch("wrong::argument_never_varied", Template::Samples, "argument 'scale' changes no result in any sample");
    must_catch("wrong::argument_never_varied", Template::Samples, "it is 2.0 in every sample");
    // Nothing else sees that the decomposition ignores it.
    must_pass("wrong::argument_never_varied", Template::Consistency);
    must_pass("wrong::argument_never_varied", Template::Decomposition);
}

#[test]
fn an_argument_whose_values_make_no_difference() {
    must_catch("wrong::argument_without_effect", Template::Samples, "argument 'floor' changes no result in any sample");
    must_catch("wrong::argument_without_effect", Template::Samples, "gives the same with");
    must_pass("wrong::argument_without_effect", Template::Consistency);
}

#[test]
fn a_waiver_of_an_argument_that_decides() {
    must_catch("wrong::waiver_without_need", Template::Samples, "'input' is waived, but it decides about a result");
}

#[test]
fn a_decomposition_that_calls_itself() {
    let path = "its decomposition calls itself: wrong::calls_itself -> wrong::calls_itself";
    must_catch("wrong::calls_itself", Template::Consistency, path);
    must_catch("wrong::never_ends", Template::Consistency, "decompositions are nested 64 deep: wrong::never_ends -> ");
}

/// Whether kernels can be compiled here; where they must be, they can.
fn has_nvrtc() -> bool {
    let found = fulgurite_runtime::kernels::cuda::nvrtc::version();
    let required = std::env::var("FULGURITE_REQUIRE_NVRTC").is_ok_and(|value| value == "1");
    assert!(found.is_ok() || !required, "{found:?}");
    found.is_ok()
}

/// Their code has pointers of eight bytes, as right code has. No compiler is needed.
#[test]
fn kernels_whose_pointers_have_other_types() {
    must_catch(
        "wrong::wide_input",
        Template::Sources,
        "takes 'const double* input', which is a pointer to f64; it is given operand 0 of f32",
    );
    must_catch(
        "wrong::wide_result",
        Template::Sources,
        "takes 'double* out', which is a pointer to f64; it is given result 0 of f32",
    );
}

#[test]
fn kernels_that_do_not_fit_their_launches() {
    if !has_nvrtc() {
        println!("skipped: there is no NVRTC");
        return;
    }
    must_catch(
        "wrong::misspelt_kernel",
        Template::Sources,
        "has no kernel 'twise', did you mean 'twice'? (there are: twice;",
    );
    must_catch(
        "wrong::missing_bind",
        Template::Sources,
        "takes 3 parameters of [8, 8, 8] bytes, the launch gives 2 of [8, 8]",
    );
    must_catch(
        "wrong::narrow_bind",
        Template::Sources,
        "takes 3 parameters of [8, 8, 8] bytes, the launch gives 3 of [8, 8, 4]",
    );
    must_catch("wrong::broken_source", Template::Sources, "identifier \"result\" is undefined");
}

#[test]
fn a_name_of_the_header_is_defined() {
    must_pass("wrong::defines_t", Template::Sources);
}

#[test]
fn values_of_16_bits_that_a_region_does_not_round() {
    for operator in ["prims::mul", "prims::exp"] {
        let message = caught(operator, Template::Bits);
        for dtype in ["bf16", "f16"] {
            assert!(
                message.contains(&format!("{operator}::bits::unrounded::{dtype}")),
                "{operator} in {dtype}: {message}"
            );
        }
        assert!(message.contains("against unfused and kept"), "{message}");
        assert!(!message.contains("::bits::cpu::"), "{message}");
    }
}

#[test]
fn a_meta_that_forgets_the_types_of_other_operands() {
    must_catch("wrong::mixed_types", Template::Types, "meta says bf16[2, 3], its decomposition gives f32[2, 3]");
    must_pass("wrong::mixed_types", Template::Consistency);
    // And so says a user's call, whatever is verified.
    let options = fulgurite_runtime::compile::Options { verify: false, ..Default::default() };
    let call = fulgurite_runtime::jit(|(input, weight)| rules::mixed_types(input, weight)).options(options);
    let array = |dtype| fulgurite_runtime::Array::from_f64([2, 3], dtype, &[0.5; 6]).unwrap();
    let error = call.call((array(fulgurite_runtime::DType::BF16), array(fulgurite_runtime::DType::F32))).unwrap_err();
    assert!(error.to_string().contains("meta says bf16[2, 3], its decomposition gives f32[2, 3]"), "{error}");
}

/// What the failing tests of one executor say of an operator.
#[track_caller]
fn caught_by(operator: &str, template: Template, executor: &str) -> String {
    let mut tests = tests_of(operator, template);
    tests.retain(|test| test.executor == Some(executor));
    let messages: Vec<String> = tests.iter().filter_map(|test| (test.run)().err()).collect();
    assert!(!messages.is_empty(), "'{}' does not catch {operator} by {executor}", template.name());
    messages.join("\n")
}

#[test]
fn attention_without_a_running_maximum() {
    let message = caught_by("scaled_dot_product_attention", Template::Consistency, "unshifted");
    assert!(message.contains("got NaN"), "{message}");
}

#[test]
fn attention_that_is_wrong_between_two_widths() {
    let message = caught_by("scaled_dot_product_attention", Template::Consistency, "narrow_heads");
    assert!(message.contains("f32[1, 2, 33, 72]"), "{message}");
}

#[test]
fn updates_and_places_beyond_what_is_held() {
    let message = caught_by("prims::scatter_add", Template::Consistency, "forgetful");
    assert!(message.contains("f64[7], 0, i64[300], f64[300]"), "{message}");
    let message = caught_by("prims::topk", Template::Consistency, "forgetful");
    assert!(message.contains("f64[1030], 600, 0, true"), "{message}");
}

/// What `executor` gives where `like` is allowed the tolerances: what the tests of a template in f32 say, of those
/// that fail.
fn judged_like(operator: &str, template: Template, executor: &'static str, like: &'static str) -> Vec<String> {
    let filter = Filter { templates: vec![template], ..Filter::operator(operator) };
    let settings = Settings { directives_of: Some([executor, like]), ..Settings::default() };
    let mut tests = generated_tests(&filter, &settings);
    tests.retain(|test| test.operator == operator && test.executor == Some(executor) && test.name.ends_with("::f32"));
    assert!(!tests.is_empty(), "{operator} has no test '{}' by {executor}", template.name());
    tests.iter().filter_map(|test| (test.run)().err()).collect()
}

/// Operators that executors of TF32 run, and the executor.
const PRODUCTS: [(&str, &str); 3] =
    [("prims::matmul", "tf32"), ("linear", "tf32"), ("scaled_dot_product_attention", "flash_tf32")];

/// Products of operands that are rounded to TF32 pass by the tolerances of its executors, and those rounded to bf16
/// are caught, the result and its gradient alike.
#[test]
fn a_tolerance_of_tf32_that_lets_bf16_through() {
    let mut wrong = Vec::new();
    for (operator, like) in PRODUCTS {
        for template in [Template::Consistency, Template::Gradient] {
            for problem in judged_like(operator, template, "rounding_to_tf32", like) {
                wrong.push(format!("TF32 fails: {problem}"));
            }
            if judged_like(operator, template, "rounding_to_bf16", like).is_empty() {
                wrong.push(format!("bf16 passes '{}' of {operator}", template.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} problems:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_second_derivative_that_is_wrong() {
    must_catch(
        "wrong::second_derivative",
        Template::SecondGradient,
        "the derivative of its gradient with respect to input",
    );
    must_pass("wrong::second_derivative", Template::Gradient);
}

#[test]
fn rewrites_that_ignore_what_they_bind() {
    must_catch("wrong::merge_rotations", Template::Rewrite, "of the pattern against the replacement");
    must_pass("wrong::rotate", Template::Consistency);
    must_catch("wrong::fixed_eps", Template::Rewrite, "with eps = ");
}

#[test]
fn a_rewrite_with_an_attribute_that_nothing_binds() {
    must_catch("wrong::unbound_scale", Template::Rewrite, "gives 'scale' to no operator as it is");
}

#[test]
fn a_rewrite_of_what_it_writes() {
    must_catch("wrong::endless", Template::Rewrite, "it fires on its own replacement, without end");
}
