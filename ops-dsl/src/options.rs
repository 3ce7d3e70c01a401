//! The settings of `#[operator(...)]`: what is known, what is missing, what is misspelt.

use proc_macro2::{Ident, Span};
use quote::ToTokens;
use syn::parse::Parser;
use syn::{Expr, ExprLit, ExprPath, Lit, LitInt, LitStr, Path};

use crate::errors::{Errors, did_you_mean};
use crate::model::{Directive, DirectiveKind, Effects, Kind, Options};
use crate::parse::{Setting, Value, settings};

/// The templates of the generated tests: the name in directives, the variant of `Template`.
pub const TEMPLATES: [(&str, &str); 24] = [
    ("samples", "Samples"),
    ("sources", "Sources"),
    ("meta", "Meta"),
    ("consistency", "Consistency"),
    ("golden", "Golden"),
    ("errors", "Errors"),
    ("layout", "Layout"),
    ("decomposition", "Decomposition"),
    ("gradient", "Gradient"),
    ("second_gradient", "SecondGradient"),
    ("cotangent_linearity", "CotangentLinearity"),
    ("effects", "Effects"),
    ("bounds", "Bounds"),
    ("in_place", "InPlace"),
    ("determinism", "Determinism"),
    ("checker", "Checker"),
    ("round_trip", "RoundTrip"),
    ("snapshot", "Snapshot"),
    ("rewrite", "Rewrite"),
    ("autocast", "Autocast"),
    ("bits", "Bits"),
    ("types", "Types"),
    ("programs", "Programs"),
    ("ranks", "Ranks"),
];

/// The precisions of executors, the variants of the runtime's `Precision`, and what executors do in them.
const PRECISIONS: [(&str, &str, &str); 3] = [
    ("exact", "Exact", "nothing rounded before it is multiplied"),
    ("tf32", "Tf32", "operands of f32 rounded to TF32 (10 bits of fraction)"),
    ("fp8", "Fp8", "operands rounded to 8 bits"),
];

/// Element types: the name in directives, the variant of `DType`.
pub const DTYPES: [(&str, &str); 12] = [
    ("bool", "Bool"),
    ("u8", "U8"),
    ("i8", "I8"),
    ("u16", "U16"),
    ("i16", "I16"),
    ("u32", "U32"),
    ("i32", "I32"),
    ("i64", "I64"),
    ("f16", "F16"),
    ("bf16", "BF16"),
    ("f32", "F32"),
    ("f64", "F64"),
];

/// What autocast may make of an operator's operands: the word in settings, the variant of `Autocast`.
pub const AUTOCAST: [(&str, &str); 4] = [("low", "Low"), ("full", "Full"), ("widest", "Widest"), ("keep", "Keep")];

/// What an operator may do with elements: the word in settings, the variant of `Elements`.
const ELEMENTS: [(&str, &str); 7] = [
    ("convert", "Convert"),
    ("sum", "Sum"),
    ("max", "Max"),
    ("min", "Min"),
    ("reshape", "Reshape"),
    ("broadcast", "Broadcast"),
    ("select", "Select"),
];

/// Kinds of devices that Fulgurite comes with.
pub const DEVICES: [&str; 2] = ["cpu", "cuda"];

/// Reports settings that are given more than once and are not among the `repeatable` ones: the last would win unseen.
pub fn once(settings: &[Setting], repeatable: &[&str], errors: &mut Errors) {
    for (i, setting) in settings.iter().enumerate() {
        let name = setting.name.to_string();
        if !repeatable.contains(&name.as_str()) && settings[..i].iter().any(|earlier| earlier.name == setting.name) {
            errors.at(&setting.name, format!("`{name}` is given twice"));
        }
    }
}

/// Reports a setting that is not known.
pub fn unknown(setting: &Setting, of: &str, known: &[&str], errors: &mut Errors) {
    let name = setting.name.to_string();
    let hint = did_you_mean(&name, known.iter().copied());
    errors.at(&setting.name, format!("{of} has no setting `{name}`{hint} (there are: {})", known.join(", ")));
}

