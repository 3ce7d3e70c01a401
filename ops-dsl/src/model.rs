//! What a declaration says, free of its syntax.

use proc_macro2::{Ident, Span, TokenStream};
use syn::{Expr, FnArg, GenericArgument, LitInt, LitStr, Path, PathArguments, Type};

use crate::args::{self, Fields};
use crate::errors::Errors;
use crate::parse::Function;

/// Which element types a tensor takes; the names are those of the runtime's `Class`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Every type.
    Any,
    /// f16, bf16, f32, f64.
    Floating,
    /// u8, i32, i64.
    Integer,
    /// bool.
    Boolean,
    /// Everything but bool.
    Number,
    /// c64, c128.
    Complex,
}

impl Class {
    /// Every class by its name.
    pub const ALL: [(&'static str, Class); 6] = [
        ("Any", Class::Any),
        ("Floating", Class::Floating),
        ("Integer", Class::Integer),
        ("Boolean", Class::Boolean),
        ("Number", Class::Number),
        ("Complex", Class::Complex),
    ];

    /// The variant's name.
    pub fn name(self) -> &'static str {
        Class::ALL.iter().find(|(_, class)| *class == self).map_or("Any", |(name, _)| name)
    }

    /// Whether the class has this variant of `DType`.
    pub fn holds(self, dtype: &str) -> bool {
        let floating = matches!(dtype, "F16" | "BF16" | "F32" | "F64");
        match self {
            Class::Any => true,
            Class::Floating => floating,
            Class::Integer => !floating && dtype != "Bool",
            Class::Boolean => dtype == "Bool",
            Class::Number => dtype != "Bool",
            // The element types that settings name are real.
            Class::Complex => false,
        }
    }

    /// Whether a tensor of this class may have a gradient.
    pub fn may_be_floating(self) -> bool {
        matches!(self, Class::Any | Class::Floating | Class::Number | Class::Complex)
    }
}

/// What a parameter is.
#[derive(Debug, Clone)]
pub enum ParamKind {
    /// A tensor.
    Tensor(Class),
    /// An optional tensor.
    Optional(Class),
    /// A list of tensors.
    List(Class),
    /// A tensor or a number.
    Operand(Class),
    /// A value known when a program is traced.
    Attribute(Box<Type>),
}

impl ParamKind {
    /// The class of a tensor parameter.
    pub fn class(&self) -> Option<Class> {
        match self {
            ParamKind::Tensor(class)
            | ParamKind::Optional(class)
            | ParamKind::List(class)
            | ParamKind::Operand(class) => Some(*class),
            ParamKind::Attribute(_) => None,
        }
    }

    /// Whether it may have a gradient.
    pub fn differentiable(&self) -> bool {
        self.class().is_some_and(Class::may_be_floating)
    }

    /// The module of `::fulgurite::expansion` that reads and writes it.
    pub fn word(&self) -> &'static str {
        match self {
            ParamKind::Tensor(_) => "tensor",
            ParamKind::Optional(_) => "optional",
            ParamKind::List(_) => "list",
            ParamKind::Operand(_) => "operand",
            ParamKind::Attribute(_) => "attribute",
        }
    }
}

/// A parameter of a signature.
#[derive(Debug, Clone)]
pub struct Param {
    /// Its name.
    pub ident: Ident,
    /// Tensor, list of tensors, or attribute.
    pub kind: ParamKind,
    /// Its default, if it has one.
    pub default: Option<TokenStream>,
    /// Whether a number for it has the accumulator's precision.
    pub accumulates: bool,
}

/// What a signature returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Results {
    /// One tensor, called `out`.
    One,
    /// A tuple of tensors with these names.
    Tuple(Vec<Ident>),
    /// A list, called `out` as a whole.
    List,
}

impl Results {
    /// The names of the tensors; those of a list have none.
    pub fn names(&self) -> Vec<String> {
        match self {
            Results::One => vec!["out".into()],
            Results::Tuple(names) => names.iter().map(Ident::to_string).collect(),
            Results::List => Vec::new(),
        }
    }

    /// What kernels call the results: as they are named, or `out` for a list.
    pub fn outputs(&self) -> Vec<String> {
        match self {
            Results::List => vec!["out".into()],
            _ => self.names(),
        }
    }
}

/// The signature of an operator.
#[derive(Debug, Clone)]
pub struct Signature {
    /// Parameters in order.
    pub params: Vec<Param>,
    /// The results by number and name.
    pub results: Results,
    /// Whether the results have the names that the author meant. Otherwise kernels are not checked against them.
    pub results_named: bool,
}

/// What kind of operator is declared.
#[derive(Debug, Clone)]
pub enum Kind {
    /// Does not decompose.
    Prim,
    /// Has a decomposition.
    Composite,
    /// Belongs to the executors whose modules these are, each on a kind of device of its own.
    Symbol(Vec<Path>),
}

impl Kind {
    /// The kind in words, for messages.
    pub fn describe(&self) -> &'static str {
        match self {
            Kind::Prim => "a prim",
            Kind::Composite => "a composite",
            Kind::Symbol(_) => "a kernel symbol",
        }
    }
}

/// Declared effects, by name.
#[derive(Debug, Clone, Default)]
pub struct Effects {
    /// Draws random numbers.
    pub random: bool,
    /// Takes part in a collective.
    pub collective: bool,
    /// Depends on the place of the rank along its axis.
    pub place: bool,
}

/// What a directive asks for.
#[derive(Debug, Clone)]
pub enum DirectiveKind {
    /// The test is not run.
    Skip,
    /// The test must fail.
    ExpectedFailure,
    /// The tolerance is multiplied by the first, and a part of each element's scale, the second, is added to it.
    Tolerance(Box<[Option<Expr>; 2]>),
}

