//! Text back into traces. Any input gives a trace or an [`Error::Parse`] with a line and a column.

use std::collections::{HashMap, HashSet};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use fulgurite_kernels::DType;

use super::print::{MAX_DEPTH, VERSION, is_numeric, is_reserved, word_length};
use super::{Block, BoundSymbol, Callee, Input, InputRole, Output, Results, Storage, Trace, ValueId};
use crate::argument::{Arg, Attribute, Scalar};
use crate::error::{Error, Result};
use crate::executor::{EXECUTORS, Refusal};
use crate::meta::{Device, Dims, Target, TensorMeta};
use crate::operator::{OperatorDef, ParamDef, ParamKind, ResultsDef, find_operator, nearest};

/// Names of executors and kinds of devices live as long as the process, so a text may bring only so many new ones.
const MAX_KINDS: usize = 64;
/// Longer names get no "did you mean", and are cut short in messages.
const MAX_HINT: usize = 64;

/// Reads the text of a trace. The result is canonical: values are numbered in the order of their definition.
pub fn parse(text: &str) -> Result<Trace> {
    let mut parser = Parser { text, at: 0, devices: HashMap::new(), executors: HashMap::new() };
    parser.trace()
}

/// The executor's own name, or a copy that lives forever: who refused a symbol need not be linked into this program.
fn intern_executor(name: &str) -> &'static str {
    static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    if let Some(executor) = EXECUTORS.iter().find(|executor| executor.name == name) {
        return executor.name;
    }
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    if let Some(known) = names.get(name) {
        return known;
    }
    let leaked: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(leaked);
    leaked
}

/// `text`, cut short if it is long, in single quotes.
fn quote(text: &str) -> String {
    if text.chars().nth(MAX_HINT).is_none() {
        format!("'{text}'")
    } else {
        format!("'{}...'", text.chars().take(MAX_HINT).collect::<String>())
    }
}

fn hint<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    if name.len() > MAX_HINT {
        return String::new();
    }
    let candidates = candidates.filter(|candidate| candidate.len() <= 2 * MAX_HINT);
    nearest(name, candidates).map(|near| format!(", did you mean '{near}'?")).unwrap_or_default()
}

/// Whether an attribute is of the type that a signature names; types that are not known here take anything.
fn fits(type_name: &str, attribute: &Attribute) -> bool {
    if let Some(inner) = type_name.strip_suffix('?') {
        return *attribute == Attribute::None || fits(inner, attribute);
    }
    if let Some(inner) = type_name.strip_suffix("[]") {
        return matches!(attribute, Attribute::List(items) if items.iter().all(|item| fits(inner, item)));
    }
    match (type_name, attribute) {
        ("bool", attribute) => matches!(attribute, Attribute::Scalar(Scalar::Bool(_))),
        ("int", attribute) => matches!(attribute, Attribute::Scalar(Scalar::Int(_))),
        ("size", attribute) => matches!(attribute, Attribute::Scalar(Scalar::Int(0..))),
        ("float", attribute) => matches!(attribute, Attribute::Scalar(Scalar::Float(_))),
        ("number", attribute) => matches!(attribute, Attribute::Scalar(_)),
        ("str", attribute) => matches!(attribute, Attribute::Text(_)),
        ("dtype", attribute) => matches!(attribute, Attribute::DType(_)),
        (variants, attribute) if variants.starts_with('"') => {
            matches!(attribute, Attribute::Text(text) if variants.split('|').any(|v| v == format!("{text:?}")))
        }
        _ => true,
    }
}

/// A block that is being read.
#[derive(Default)]
struct Scope {
    block: Block,
    names: HashMap<Arc<str>, ValueId>,
    /// Storage shared with a value that may be defined further below: (value, whose, where it says so).
    shared: Vec<(ValueId, String, usize)>,
}

/// Name, type and storage of a value, before it is defined.
struct Typed {
    name: String,
    at: usize,
    meta: TensorMeta,
    storage: Option<Storage>,
    shared: Option<(String, usize)>,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    devices: HashMap<String, Device>,
    executors: HashMap<String, &'static str>,
}

impl<'a> Parser<'a> {
    // === Characters and words ===

    fn fail<T>(&self, at: usize, message: impl Into<String>) -> Result<T> {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Err(Error::Parse {
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.into(),
        })
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    /// Moves over white space and comments.
    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with('#') {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    /// What stands here, for messages.
    fn found(&mut self) -> String {
        self.skip();
        let rest = self.rest();
        match word_length(rest) {
            0 => rest.chars().next().map_or_else(|| "the end of the text".into(), |c| quote(&c.to_string())),
            length => quote(&rest[..length]),
        }
    }

    fn expected<T>(&mut self, what: &str) -> Result<T> {
        let found = self.found();
        self.fail(self.at, format!("expected {what}, found {found}"))
    }

    fn peek(&mut self) -> Option<char> {
        self.skip();
        self.rest().chars().next()
    }

    fn eat(&mut self, symbol: char) -> bool {
        let here = self.peek() == Some(symbol);
        if here {
            self.at += symbol.len_utf8();
        }
        here
    }

    fn expect(&mut self, symbol: char, context: &str) -> Result<()> {
        if self.eat(symbol) { Ok(()) } else { self.expected(&format!("'{symbol}' {context}")) }
    }

    fn peek_word(&mut self) -> &'a str {
        self.skip();
        let rest = self.rest();
        &rest[..word_length(rest)]
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let here = self.peek_word() == word;
        if here {
            self.at += word.len();
        }
        here
    }

    fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.eat_word(word) { Ok(()) } else { self.expected(&format!("'{word}'")) }
    }