/// Without the invisible group that `macro_rules!` puts around what it matched.
fn ungrouped(value: &Expr) -> &Expr {
    match value {
        Expr::Group(group) => ungrouped(&group.expr),
        other => other,
    }
}

/// `name = "text"`.
pub fn text(setting: &Setting, errors: &mut Errors) -> Option<LitStr> {
    match &setting.value {
        Value::Equals(value) => match ungrouped(value) {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => return Some(text.clone()),
            other => errors.at(other, format!("write a string: `{} = \"...\"`", setting.name)),
        },
        _ => errors.at(setting, format!("write `{} = \"...\"`", setting.name)),
    }
    None
}

/// `name = some::path`.
pub fn path(setting: &Setting, errors: &mut Errors) -> Option<Path> {
    match &setting.value {
        Value::Equals(value) => match ungrouped(value) {
            Expr::Path(ExprPath { path, qself: None, .. }) => return Some(path.clone()),
            other => errors.at(other, format!("write the path of a module: `{} = path`", setting.name)),
        },
        _ => errors.at(setting, format!("write `{} = path`", setting.name)),
    }
    None
}

/// `name`, alone.
pub fn flag(setting: &Setting, errors: &mut Errors) -> bool {
    if !matches!(setting.value, Value::Flag) {
        errors.at(setting, format!("`{}` takes no value", setting.name));
    }
    true
}

/// A reason, which must say something.
pub fn reason(setting: &Setting, errors: &mut Errors) -> Option<LitStr> {
    let given = text(setting, errors)?;
    if given.value().trim().is_empty() {
        errors.at(&given, format!("`{}` needs a reason that says something", setting.name));
    }
    Some(given)
}

/// The settings inside of `name(...)`.
fn inner<'a>(setting: &'a Setting, example: &str, errors: &mut Errors) -> &'a [Setting] {
    match &setting.value {
        Value::List(inner) if !inner.is_empty() => inner,
        _ => {
            errors.at(setting, format!("write `{example}`"));
            &[]
        }
    }
}

/// Reads the settings of `#[operator(...)]`.
pub fn operator(settings: Vec<Setting>, errors: &mut Errors) -> Options {
    const KNOWN: [&str; 23] = [
        "prim",
        "executor",
        "torch",
        "name",
        "dtypes",
        "complex",
        "overload",
        "autocast",
        "autocast_keeps",
        "elements",
        "exact",
        "commutes",
        "accumulates",
        "effects",
        "strided",
        "strided_results",
        "in_place",
        "cheap",
        "no_grad",
        "waive",
        "skip",
        "expected_failure",
        "tolerance",
    ];
    let mut options = Options {
        kind: Kind::Composite,
        name: None,
        torch: None,
        dtypes: Vec::new(),
        overload: None,
        autocast: None,
        autocast_keeps: Vec::new(),
        elements: None,
        exact: false,
        commutes: false,
        accumulates: Vec::new(),
        effects: Effects::default(),
        strided: false,
        strided_results: None,
        in_place: None,
        cheap: false,
        complex: false,
        no_grad: None,
        waived: Vec::new(),
        directives: Vec::new(),
        reliable: true,
    };
    let before = errors.messages().len();
    once(&settings, &["waive", "skip", "expected_failure", "tolerance"], errors);
    for setting in &settings {
        let name = setting.name.to_string();
        let is_kind = name == "prim" || name == "executor";
        if is_kind && !matches!(options.kind, Kind::Composite) {
            errors.at(&setting.name, "an operator is a prim, or belongs to an executor, not both");
        }
        match name.as_str() {
            "prim" => {
                flag(setting, errors);
                options.kind = Kind::Prim;
            }
            "executor" => {
                let owners = owners(setting, errors);
                if !owners.is_empty() {
                    options.kind = Kind::Symbol(owners);
                }
            }
            "torch" => options.torch = text(setting, errors),
            "name" => options.name = text(setting, errors),
            "dtypes" => options.dtypes = dtypes(setting, errors),
            "overload" => {
                options.overload = path(setting, errors).and_then(|path| path.get_ident().cloned());
            }
            "autocast" => options.autocast = variant(setting, &AUTOCAST, errors),
            "autocast_keeps" => options.autocast_keeps = names(setting, "autocast_keeps(x)", errors),
            "elements" => options.elements = variant(setting, &ELEMENTS, errors),
            "exact" => options.exact = flag(setting, errors),
            "commutes" => options.commutes = flag(setting, errors),
            "accumulates" => options.accumulates = names(setting, "accumulates(x)", errors),
            "effects" => effects(setting, &mut options.effects, errors),
            "strided" => options.strided = flag(setting, errors),
            "strided_results" => options.strided_results = strided_results(setting, errors),
            "in_place" => options.in_place = in_place(setting, errors),
            "complex" => options.complex = flag(setting, errors),
            "cheap" => options.cheap = flag(setting, errors),
            "no_grad" => {
                options.no_grad =
                    reason(setting, errors).or_else(|| Some(LitStr::new("no reason given", Span::call_site())));
            }
            "waive" => options.waived.extend(waived(setting, errors)),
            "skip" | "expected_failure" | "tolerance" => {
                options.directives.extend(directives(setting, errors));
            }
            _ => unknown(setting, "`#[operator]`", &KNOWN, errors),
        }
    }
    options.reliable = before == 0 && errors.messages().len() == before;
    options
}