/// A directive on generated tests.
#[derive(Debug, Clone)]
pub struct Directive {
    /// What is asked for.
    pub kind: DirectiveKind,
    /// The variants of `Template`.
    pub templates: Vec<Ident>,
    /// Only with this executor.
    pub executor: Option<LitStr>,
    /// Only with executors of this precision: the variant of `Precision`.
    pub precision: Option<Ident>,
    /// Only with this element type: the variant of `DType`.
    pub dtype: Option<Ident>,
    /// Only for this sample.
    pub sample: Option<Expr>,
    /// The reason that the author gives.
    pub reason: LitStr,
}

/// The settings of `#[operator(...)]`.
#[derive(Debug, Clone)]
pub struct Options {
    /// What kind of operator it is.
    pub kind: Kind,
    /// An explicit name.
    pub name: Option<LitStr>,
    /// The function it mirrors.
    pub torch: Option<LitStr>,
    /// The element types of its tensors, narrower than their classes: variants of `DType`.
    pub dtypes: Vec<Ident>,
    /// The role it plays.
    pub overload: Option<Ident>,
    /// What autocast makes of its operands: a variant of `Autocast`.
    pub autocast: Option<Ident>,
    /// The operands that autocast leaves as they are.
    pub autocast_keeps: Vec<Ident>,
    /// What it does with elements: a variant of `Elements`.
    pub elements: Option<Ident>,
    /// Whether it rounds nothing but its result.
    pub exact: bool,
    /// Whether the first two operands may be exchanged.
    pub commutes: bool,
    /// The operands whose numbers have the accumulator's precision.
    pub accumulates: Vec<Ident>,
    /// Declared effects.
    pub effects: Effects,
    /// Whether its host kernel takes operands of any strides.
    pub strided: bool,
    /// How many of the last dimensions of results its kernel wants packed, if it writes others at any distance.
    pub strided_results: Option<LitInt>,
    /// Whether it may be computed again rather than kept.
    pub cheap: bool,
    /// Whether it takes complex numbers too.
    pub complex: bool,
    /// Whether a result may be written over an operand: over these, or over any if none is named.
    pub in_place: Option<Vec<Ident>>,
    /// Why it has no gradient.
    pub no_grad: Option<LitStr>,
    /// Cotangents that are not used, and arguments that decide about nothing in samples, with reasons.
    pub waived: Vec<(Ident, LitStr)>,
    /// Directives.
    pub directives: Vec<Directive>,
    /// Whether every setting was understood.
    pub reliable: bool,
}

/// What a parameter of a rule is called, and what it stands for.
#[derive(Debug, Clone)]
pub struct RuleParam {
    /// As the author wrote it.
    pub written: Ident,
    /// Without the underscore of a parameter that is not used.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// What is read of it, if it is the struct of all arguments.
    pub args: Option<Fields>,
    /// What the record of an implementation gives for it: the precision of the executor, or the value of a parameter
    /// that is tuned.
    pub given: Option<TokenStream>,
}

impl RuleParam {
    /// Whether it stands for all arguments at once: `arguments: Arguments`.
    pub fn is_all_arguments(&self) -> bool {
        self.name == "arguments" && is_word(&self.ty, "Arguments")
    }
}

/// The parameters of a rule, by name. Patterns other than names are errors.
pub fn rule_params(function: &Function, errors: &mut Errors) -> Vec<RuleParam> {
    let mut params = Vec::new();
    for input in &function.sig.inputs {
        let typed = match input {
            FnArg::Typed(typed) => typed,
            FnArg::Receiver(receiver) => {
                errors.at(receiver, "a rule has no `self`: it takes its arguments by name");
                continue;
            }
        };
        let ty = (*typed.ty).clone();
        if let Some((written, fields)) = args::read(&typed.pat, &ty, function) {
            params.push(RuleParam { name: written.to_string(), written, ty, args: Some(fields), given: None });
            continue;
        }
        match &*typed.pat {
            syn::Pat::Ident(pattern) => {
                let written = pattern.ident.clone();
                let text = written.to_string();
                let name = text.strip_prefix('_').filter(|rest| !rest.is_empty()).unwrap_or(&text).to_owned();
                params.push(RuleParam { written, name, ty, args: None, given: None });
            }
            other => errors.at(
                other,
                "a rule takes its arguments by name: write the name of a parameter here, or `args: Args<...>` for all",
            ),
        }
    }
    params
}

/// `T` of `Word<T>`.
pub fn generic_argument<'a>(ty: &'a Type, word: &str) -> Option<&'a Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match (last.ident == word, arguments.args.len(), arguments.args.first()) {
        (true, 1, Some(GenericArgument::Type(inner))) => Some(inner),
        _ => None,
    }
}

/// Whether `ty` is a plain path that ends in `word`.
pub fn is_word(ty: &Type, word: &str) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == word && last.arguments.is_none()))
}

/// A path written outside of the module, as seen from inside it.
pub fn from_inside(path: &Path) -> Path {
    let mut path = path.clone();
    if path.leading_colon.is_none() {
        let first = path.segments[0].ident.to_string();
        if first == "super" {
            path.segments.insert(0, Ident::new("super", Span::call_site()).into());
        } else if first == "self" {
            path.segments[0] = Ident::new("super", Span::call_site()).into();
        }
    }
    path
}

/// `RmsNorm` for `rms_norm`.
pub fn camel_case(name: &str) -> String {
    name.split('_')
        .map(|word| {
            let mut letters = word.chars();
            letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
        })
        .collect()
}

/// The position of result `out` (the first) or `out0`, `out1`, ... of a list.
pub fn list_index(name: &str) -> Option<usize> {
    match name.strip_prefix("out")? {
        "" => Some(0),
        number => number.parse().ok(),
    }
}