    /// A string with the escapes of Rust's.
    fn string(&mut self) -> Result<String> {
        let start = self.at;
        self.expect('"', "")?;
        let mut text = String::new();
        loop {
            let here = self.at;
            let mut chars = self.rest().chars();
            let (Some(c), next) = (chars.next(), chars.next()) else {
                return self.fail(start, "this string does not end");
            };
            self.at += c.len_utf8();
            match (c, next) {
                ('"', _) => return Ok(text),
                ('\n' | '\r', _) => return self.fail(start, "this string does not end on its line"),
                ('\\', Some(escape)) => {
                    self.at += escape.len_utf8();
                    text.push(match escape {
                        'n' => '\n',
                        'r' => '\r',
                        't' => '\t',
                        '0' => '\0',
                        '"' | '\'' | '\\' => escape,
                        'u' => {
                            let code = self.rest().strip_prefix('{').and_then(|rest| {
                                let digits = &rest[..rest.bytes().take(7).position(|byte| byte == b'}')?];
                                self.at += digits.len() + 2;
                                // `from_str_radix` would take a sign.
                                let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                                u32::from_str_radix(digits, 16).ok().filter(|_| hex).and_then(char::from_u32)
                            });
                            match code {
                                Some(c) => c,
                                None => return self.fail(here, "expected a character's code, as in '\\u{e9}'"),
                            }
                        }
                        other => {
                            let known = r#"\n \r \t \0 \" \' \\ \u{...}"#;
                            return self
                                .fail(here, format!("no escape is called '\\{other}', expected one of {known}"));
                        }
                    });
                }
                _ => text.push(c),
            }
        }
    }

    /// A name where nothing but a name can stand.
    fn label(&mut self, what: &str) -> Result<String> {
        if self.peek() == Some('"') {
            return self.string();
        }
        let word = self.peek_word();
        if word.is_empty() {
            return self.expected(what);
        }
        self.at += word.len();
        Ok(word.to_owned())
    }

    /// A name where a number or a keyword could stand as well, and where it stands.
    fn name(&mut self, what: &str) -> Result<(String, usize)> {
        self.skip();
        let at = self.at;
        if self.peek() != Some('"') {
            let word = self.peek_word();
            if is_numeric(word) || is_reserved(word) {
                return self.fail(at, format!("expected {what}, found {}; a name like this is quoted", quote(word)));
            }
        }
        Ok((self.label(what)?, at))
    }