/// `dtypes(f32, bf16)`; gives the variants at the author's words.
fn dtypes(setting: &Setting, errors: &mut Errors) -> Vec<Ident> {
    let mut all: Vec<Ident> = Vec::new();
    for word in names(setting, "dtypes(f32, bf16)", errors) {
        let name = word.to_string();
        let Some((_, variant)) = DTYPES.iter().find(|(known, _)| *known == name) else {
            let known = DTYPES.map(|(known, _)| known);
            let hint = did_you_mean(&name, known.iter().copied());
            errors.at(&word, format!("there is no dtype `{name}`{hint} (there are: {})", known.join(", ")));
            continue;
        };
        if all.iter().any(|other| other == variant) {
            errors.at(&word, format!("the dtype `{name}` is given twice"));
        }
        all.push(Ident::new(variant, word.span()));
    }
    all
}

/// `autocast = low`: one of the words of `table`; gives the variant at the author's word.
fn variant(setting: &Setting, table: &[(&str, &str)], errors: &mut Errors) -> Option<Ident> {
    let known: Vec<&str> = table.iter().map(|(word, _)| *word).collect();
    let name = &setting.name;
    let Value::Equals(value) = &setting.value else {
        errors.at(setting, format!("write `{name} = ...` with one of: {}", known.join(", ")));
        return None;
    };
    let value = ungrouped(value);
    let word = value.to_token_stream().to_string();
    let Some((_, variant)) = table.iter().find(|(known, _)| *known == word) else {
        let hint = did_you_mean(&word, known.iter().copied());
        errors.at(value, format!("`{name}` has no value `{word}`{hint} (there are: {})", known.join(", ")));
        return None;
    };
    Some(Ident::new(variant, setting.name.span()))
}

/// `waive(d_name = "reason")`.
pub fn waived(setting: &Setting, errors: &mut Errors) -> Vec<(Ident, LitStr)> {
    let mut all = Vec::new();
    for waived in inner(setting, "waive(d_name = \"why its cotangent is not used\")", errors) {
        if let Some(reason) = reason(waived, errors) {
            all.push((waived.name.clone(), reason));
        }
    }
    all
}

fn effects(setting: &Setting, effects: &mut Effects, errors: &mut Errors) {
    let example = "effects(random, collective)";
    for effect in inner(setting, example, errors) {
        match effect.name.to_string().as_str() {
            "random" => effects.random = flag(effect, errors),
            "collective" => effects.collective = flag(effect, errors),
            "place" => effects.place = flag(effect, errors),
            "mutates" => errors.at(
                effect,
                "values of a program do not change: return what the tensor becomes, and declare `in_place(x)` for the \
                 result to take its memory",
            ),
            "aliases" => errors.at(
                effect,
                "each result of a program has memory of its own: what only looks at its operand in another way has a \
                 rule `view`",
            ),
            _ => unknown(effect, "`effects`", &["random", "collective", "place"], errors),
        }
    }
}

