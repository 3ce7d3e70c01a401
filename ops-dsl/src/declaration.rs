//! What a declaration is made of: the rules of each kind, and an operator as a whole.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::{Attribute, LitStr, Visibility};

use crate::args::{self, Fields};
use crate::errors::Errors;
use crate::model::{self, Options, ParamKind, RuleParam, Signature};
use crate::parse::{Entry, Function};
use crate::rules::{EXECUTOR_RULES, RuleKind};

/// A rule of a declaration.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Which rule it is.
    pub kind: RuleKind,
    /// As it was written.
    pub function: Function,
    /// Its parameters by name.
    pub params: Vec<RuleParam>,
    /// Whether its parameters are right, so that it can be called.
    pub right: bool,
}

/// The arguments that a rule takes, which may not be all.
#[derive(Debug)]
pub struct Taken<'a> {
    /// Their names.
    pub names: Vec<String>,
    /// Where the rule takes them.
    pub at: &'a Ident,
    /// What is written before and behind the name of an argument that the rule does not use.
    pub unused: [&'static str; 2],
}

impl Rule {
    /// The struct of all arguments, if the rule takes it.
    pub fn args(&self) -> Option<&RuleParam> {
        self.params.iter().find(|param| param.args.is_some())
    }

    /// The arguments that the rule takes, if it does not take all of them as a whole.
    pub fn taken(&self) -> Option<Taken<'_>> {
        if self.params.iter().any(RuleParam::is_all_arguments) {
            return None;
        }
        match self.args().map(|param| (&param.args, &param.written)) {
            Some((Some(Fields::Named(names)), at)) => {
                Some(Taken { names: names.clone(), at, unused: ["", ": _` in `Args { .. }"] })
            }
            Some(_) => None,
            None => {
                let names = self.params.iter().filter(|param| param.given.is_none());
                let names = names.map(|param| param.name.clone()).collect();
                Some(Taken { names, at: &self.function.sig.ident, unused: ["_", ": ..."] })
            }
        }
    }
}

/// The rules and other entries of a module.
#[derive(Debug, Default)]
pub struct Parts {
    /// Body-less functions.
    pub signatures: Vec<Function>,
    /// Rules by name.
    pub rules: Vec<Rule>,
    /// Functions that are no rules.
    pub helpers: Vec<Function>,
    /// Items that are no functions.
    pub items: Vec<TokenStream>,
    /// Everything that is passed through, helpers and items, in order.
    pub others: Vec<TokenStream>,
}

/// Sorts the entries of a module.
pub fn parts(entries: Vec<Entry>, known: &[RuleKind], errors: &mut Errors) -> Parts {
    let mut parts = Parts::default();
    for entry in entries {
        let function = match entry {
            Entry::Other(tokens) => {
                parts.items.push(tokens.clone());
                parts.others.push(tokens);
                continue;
            }
            Entry::Function(function) => *function,
        };
        let name = function.sig.ident.to_string();
        if function.body.is_none() {
            parts.signatures.push(function);
        } else if let Some(kind) = known.iter().copied().find(|kind| kind.name() == name) {
            if parts.rules.iter().any(|rule| rule.kind == kind) {
                errors.at(&function.sig.ident, format!("the rule `{kind}` is given twice"));
                continue;
            }
            let params = model::rule_params(&function, errors);
            // What an executor's rules take, the runtime says.
            let right = known == EXECUTOR_RULES
                || params
                    .iter()
                    .filter(|param| param.args.is_some())
                    .all(|param| args::is_right(kind, &param.ty, &param.written, errors));
            parts.rules.push(Rule { kind, function, params, right });
        } else {
            parts.others.push(function.to_token_stream());
            parts.helpers.push(function);
        }
    }
    parts
}

/// A declared operator.
#[derive(Debug)]
pub struct Operator {
    /// The module's attributes.
    pub attrs: Vec<Attribute>,
    /// The module's visibility.
    pub vis: Visibility,
    /// The module's name, which is the operator's.
    pub ident: Ident,
    /// The operator's name in traces.
    pub name: String,
    /// Documentation.
    pub docs: String,
    /// Settings.
    pub options: Options,
    /// The signature.
    pub signature: Signature,
    /// Rules.
    pub rules: Vec<Rule>,
    /// Helpers and other items.
    pub others: Vec<TokenStream>,
    /// The named preconditions.
    pub codes: Vec<Ident>,
}

impl Operator {
    /// Its rule of that kind.
    pub fn rule(&self, kind: RuleKind) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.kind == kind)
    }

    /// The arguments that are waived, with reasons.
    pub fn undecided(&self) -> impl Iterator<Item = &(Ident, LitStr)> {
        self.options.waived.iter().filter(|(name, _)| self.signature.params.iter().any(|param| param.ident == *name))
    }

    /// The cotangents that are waived, with reasons: every other name.
    pub fn waived_cotangents(&self) -> Vec<(Ident, LitStr)> {
        let param = |name: &Ident| self.signature.params.iter().any(|param| param.ident == *name);
        self.options.waived.iter().filter(|(name, _)| !param(name)).cloned().collect()
    }

    /// Whether its meta follows from its scalar rule.
    pub fn derives_meta(&self) -> bool {
        self.rule(RuleKind::Meta).is_none()
            && self.rule(RuleKind::Scalar).is_some()
            && self.rule(RuleKind::Decomposition).is_none()
    }

    /// Whether that meta can fail: with several tensors, whose shapes and dtypes may differ. The library has error
    /// samples for it.
    pub fn derives_errors(&self) -> bool {
        let tensors = |param: &&model::Param| {
            matches!(param.kind, ParamKind::Tensor(_) | ParamKind::Optional(_) | ParamKind::Operand(_))
        };
        let lists = self.signature.params.iter().any(|param| matches!(param.kind, ParamKind::List(_)));
        self.derives_meta() && (lists || self.signature.params.iter().filter(tensors).count() > 1)
    }
}