    /// A word that may have a sign in front.
    fn number_word(&mut self) -> &'a str {
        self.skip();
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        &rest[..sign + word_length(&rest[sign..])]
    }

    fn integer<N: FromStr>(&mut self, what: &str) -> Result<N> {
        let word = self.number_word();
        match word.parse() {
            Ok(number) => {
                self.at += word.len();
                Ok(number)
            }
            Err(_) if !word.is_empty() && word.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit()) => {
                self.fail(self.at, format!("{} is out of range for {what}", quote(word)))
            }
            Err(_) => self.expected(what),
        }
    }

    /// Items separated by commas up to `end`, one comma more allowed.
    fn list<T>(&mut self, end: char, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = Vec::new();
        while !self.eat(end) {
            items.push(item(self)?);
            if !self.eat(',') {
                self.expect(end, "or ','")?;
                break;
            }
        }
        Ok(items)
    }

    // === Attributes and types ===

    /// A number or boolean, if one stands here.
    fn scalar(&mut self) -> Result<Option<Scalar>> {
        let word = self.number_word();
        let start = self.at;
        let scalar = match word {
            "true" => Scalar::Bool(true),
            "false" => Scalar::Bool(false),
            "inf" => Scalar::Float(f64::INFINITY),
            "-inf" => Scalar::Float(f64::NEG_INFINITY),
            "nan" => {
                self.at += word.len();
                if !self.eat('(') {
                    return Ok(Some(Scalar::Float(f64::NAN)));
                }
                let word = self.peek_word();
                let digits = word.strip_prefix("0x").filter(|d| !d.starts_with(['+', '-']));
                let value = digits.and_then(|d| u64::from_str_radix(d, 16).ok()).map(f64::from_bits);
                let Some(value) = value.filter(|value| value.is_nan()) else {
                    return self.fail(self.at, "expected the bits of a NaN, as in 'nan(0xfff8000000000000)'");
                };
                self.at += word.len();
                self.expect(')', "after the bits")?;
                return Ok(Some(Scalar::Float(value)));
            }
            _ => {
                let digits = word.strip_prefix('-').unwrap_or(word);
                if !is_numeric(digits) {
                    return if digits.len() < word.len() { self.expected("a number") } else { Ok(None) };
                }
                if digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    match word.parse() {
                        Ok(value) => Scalar::Int(value),
                        Err(_) => return self.fail(start, format!("{} is out of range for an integer", quote(word))),
                    }
                } else {
                    match word.parse::<f64>() {
                        Ok(value) if value.is_finite() => Scalar::Float(value),
                        _ => return self.fail(start, format!("{} is out of range for a number", quote(word))),
                    }
                }
            }
        };
        self.at += word.len();
        Ok(Some(scalar))
    }

    fn attribute(&mut self, depth: usize) -> Result<Attribute> {
        if depth > MAX_DEPTH {
            return self.fail(self.at, format!("lists nest deeper than {MAX_DEPTH}"));
        }
        match self.peek() {
            Some('"') => return self.string().map(|text| Attribute::Text(text.into())),
            Some('[') => {
                self.at += 1;
                return self.list(']', |p| p.attribute(depth + 1)).map(|items| Attribute::List(items.into()));
            }
            _ => {}
        }
        if self.eat_word("none") {
            return Ok(Attribute::None);
        }
        if let Some(scalar) = self.scalar()? {
            return Ok(Attribute::Scalar(scalar));
        }
        if let Some(dtype) = DType::ALL.into_iter().find(|dtype| dtype.name() == self.peek_word()) {
            self.at += dtype.name().len();
            return Ok(Attribute::DType(dtype));
        }
        self.expected("a number, true, false, none, a dtype, a string in double quotes or a list in brackets")
    }

    fn device(&mut self) -> Result<Device> {
        let kind = self.peek_word();
        if kind.is_empty() || !kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return self.expected("a device like 'cuda:0'");
        }
        let known = self.devices.get(kind).copied();
        if known.is_none() && (kind.len() > MAX_HINT || self.devices.len() >= MAX_KINDS) {
            return self.fail(self.at, format!("{} is one kind of device too many, or too long", quote(kind)));
        }
        self.at += kind.len();
        let known = known.unwrap_or_else(|| Device::new(kind, 0));
        self.devices.insert(kind.to_owned(), known);
        let index = if self.eat(':') { self.integer("the index of a device")? } else { 0 };
        Ok(if known.index() == index { known } else { Device::new(known.kind(), index) })
    }

    /// `f32[4, 5]`, `f32[4]@cuda:0`.
    fn meta(&mut self) -> Result<TensorMeta> {
        let word = self.peek_word();
        let Some(dtype) = DType::ALL.into_iter().find(|dtype| dtype.name() == word) else {
            let hint = hint(word, DType::ALL.into_iter().map(DType::name));
            let found = self.found();
            return self.fail(self.at, format!("expected a type like 'f32[4, 5]', found {found}{hint}"));
        };
        self.at += word.len();
        self.expect('[', "and extents after the dtype")?;
        let shape: Dims = self.list(']', |p| p.integer::<usize>("an extent"))?.into();
        let device = if self.eat('@') { self.device()? } else { Device::CPU };
        Ok(TensorMeta::new(shape, dtype, device))
    }

    /// `name: f32[4] at arena+64`.
    fn typed(&mut self) -> Result<Typed> {
        let (name, at) = self.name("a name")?;
        self.expect(':', "and a type after the name")?;
        let meta = self.meta()?;
        let (mut storage, mut shared) = (None, None);
        if self.eat_word("at") {
            if self.eat_word("output") {
                storage = Some(Storage::Output);
            } else if self.eat_word("arena") {
                self.expect('+', "and an offset after 'arena'")?;
                storage = Some(Storage::Arena(self.integer("an offset in bytes")?));
            } else {
                return self.expected("'arena+' and an offset, or 'output'");
            }
        } else if self.eat_word("in") {
            shared = Some(self.name("a value")?);
        }
        Ok(Typed { name, at, meta, storage, shared })
    }

    fn define(&mut self, scope: &mut Scope, typed: Typed) -> Result<ValueId> {
        let name: Arc<str> = typed.name.into();
        if scope.block.values.len() >= u32::MAX as usize - 1 {
            return self.fail(typed.at, "too many values");
        }
        let id = scope.block.define(name.clone(), typed.meta);
        scope.block.values[id.index()].storage = typed.storage;
        if let Some((other, at)) = typed.shared {
            scope.shared.push((id, other, at));
        }
        if scope.names.insert(name.clone(), id).is_some() {
            return self.fail(typed.at, format!("{} is defined twice", quote(&name)));
        }
        Ok(id)
    }

    fn look_up(&self, scope: &Scope, name: &str, at: usize) -> Result<ValueId> {
        match scope.names.get(name) {
            Some(id) => Ok(*id),
            None => {
                // The nearest of the latest: texts may have any number of values.
                let hint = hint(name, scope.block.values.iter().rev().take(1000).map(|value| &*value.name));
                self.fail(at, format!("no value is called {} at this line{hint}", quote(name)))
            }
        }
    }

    fn value(&mut self, scope: &Scope) -> Result<ValueId> {
        let (name, at) = self.name("a value")?;
        self.look_up(scope, &name, at)
    }

    fn executor(&mut self) -> Result<&'static str> {
        self.skip();
        let at = self.at;
        let name = self.label("the name of an executor")?;
        if let Some(known) = self.executors.get(&name) {
            return Ok(known);
        }
        if name.len() > MAX_HINT || self.executors.len() >= MAX_KINDS {
            return self.fail(at, format!("{} is one executor too many, or too long a name", quote(&name)));
        }
        let interned = intern_executor(&name);
        self.executors.insert(name, interned);
        Ok(interned)
    }

    // === Calls ===

    /// `name=`, if that stands here.
    fn try_label(&mut self) -> Option<(&'a str, usize)> {
        let word = self.peek_word();
        let start = self.at;
        self.at += word.len();
        if !word.is_empty() && self.eat('=') {
            return Some((word, start));
        }
        self.at = start;
        None
    }

    fn argument(&mut self, scope: &Scope, param: &ParamDef) -> Result<Arg<ValueId>> {
        self.skip();
        let start = self.at;
        Ok(match param.kind {
            ParamKind::Tensor(_) => Arg::Tensor(self.value(scope)?),
            ParamKind::Optional(_) if self.eat_word("none") => Arg::Optional(None),
            ParamKind::Optional(_) => Arg::Optional(Some(self.value(scope)?)),
            ParamKind::List(_) => {
                self.expect('[', &format!("and tensors: '{}' is a list", param.name))?;
                Arg::List(self.list(']', |p| p.value(scope))?)
            }
            ParamKind::Operand(_) => match self.scalar()? {
                Some(scalar) => Arg::Attribute(Attribute::Scalar(scalar)),
                None => Arg::Tensor(self.value(scope)?),
            },
            ParamKind::Attribute => {
                let attribute = self.attribute(0)?;
                let type_name = (param.type_name)();
                if !fits(&type_name, &attribute) {
                    let given = quote(&attribute.to_string());
                    let hint = match attribute {
                        Attribute::Scalar(Scalar::Int(value)) if fits(&type_name, &Attribute::Scalar(0.0.into())) => {
                            format!(", write {value}.0")
                        }
                        _ => String::new(),
                    };
                    return self.fail(start, format!("'{}' is {type_name}, found {given}{hint}", param.name));
                }
                Arg::Attribute(attribute)
            }
        })
    }

    fn call(&mut self, scope: &Scope, def: &'static OperatorDef, start: usize) -> Result<Vec<Arg<ValueId>>> {
        let mut slots: Vec<Option<Arg<ValueId>>> = vec![None; def.params.len()];
        let mut position = Some(0);
        self.expect('(', "and arguments after the operator")?;
        self.list(')', |p| {
            p.skip();
            let at = p.at;
            let index = match (p.try_label(), position) {
                (Some((name, at)), _) => {
                    position = None;
                    match def.param(name) {
                        Some(index) => index,
                        None => {
                            let hint = hint(name, def.params.iter().map(|param| param.name));
                            let message = format!(
                                "{} has no argument {}{hint}; it is {}",
                                def.name,
                                quote(name),
                                def.signature()
                            );
                            return p.fail(at, message);
                        }
                    }
                }
                (None, None) => {
                    return p.fail(at, "expected 'name=': arguments after a named one are named too");
                }
                (None, Some(index)) => match def.params.get(index) {
                    Some(param) if matches!(param.kind, ParamKind::Attribute | ParamKind::Optional(_)) => {
                        return p.fail(at, format!("argument '{0}' is named, write '{0}=...'", param.name));
                    }
                    Some(_) => {
                        position = Some(index + 1);
                        index
                    }
                    None => {
                        let message = format!("{} takes {} arguments: {}", def.name, index, def.signature());
                        return p.fail(at, message);
                    }
                },
            };
            let param = &def.params[index];
            if slots[index].is_some() {
                return p.fail(at, format!("argument '{}' is given twice", param.name));
            }
            slots[index] = Some(p.argument(scope, param)?);
            Ok(())
        })?;
        if let Some(missing) = slots.iter().position(Option::is_none) {
            let param = &def.params[missing];
            let message = format!(
                "{} lacks argument '{}' ({}); in a trace every argument is given",
                def.name,
                param.name,
                (param.type_name)()
            );
            return self.fail(start, message);
        }
        Ok(slots.into_iter().flatten().collect())
    }

    /// A tensor or a list of tensors, of a call that no definition directs.
    fn tensors(&mut self, scope: &Scope) -> Result<Arg<ValueId>> {
        if self.eat('[') {
            return Ok(Arg::List(self.list(']', |p| p.value(scope))?));
        }
        Ok(Arg::Tensor(self.value(scope)?))
    }

    /// What is called, with what.
    fn callee(&mut self, scope: &Scope, results: usize) -> Result<(Callee, Vec<Arg<ValueId>>)> {
        let quoted = self.peek() == Some('"');
        let (name, start) = self.name("an operator")?;
        if !quoted && name == "value_and_grad" {
            let mut wrt = None;
            let mut arguments = Vec::new();
            self.expect('(', "and arguments after 'value_and_grad'")?;
            self.list(')', |p| {
                match p.try_label() {
                    Some(("wrt", _)) if wrt.is_none() => {
                        p.expect('[', "and indices after 'wrt='")?;
                        wrt = Some(p.list(']', |p| p.integer("an index"))?);
                    }
                    Some((name, at)) => {
                        return p.fail(at, format!("expected tensors and one 'wrt=', found {}", quote(name)));
                    }
                    None => arguments.push(p.tensors(scope)?),
                }
                Ok(())
            })?;
            return match wrt {
                Some(wrt) => Ok((Callee::ValueAndGrad { wrt }, arguments)),
                None => self.fail(start, "value_and_grad lacks argument 'wrt' (size[])"),
            };
        }
        if !quoted && name == "region" {
            let mut executor = None;
            let mut arguments = Vec::new();
            self.expect('(', "and arguments after 'region'")?;
            self.list(')', |p| {
                match p.try_label() {
                    Some(("executor", _)) if executor.is_none() => executor = Some(p.executor()?),
                    Some((name, at)) => {
                        return p.fail(at, format!("expected tensors and one 'executor=', found {}", quote(name)));
                    }
                    None => arguments.push(p.tensors(scope)?),
                }
                Ok(())
            })?;
            return match executor {
                Some(executor) => Ok((Callee::Region { executor }, arguments)),
                None => self.fail(start, "region lacks argument 'executor'"),
            };
        }
        let found = if name.len() > MAX_HINT { None } else { Some(find_operator(&name)) };
        let def = match found {
            Some(Ok(def)) => def,
            Some(Err(error)) => return self.fail(start, error.to_string()),
            None => return self.fail(start, format!("no operator is called {}", quote(&name))),
        };
        if let ResultsDef::Fixed(expected) = def.results
            && expected != results
        {
            let tensors = if expected == 1 { "tensor" } else { "tensors" };
            let message = format!("{} returns {expected} {tensors}, this line names {results}", def.name);
            return self.fail(start, message);
        }
        let arguments = self.call(scope, def, start)?;
        Ok((Callee::Operator(def), arguments))
    }

    /// One line after its results: the call, the claim, the refusals, the body.
    fn symbol(&mut self, scope: &mut Scope, results: Vec<Typed>, depth: usize) -> Result<()> {
        let (callee, arguments) = self.callee(scope, results.len())?;
        let executor = if self.eat_word("by") { Some(self.executor()?) } else { None };
        let open = self.eat('{');
        let mut refusals = Vec::new();
        while self.eat_word("refused") {
            self.expect_word("by")?;
            let executor = self.executor()?;
            self.expect(':', "and the reason after the executor")?;
            if self.peek() != Some('"') {
                return self.expected("the reason in double quotes");
            }
            refusals.push(Refusal { executor, reason: self.string()? });
        }
        let body = if open { Some(Arc::new(self.body(depth + 1)?)) } else { None };
        let mut ids = Results::with_capacity(results.len());
        for typed in results {
            ids.push(self.define(scope, typed)?);
        }
        let place = None;
        scope.block.symbols.push(BoundSymbol { callee, arguments, results: ids, body, executor, refusals, place });
        Ok(())
    }

    /// Lines up to the keyword `end`.
    fn symbols(&mut self, scope: &mut Scope, end: &str, depth: usize) -> Result<()> {
        loop {
            let quoted = self.peek() == Some('"');
            if !quoted && self.eat_word(end) {
                return Ok(());
            }
            if !quoted && self.eat_word("del") {
                let mut arguments = vec![self.tensors(scope)?];
                while self.eat(',') {
                    arguments.push(self.tensors(scope)?);
                }
                scope.block.symbols.push(BoundSymbol {
                    callee: Callee::Delete,
                    arguments,
                    results: Results::new(),
                    body: None,
                    executor: None,
                    refusals: Vec::new(),
                    place: None,
                });
                continue;
            }
            if !quoted && matches!(self.peek(), None | Some('}')) {
                return self.expected(&format!("a line or '{end}'"));
            }
            // `name: type, ... = call` or just a call.
            let start = self.at;
            self.name(&format!("a line or '{end}'"))?;
            let bare = self.peek() == Some('(');
            self.at = start;
            let mut results = Vec::new();
            if !bare {
                loop {
                    results.push(self.typed()?);
                    if !self.eat(',') {
                        break;
                    }
                }
                self.expect('=', "and a call after the results")?;
            }
            self.symbol(scope, results, depth)?;
        }
    }

    /// Values after `return` or `yield`, each perhaps with a path; several lines stand between parentheses.
    fn results<T>(&mut self, item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut item = item;
        if self.eat('(') {
            return self.list(')', item);
        }
        let mut items = Vec::new();
        if self.peek() != Some('}') {
            items.push(item(self)?);
            while self.eat(',') {
                items.push(item(self)?);
            }
        }
        Ok(items)
    }

    fn finish(&self, mut scope: Scope) -> Result<Block> {
        for (id, other, at) in std::mem::take(&mut scope.shared) {
            let other = self.look_up(&scope, &other, at)?;
            scope.block.values[id.index()].storage = Some(Storage::Shared(other));
        }
        Ok(scope.block)
    }

    /// A nested block after its `{` and refusals.
    fn body(&mut self, depth: usize) -> Result<Block> {
        if depth > MAX_DEPTH {
            return self.fail(self.at, format!("bodies nest deeper than {MAX_DEPTH}"));
        }
        let mut scope = Scope::default();
        self.expect('(', "and the body's parameters")?;
        let parameters = self.list(')', Self::typed)?;
        for typed in parameters {
            let id = self.define(&mut scope, typed)?;
            scope.block.parameters.push(id);
        }
        self.symbols(&mut scope, "yield", depth)?;
        scope.block.results = self.results(|p| p.value(&scope))?;
        self.expect('}', "after 'yield'")?;
        self.finish(scope)
    }

    fn trace(&mut self) -> Result<Trace> {
        let version = self.rest().trim_start();
        self.at = self.text.len() - version.len();
        let Some(version) = version.strip_prefix("# fulgurite trace ") else {
            return self.fail(self.at, format!("expected the first line '# fulgurite trace {VERSION}'"));
        };
        self.at = self.text.len() - version.len();
        let version = version.lines().next().unwrap_or("").trim_end();
        if version != VERSION.to_string() {
            let message = format!("this is version {} of the text, only {VERSION} is known", quote(version));
            return self.fail(self.at, message);
        }
        self.at += version.len();
        let history = self.history()?;
        if !self.eat_word("trace") {
            return self.expected("'trace' and a name");
        }
        let name = self.label("the name of the trace")?;
        self.expect_word("for")?;
        let target = self.target()?;
        let mut scope = Scope::default();
        self.expect('(', "and the inputs")?;
        let inputs = self.list(')', |p| {
            let typed = p.typed()?;
            let role = if p.eat_word("parameter") {
                InputRole::Parameter
            } else if p.eat_word("saved") {
                InputRole::Saved
            } else if p.eat_word("cotangent") {
                InputRole::Cotangent
            } else {
                InputRole::Input
            };
            let donated = p.eat_word("donated");
            let strides = if p.eat_word("strides") {
                p.expect('[', "and numbers after 'strides'")?;
                Some(p.list(']', |p| p.integer::<isize>("a stride"))?)
            } else {
                None
            };
            let id = p.define(&mut scope, typed)?;
            scope.block.parameters.push(id);
            Ok(Input { role, donated, strides })
        })?;
        let arena = if self.eat_word("arena") { Some(self.integer("a size in bytes")?) } else { None };
        self.expect('{', "and the lines of the trace")?;
        self.symbols(&mut scope, "return", 0)?;
        let (outputs, results) = self.results(|p| p.output(&scope))?.into_iter().unzip();
        scope.block.results = results;
        self.expect('}', "after 'return'")?;
        if self.peek().is_some() {
            return self.expected("the end of the text");
        }
        Ok(Trace { name, target, history, inputs, outputs, arena, block: self.finish(scope)? })
    }

    /// `# made by acquire, dce` on the line after the version.
    fn history(&mut self) -> Result<Vec<String>> {
        let rest = self.rest();
        let trimmed = rest.trim_start();
        let Some(list) = trimmed.strip_prefix("# made by ") else { return Ok(Vec::new()) };
        self.at = self.text.len() - list.len();
        let end = self.at + list.find('\n').unwrap_or(list.len());
        // The line is read as if it were the whole text.
        let whole = self.text;
        self.text = &whole[..end];
        let mut history = Vec::new();
        let read = loop {
            match self.label("the name of a transform") {
                Ok(name) => history.push(name),
                Err(error) => break Err(error),
            }
            if !self.eat(',') {
                break if self.peek().is_none() { Ok(()) } else { self.expected("',' or the end of the line") };
            }
        };
        self.text = whole;
        read.map(|()| history)
    }

    fn target(&mut self) -> Result<Target> {
        self.skip();
        let rest = self.rest();
        let length = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':')).count();
        match rest[..length].parse() {
            Ok(target) => {
                self.at += length;
                Ok(target)
            }
            Err(_) => self.expected("a target like 'cpu' or 'cuda:sm_90a'"),
        }
    }

    /// `loss = value` or just a value.
    fn output(&mut self, scope: &Scope) -> Result<(Output, ValueId)> {
        self.skip();
        let start = self.at;
        let path = self.label("a value")?;
        if self.eat('=') {
            return Ok((Output { path }, self.value(scope)?));
        }
        self.at = start;
        Ok((Output { path: String::new() }, self.value(scope)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::test_support::{GOOD, Generator, Random};

    /// Where and how a text fails.
    fn failure(text: &str) -> (usize, usize, String) {
        match parse(text) {
            Err(Error::Parse { line, column, message }) => (line, column, message),
            other => panic!("{other:?} from\n{text}"),
        }
    }

    fn line_failure(line: &str) -> (usize, String) {
        let text = format!("# fulgurite trace 1\ntrace f for cpu (x: f32[4], yy: f32[4]) {{\n{line}\nreturn\n}}\n");
        let (at, column, message) = failure(&text);
        assert!(at >= 3, "{message}");
        (column, message)
    }

    #[test]
    fn random_traces_read_back_as_they_were() {
        for seed in 0..3000 {
            let trace = Generator { random: Random(seed) }.trace();
            let text = trace.to_string();
            let back = parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
            assert_eq!(back, trace, "seed {seed}\n{text}");
            assert_eq!(back.block.canonical(), trace.block, "seed {seed}");
            assert_eq!(back.to_string(), text, "seed {seed}");
        }
    }

    #[test]
    fn traces_that_are_not_canonical_read_back_canonical() {
        let mut trace = parse(GOOD).unwrap();
        // Another numbering: every value one further, and one that is not defined.
        let shift = |id: &mut ValueId| id.0 += 1;
        let block = &mut trace.block;
        block.values.insert(0, block.values[0].clone());
        block.parameters.iter_mut().chain(&mut block.results).for_each(shift);
        for symbol in &mut block.symbols {
            symbol.results.iter_mut().for_each(shift);
            symbol.arguments = crate::argument::map_arguments(&symbol.arguments, |id| ValueId(id.0 + 1));
        }
        for value in &mut block.values {
            if let Some(Storage::Shared(id)) = &mut value.storage {
                shift(id);
            }
        }
        let back = parse(&trace.to_string()).unwrap();
        assert_ne!(back, trace);
        assert_eq!(back, Trace { block: trace.block.canonical(), ..trace });
    }

    #[test]
    fn white_space_and_comments_are_free() {
        let text = GOOD.replace("  tt::barrier(every)", "# why\n\ttt::barrier (\n every , ) # because");
        assert_eq!(parse(&text.replace('\n', "\r\n")).unwrap(), parse(GOOD).unwrap());
    }

    #[test]
    fn messages_say_what_to_write() {
        for (line, column, part) in [
            ("y: f32[4] = tt::exq(x)", 13, "no operator is called 'tt::exq', did you mean 'tt::exp'?"),
            ("y: f32[4] = tt::exp(yyy)", 21, "no value is called 'yyy' at this line, did you mean 'yy'?"),
            ("y: f32[4], z: f32[4] = tt::exp(x)", 24, "tt::exp returns 1 tensor, this line names 2"),
            ("y: f32[4] = tt::topk(x)", 13, "tt::topk returns 2 tensors, this line names 1"),
            ("y: f32[4], z: i64[4] = tt::topk(x)", 24, "tt::topk lacks argument 'k' (size)"),
            ("y: f32[4], z: i64[4] = tt::topk(x, 4)", 36, "argument 'k' is named, write 'k=...'"),
            ("y: f32[4], z: i64[4] = tt::topk(x, k=-4)", 38, "'k' is size, found '-4'"),
            ("y: f32[4], z: i64[4] = tt::topk(x, kk=4)", 36, "tt::topk has no argument 'kk', did you mean 'k'?"),
            ("y: f32[4], z: i64[4] = tt::topk(x, k=4, k=4)", 41, "argument 'k' is given twice"),
            ("y: f32[4] = tt::norm(x, weight=none, eps=1)", 42, "'eps' is float, found '1', write 1.0"),
            ("y: f32[4] = tt::exp(x, x)", 24, "tt::exp takes 1 arguments: tt::exp(input: tensor) -> tensor"),
            ("y: f32[4] = tt::exp(3)", 21, "expected a value, found '3'; a name like this is quoted"),
            ("y: f32[4] = tt::cat(x, dim=0)", 21, "expected '[' and tensors: 'tensors' is a list"),
            ("x: f32[4] = tt::exp(x)", 1, "'x' is defined twice"),
            ("y: f33[4] = tt::exp(x)", 4, "expected a type like 'f32[4, 5]', found 'f33', did you mean 'f32'?"),
            ("y: f32[-4] = tt::exp(x)", 8, "'-4' is out of range for an extent"),
            ("y: f32[4] in z = tt::exp(x)", 14, "no value is called 'z'"),
            ("y: f32[4] at 7 = tt::exp(x)", 14, "expected 'arena+' and an offset, or 'output', found '7'"),
            ("y: f32[4] = value_and_grad(x)", 13, "value_and_grad lacks argument 'wrt' (size[])"),
            ("y: f32[4] = region(x)", 13, "region lacks argument 'executor'"),
            ("y: f32[4] = tt::add(x, 99999999999999999999)", 24, "is out of range for an integer"),
            ("y: f32[4] = tt::add(x, 1e999)", 24, "is out of range for a number"),
            ("y: f32[4] = tt::add(x, nan(0x3ff0000000000000))", 28, "expected the bits of a NaN"),
            ("y: f32[4] = tt::exp(\"x", 21, "this string does not end on its line"),
            ("y: f32[4] = tt::exp(\"\\q\")", 22, "no escape is called '\\q'"),
            ("y: f32[4] = tt::exp(\"\\u{d800}\")", 22, "expected a character's code"),
            ("y: f32[4] = tt::exp(x) {\nyield\n}", 1, "expected '(' and the body's parameters, found 'yield'"),
            ("}", 1, "expected a line or 'return', found '}'"),
        ] {
            let (at, message) = line_failure(line);
            assert!(message.contains(part) && at == column, "{line}\n  {at}: {message}");
        }
        assert!(failure("").2.contains("expected the first line '# fulgurite trace 1'"));
        assert!(failure("# fulgurite trace 2\n").2.contains("this is version '2' of the text, only 1 is known"));
        assert!(failure("# fulgurite trace 1\ntrace f for cpu: () {").2.contains("expected a target"));
        assert!(failure(&GOOD.replace("made by acquire,", "made by ,")).2.contains("the name of a transform"));
        assert!(failure(&format!("{GOOD}more")).2.contains("expected the end of the text, found 'more'"));
        assert_eq!(failure(&GOOD.replace("x: f32[8] strides", "x: f32[é8] strides")).0, 5);
    }

    #[test]
    fn hostile_texts_fail_quickly() {
        let head = "# fulgurite trace 1\ntrace f for cpu (x: f32[4]) {\n";
        let deep = "y: f32[4] = tt::exp(x) { (x: f32[4])\n".repeat(100_000);
        assert!(failure(&format!("{head}{deep}")).2.contains("bodies nest deeper than 64"));
        let lists = format!("{head}y: f32[4] = tt::cat([x], dim={}", "[".repeat(1_000_000));
        assert!(failure(&lists).2.contains("lists nest deeper than 64"));
        let long = "y".repeat(10_000_000);
        for text in [
            format!("{head}z: f32[4] = {long}(x)"),
            format!("{head}z: f32[4] = tt::exp({long})"),
            format!("{head}z: f32[4]@{long}"),
            format!("{head}z: f32[4] = tt::exp(x) by {long}"),
            format!("{head}z: f32[4], w: i64[4] = tt::topk(x, {long}=1)"),
            format!("{head}z: f32[4] = tt::add(x, {}.5)", "1".repeat(1_000_000)),
        ] {
            assert!(failure(&text).2.len() < 500);
        }
        let kinds: String = (0..100).map(|i| format!("z{i}: f32[]@tt_kind{i} = tt::exp(x)\n")).collect();
        assert!(failure(&format!("{head}{kinds}")).2.contains("one kind of device too many"));
        let executors: String = (0..100).map(|i| format!("z{i}: f32[] = tt::exp(x) by tt_{i}\n")).collect();
        assert!(failure(&format!("{head}{executors}")).2.contains("one executor too many"));
    }

    #[test]
    fn bodies_nest_up_to_the_bound() {
        let head = "# fulgurite trace 1\ntrace f for cpu (x: f32[4]) {\n";
        let text = format!(
            "{head}{}{}return\n}}\n",
            "y: f32[4] = tt::exp(x) {\n(x: f32[4])\n".repeat(MAX_DEPTH),
            "yield x\n}\n".repeat(MAX_DEPTH)
        );
        let trace = parse(&text).unwrap();
        assert_eq!(parse(&trace.to_string()).unwrap(), trace);
        trace.verify().unwrap();
    }

    // === Mutations ===

    fn mutate(random: &mut Random, texts: &[String]) -> String {
        const TOKENS: [&str; 38] = [
            "(",
            ")",
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "=",
            "@",
            "+",
            "#",
            "\"",
            "\\",
            "\n",
            "\\u{",
            "nan(",
            "0x",
            "-",
            "1e9999",
            "9223372036854775808",
            "none",
            "true",
            "inf",
            "del ",
            "return ",
            "yield ",
            "by ",
            "in ",
            "at ",
            "arena",
            "value_and_grad(",
            "region(",
            "refused by ",
            "tt::exp(",
            "é",
            "\u{1f600}",
            "\0",
        ];
        let text = if random.one_in(3) { GOOD } else { &texts[random.below(texts.len())] };
        let mut text = text.as_bytes().to_vec();
        for _ in 0..1 + random.below(6).saturating_sub(2) {
            let at = random.below(text.len() + 1);
            match random.below(8) {
                0 if at < text.len() => text[at] = random.next() as u8,
                1 if at < text.len() => text[at] ^= 1 << random.below(8),
                2 => {
                    let end = (at + random.below(20)).min(text.len());
                    text.drain(at..end);
                }
                3 => text.truncate(at),
                4 | 5 => {
                    let token = random.pick(&TOKENS);
                    text.splice(at..at, token.bytes());
                }
                _ => {
                    // Lines change places, disappear, or come twice, also from another text.
                    let whole = String::from_utf8_lossy(&text).into_owned();
                    let mut lines: Vec<&str> = whole.lines().collect();
                    let other = &texts[random.below(texts.len())];
                    let others: Vec<&str> = other.lines().collect();
                    if lines.is_empty() {
                        continue;
                    }
                    let (a, b) = (random.below(lines.len()), random.below(lines.len()));
                    match random.below(4) {
                        0 => lines.swap(a, b),
                        1 => drop(lines.remove(a)),
                        2 => lines.insert(a, lines[b]),
                        _ => lines.insert(a, others[random.below(others.len())]),
                    }
                    text = lines.join("\n").into_bytes();
                }
            }
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// `FULGURITE_FUZZ=1000000` for more cases.
    #[test]
    fn mutated_texts_never_panic() {
        let cases = std::env::var("FULGURITE_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000_u64);
        let mut texts = vec![GOOD.to_owned()];
        texts.extend((0..40).map(|seed| Generator { random: Random(seed) }.trace().to_string()));
        // Long texts take most of the time and find no more.
        texts.retain(|text| text.len() < 6000);
        let (mut read, mut right) = (0, 0);
        for seed in 0..cases {
            let text = mutate(&mut Random(seed ^ 0xf00d), &texts);
            match parse(&text) {
                Ok(trace) => {
                    read += 1;
                    right += u64::from(trace.verify().is_ok());
                    let printed = trace.to_string();
                    let again = parse(&printed).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{printed}"));
                    assert!(again == trace && again.block.canonical() == trace.block, "seed {seed}\n{text}\n{printed}");
                    let difference = crate::trace::diff(&trace, &again);
                    assert!(difference.is_empty(), "seed {seed}\n{difference}");
                }
                Err(Error::Parse { line, column, message }) => {
                    assert!(line >= 1 && line <= text.lines().count() + 1 && column >= 1 && !message.is_empty());
                }
                Err(other) => panic!("seed {seed}: {other}"),
            }
        }
        assert!(read > cases / 50 && right > 0, "{read} of {cases} read, {right} verified");
        println!("{cases} cases, {read} read, {right} verified");
    }
}