/// `strided_results = 1`: how many of the last dimensions of results are as in a contiguous tensor.
pub fn strided_results(setting: &Setting, errors: &mut Errors) -> Option<LitInt> {
    let number = match &setting.value {
        Value::Equals(value) => syn::parse2(value.to_token_stream()).ok(),
        _ => None,
    };
    let number = number.filter(|number: &LitInt| number.base10_parse::<usize>().is_ok());
    if number.is_none() {
        let meaning = "how many of the last dimensions of results must be packed";
        errors.at(setting, format!("write `strided_results = 1`: {meaning}, where others may have any strides"));
    }
    number
}

/// `in_place`, over any operand, or `in_place(x, y)`, over these alone.
pub fn in_place(setting: &Setting, errors: &mut Errors) -> Option<Vec<Ident>> {
    Some(match setting.value {
        Value::Flag => Vec::new(),
        _ => names(setting, "in_place(x)", errors),
    })
}

fn names(setting: &Setting, example: &str, errors: &mut Errors) -> Vec<Ident> {
    inner(setting, example, errors)
        .iter()
        .map(|inner| {
            flag(inner, errors);
            inner.name.clone()
        })
        .collect()
}

/// `precision = tf32`: the variant of the runtime's `Precision`.
pub fn precision(setting: &Setting, errors: &mut Errors) -> Option<Ident> {
    let given = path(setting, errors)?;
    let name = given.to_token_stream().to_string();
    let known = PRECISIONS.iter().find(|(known, ..)| *known == name);
    if known.is_none() {
        let names = PRECISIONS.map(|(known, ..)| known);
        let hint = did_you_mean(&name, names);
        errors.at(&given, format!("there is no precision `{name}`{hint} (there are: {})", names.join(", ")));
    }
    known.map(|(_, variant, _)| Ident::new(variant, setting.name.span()))
}

/// What executors do in the precision of this variant.
pub fn meaning(precision: &Ident) -> &'static str {
    PRECISIONS.iter().find(|(_, variant, _)| precision == variant).map_or("", |(.., meaning)| meaning)
}

/// `precisions(flash_tf32 = tf32)`: the names and variants of further precisions.
pub fn precisions(setting: &Setting, errors: &mut Errors) -> Vec<(Ident, Ident)> {
    let inner = inner(setting, "precisions(name_in_lists = tf32)", errors);
    once(inner, &[], errors);
    inner.iter().filter_map(|one| Some((one.name.clone(), precision(one, errors)?))).collect()
}

/// `executor = liger` or `executor = [on_host, on_gpu]`: the modules of a symbol's executors.
fn owners(setting: &Setting, errors: &mut Errors) -> Vec<Path> {
    let all = executors(setting, errors).into_iter().map(|(path, own)| {
        if let Some(first) = own.first() {
            errors.at(&first.name, "settings hold for the symbol on every device: write them beside `executor`");
        }
        path
    });
    all.collect()
}

/// `by = liger` or `by = [cublaslt, tf32(in_place(x))]`: modules of executors, with settings for each.
pub fn executors(setting: &Setting, errors: &mut Errors) -> Vec<(Path, Vec<Setting>)> {
    let list = match &setting.value {
        Value::Equals(value) => match ungrouped(value) {
            Expr::Array(list) => list.elems.iter().collect(),
            other => vec![other],
        },
        _ => Vec::new(),
    };
    if list.is_empty() {
        errors.at(setting, format!("write `{name} = path`, or `{name} = [path, path]`", name = setting.name));
    }
    let mut all: Vec<(Path, Vec<Setting>)> = Vec::new();
    for one in list {
        let (path, own) = match one {
            Expr::Call(call) => (&*call.func, errors.keep(settings.parse2(call.args.to_token_stream()))),
            other => (other, Some(Vec::new())),
        };
        let Expr::Path(ExprPath { path, qself: None, .. }) = ungrouped(path) else {
            errors.at(one, format!("write the path of a module: `{} = path`", setting.name));
            continue;
        };
        if all.iter().any(|(other, _)| other == path) {
            errors.at(path, "the executor is given twice");
        } else {
            all.push((path.clone(), own.unwrap_or_default()));
        }
    }
    all
}

/// One directive for each executor that is named, and each element type.
fn directives(setting: &Setting, errors: &mut Errors) -> Vec<Directive> {
    let word = setting.name.to_string();
    let example = match word.as_str() {
        "tolerance" => "tolerance(consistency, factor = 4.0, reason = \"...\")".to_owned(),
        _ => format!("{word}(consistency, executor = \"cpu\", dtype = bf16, reason = \"...\")"),
    };
    let inner = inner(setting, &example, errors);
    let (mut templates, mut executors, mut dtypes) = (Vec::new(), Vec::new(), Vec::new());
    let mut of_precision = None;
    let (mut sample, mut because, mut factor, mut scaled) = (None, None, None, None);
    for part in inner {
        match (part.name.to_string().as_str(), &part.value) {
            ("executor", _) => executors.extend(text(part, errors)),
            ("precision", _) => of_precision = precision(part, errors),
            ("dtype", _) => {
                dtypes.extend(path(part, errors).and_then(|path| {
                    let name = path.to_token_stream().to_string();
                    let known = DTYPES.iter().find(|(known, _)| *known == name);
                    if known.is_none() {
                        let known: Vec<_> = DTYPES.iter().map(|(known, _)| *known).collect();
                        errors.at(&path, format!("there is no dtype `{name}` (there are: {})", known.join(", ")));
                    }
                    known.map(|(_, variant)| Ident::new(variant, part.name.span()))
                }));
            }
            ("sample", Value::Equals(value)) => sample = Some((**value).clone()),
            ("factor", Value::Equals(value)) if word == "tolerance" => factor = Some((**value).clone()),
            ("scaled", Value::Equals(value)) if word == "tolerance" => scaled = Some((**value).clone()),
            ("reason", _) => because = reason(part, errors),
            (name, Value::Flag) => match TEMPLATES.iter().find(|(known, _)| *known == name) {
                Some((_, variant)) => templates.push(Ident::new(variant, part.name.span())),
                None => {
                    let known: Vec<_> = TEMPLATES.iter().map(|(known, _)| *known).collect();
                    errors.at(
                        &part.name,
                        format!(
                            "there is no generated test `{name}`{} (there are: {})",
                            did_you_mean(name, known.iter().copied()),
                            known.join(", ")
                        ),
                    );
                    // The directive is complete otherwise; say no more about it.
                    templates.push(Ident::new("Meta", part.name.span()));
                }
            },
            _ => {
                let known: &[&str] = match word.as_str() {
                    "tolerance" => &["executor", "precision", "dtype", "sample", "factor", "scaled", "reason"],
                    _ => &["executor", "precision", "dtype", "sample", "reason"],
                };
                unknown(part, &format!("`{word}`"), known, errors);
            }
        }
    }
    if inner.is_empty() {
        return Vec::new();
    }
    if templates.is_empty() {
        errors.at(&setting.name, format!("say which generated test it speaks of: `{example}`"));
    }
    if because.is_none() && !inner.iter().any(|part| part.name == "reason") {
        errors.at(&setting.name, format!("`{word}` needs a reason: `{example}`"));
    }
    let kind = match word.as_str() {
        "skip" => DirectiveKind::Skip,
        "expected_failure" => DirectiveKind::ExpectedFailure,
        _ if factor.is_none() && scaled.is_none() => {
            errors.at(&setting.name, format!("say by how much: `{example}`"));
            return Vec::new();
        }
        _ => DirectiveKind::Tolerance(Box::new([factor, scaled])),
    };
    let Some(reason) = because else { return Vec::new() };
    let mut all = Vec::new();
    for executor in named(&executors) {
        for dtype in named(&dtypes) {
            all.push(Directive {
                kind: kind.clone(),
                templates: templates.clone(),
                executor: executor.clone(),
                precision: of_precision.clone(),
                dtype,
                sample: sample.clone(),
                reason: reason.clone(),
            });
        }
    }
    all
}

/// Each of those that are named; if none is, all are meant.
fn named<T: Clone>(names: &[T]) -> Vec<Option<T>> {
    if names.is_empty() { vec![None] } else { names.iter().cloned().map(Some).collect() }
}
