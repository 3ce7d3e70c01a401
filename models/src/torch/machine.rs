//! The machine that runs a pickle: a stack, numbered values, and the few instructions that a file of tensors needs.
//!
//! Values are numbers of a list, never nested in each other, so that no depth of a file is one of the stack. Each
//! instruction adds one value at most, which names the values that it is made of and copies none of them; with the
//! bounds on the pickle's length and on the number of values, memory stays below about 200 MiB.

use std::collections::HashMap;

use fulgurite_kernels::DType;

use super::error::TorchError;
use super::instruction as op;

/// The longest pickle that is read, in bytes. A tensor has about 150 of them.
const LONGEST: usize = 4 << 20;
/// The most values. A tensor has about 15 of them.
const MOST_VALUES: usize = 1 << 20;
/// The most properties of a tensor, and attributes of a dictionary; each is looked at once for each that has them.
const MOST_PROPERTIES: usize = 8;
/// The most dimensions of a tensor.
const MOST_DIMENSIONS: usize = 64;

/// A value's number.
pub(super) type Id = usize;

/// What a pickle may name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Global {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
    Storage(DType),
}

/// The names, and what they are.
const GLOBALS: [(&str, Global); 15] = [
    ("collections OrderedDict", Global::OrderedDict),
    ("torch._utils _rebuild_tensor_v2", Global::RebuildTensor),
    ("torch._utils _rebuild_parameter", Global::RebuildParameter),
    ("torch FloatStorage", Global::Storage(DType::F32)),
    ("torch BFloat16Storage", Global::Storage(DType::BF16)),
    ("torch HalfStorage", Global::Storage(DType::F16)),
    ("torch DoubleStorage", Global::Storage(DType::F64)),
    ("torch ComplexFloatStorage", Global::Storage(DType::C64)),
    ("torch ComplexDoubleStorage", Global::Storage(DType::C128)),
    ("torch LongStorage", Global::Storage(DType::I64)),
    ("torch IntStorage", Global::Storage(DType::I32)),
    ("torch ShortStorage", Global::Storage(DType::I16)),
    ("torch CharStorage", Global::Storage(DType::I8)),
    ("torch ByteStorage", Global::Storage(DType::U8)),
    ("torch BoolStorage", Global::Storage(DType::Bool)),
];

/// A tensor as a pickle says it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Described<'a> {
    pub(super) dtype: DType,
    /// The storage's entry in the archive, below `data/`.
    pub(super) storage: &'a str,
    /// Elements of the storage.
    pub(super) elements: u64,
    /// The place of the first element.
    pub(super) offset: u64,
    pub(super) shape: Vec<u64>,
    pub(super) strides: Vec<u64>,
    /// Whether the tensor holds the numbers of the storage with the other sign (PyTorch's negative bit).
    pub(super) negative: bool,
}

/// A value.
#[derive(Debug)]
pub(super) enum Object {
    /// A fraction, or a number beyond 64 bits: nothing that tensors are made of.
    Other,
    None,
    Truth(bool),
    Whole(i64),
    Text(String),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(Global),
    Storage {
        dtype: DType,
        key: Id,
        elements: u64,
    },
    Tensor {
        storage: Id,
        offset: u64,
        shape: Id,
        strides: Id,
        negative: bool,
    },
}

impl Object {
    /// What it is, in words.
    pub(super) fn words(&self) -> &'static str {
        match self {
            Object::Other => "a value of another kind",
            Object::None => "None",
            Object::Truth(_) => "True or False",
            Object::Whole(_) => "a number",
            Object::Text(_) => "a text",
            Object::Tuple(_) | Object::List(_) => "a list",
            Object::Dict(_) => "a dictionary",
            Object::Global(_) => "a name",
            Object::Storage { .. } => "a storage",
            Object::Tensor { .. } => "a tensor",
        }
    }
}

/// What a pickle has made.
pub(super) struct Made {
    pub(super) objects: Vec<Object>,
    /// The whole of it.
    pub(super) root: Id,
}

impl Made {
    /// The tensor of this number, if it is one.
    pub(super) fn tensor(&self, id: Id) -> Option<Described<'_>> {
        let Object::Tensor { storage, offset, shape, strides, negative } = &self.objects[id] else { return None };
        let Object::Storage { dtype, key, elements } = &self.objects[*storage] else { return None };
        let Object::Text(storage) = &self.objects[*key] else { return None };
        let [shape, strides] = [shape, strides].map(|id| sizes_of(&self.objects, *id).ok());
        let (dtype, elements, offset, negative) = (*dtype, *elements, *offset, *negative);
        Some(Described { dtype, storage, elements, offset, shape: shape?, strides: strides?, negative })
    }
}

type Step<T> = Result<T, String>;

fn size_of(objects: &[Object], id: Id) -> Step<u64> {
    match &objects[id] {
        Object::Whole(number) if *number >= 0 => Ok(*number as u64),
        Object::Whole(number) => Err(format!("has the size {number}")),
        other => Err(format!("has {}, expected a size", other.words())),
    }
}

fn tuple_of(objects: &[Object], id: Id) -> Step<&[Id]> {
    match &objects[id] {
        Object::Tuple(items) => Ok(items),
        other => Err(format!("has {}, expected a tuple", other.words())),
    }
}

fn sizes_of(objects: &[Object], id: Id) -> Step<Vec<u64>> {
    let items = tuple_of(objects, id)?;
    if items.len() > MOST_DIMENSIONS {
        return Err(format!("a tensor has {} dimensions, expected at most {MOST_DIMENSIONS}", items.len()));
    }
    items.iter().map(|item| size_of(objects, *item)).collect()
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    objects: Vec<Object>,
    stack: Vec<Id>,
    /// Heights of the stack at which a list of arguments begins.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
}

/// Runs a pickle.
pub(super) fn run(bytes: &[u8]) -> Result<Made, TorchError> {
    let (objects, stack, marks) = (Vec::new(), Vec::new(), Vec::new());
    let mut machine = Machine { bytes, at: 0, objects, stack, marks, memo: HashMap::new() };
    if bytes.len() > LONGEST {
        let message = format!("has {} bytes, of which at most {LONGEST} are read", bytes.len());
        return Err(TorchError::Pickle { offset: 0, message });
    }
    loop {
        let offset = machine.at;
        if machine.objects.len() > MOST_VALUES {
            let message = format!("makes more than {MOST_VALUES} values");
            return Err(TorchError::Pickle { offset, message });
        }
        match machine.step() {
            Ok(None) => {}
            Ok(Some(root)) => return Ok(Made { objects: machine.objects, root }),
            Err(message) => return Err(TorchError::Pickle { offset, message }),
        }
    }
}

impl Machine<'_> {
    fn take(&mut self, count: usize) -> Step<&[u8]> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or("it is cut short")?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Step<u64> {
        Ok(self.take(N)?.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// A text of some bytes.
    fn text(&mut self, length: u64) -> Step<String> {
        let bytes = self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        Ok(std::str::from_utf8(bytes).map_err(|_| "a text is no UTF-8")?.to_owned())
    }

    /// A text up to the end of the line.
    fn line(&mut self) -> Step<String> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|byte| *byte == b'\n').ok_or("it is cut short")?;
        let line = self.text(length as u64)?;
        self.at += 1;
        Ok(line)
    }

    fn push(&mut self, object: Object) {
        self.objects.push(object);
        self.stack.push(self.objects.len() - 1);
    }

    fn pop(&mut self) -> Step<Id> {
        let least = self.marks.last().copied().unwrap_or(0);
        let top = if self.stack.len() > least { self.stack.pop() } else { None };
        top.ok_or_else(|| "an argument is missing".to_owned())
    }

    fn top(&self) -> Step<Id> {
        self.stack.last().copied().ok_or_else(|| "an argument is missing".to_owned())
    }

    /// All since the last mark.
    fn since_mark(&mut self) -> Step<Vec<Id>> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len()).ok_or("a mark is missing")?;
        Ok(self.stack.split_off(mark))
    }

    fn last<const N: usize>(&mut self) -> Step<[Id; N]> {
        let mut taken = [0; N];
        for place in taken.iter_mut().rev() {
            *place = self.pop()?;
        }
        Ok(taken)
    }

    fn keep(&mut self, number: u64) -> Step<()> {
        let top = self.top()?;
        self.memo.insert(number as u32, top);
        Ok(())
    }

    fn recall(&mut self, number: u64) -> Step<()> {
        let known = self.memo.get(&(number as u32)).copied();
        self.stack.push(known.ok_or_else(|| format!("value {number} is not there"))?);
        Ok(())
    }

    fn append(&mut self, items: Vec<Id>) -> Step<()> {
        let list = self.top()?;
        match &mut self.objects[list] {
            Object::List(list) => list.extend(items),
            other => return Err(format!("items are appended to {}", other.words())),
        }
        Ok(())
    }

    fn set(&mut self, items: &[Id]) -> Step<()> {
        let dict = self.top()?;
        let (pairs, rest) = items.as_chunks::<2>();
        match &mut self.objects[dict] {
            Object::Dict(dict) if rest.is_empty() => dict.extend(pairs.iter().map(|[key, value]| (*key, *value))),
            Object::Dict(_) => return Err("a key has no value".into()),
            other => return Err(format!("items are set in {}", other.words())),
        }
        Ok(())
    }

    /// One instruction; the whole value after the last one.
    fn step(&mut self) -> Step<Option<Id>> {
        match self.number::<1>()? as u8 {
            op::PROTO => {
                let protocol = self.number::<1>()?;
                if protocol > 5 {
                    return Err(format!("is of protocol {protocol}, expected at most 5"));
                }
            }
            // A frame is a hint about reading.
            op::FRAME => drop(self.take(8)?),
            op::STOP => return self.pop().map(Some),
            op::MARK => self.marks.push(self.stack.len()),
            op::POP => drop(self.pop()?),
            op::NONE => self.push(Object::None),
            op::NEWTRUE => self.push(Object::Truth(true)),
            op::NEWFALSE => self.push(Object::Truth(false)),
            op::BINFLOAT => {
                self.take(8)?;
                self.push(Object::Other);
            }
            op::BININT => {
                let number = self.number::<4>()? as u32 as i32;
                self.push(Object::Whole(number.into()));
            }
            op::BININT1 => {
                let number = self.number::<1>()?;
                self.push(Object::Whole(number as i64));
            }
            op::BININT2 => {
                let number = self.number::<2>()?;
                self.push(Object::Whole(number as i64));
            }
            op::LONG1 => {
                let length = self.number::<1>()? as usize;
                let bytes = self.take(length)?;
                let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
                let start = if negative { -1_i64 } else { 0 };
                let number = bytes.iter().rev().fold(start, |value, byte| value << 8 | i64::from(*byte));
                self.push(if length <= 8 { Object::Whole(number) } else { Object::Other });
            }
            op::BINUNICODE => {
                let length = self.number::<4>()?;
                let text = self.text(length)?;
                self.push(Object::Text(text));
            }
            op::SHORT_BINUNICODE => {
                let length = self.number::<1>()?;
                let text = self.text(length)?;
                self.push(Object::Text(text));
            }
            op::EMPTY_DICT => self.push(Object::Dict(Vec::new())),
            op::EMPTY_LIST => self.push(Object::List(Vec::new())),
            op::EMPTY_TUPLE => self.push(Object::Tuple(Vec::new())),
            op::TUPLE1 => {
                let items = self.last::<1>()?;
                self.push(Object::Tuple(items.to_vec()));
            }
            op::TUPLE2 => {
                let items = self.last::<2>()?;
                self.push(Object::Tuple(items.to_vec()));
            }
            op::TUPLE3 => {
                let items = self.last::<3>()?;
                self.push(Object::Tuple(items.to_vec()));
            }
            op::TUPLE => {
                let items = self.since_mark()?;
                self.push(Object::Tuple(items));
            }
            op::APPEND => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            op::APPENDS => {
                let items = self.since_mark()?;
                self.append(items)?;
            }
            op::SETITEM => {
                let items = self.last::<2>()?;
                self.set(&items)?;
            }
            op::SETITEMS => {
                let items = self.since_mark()?;
                self.set(&items)?;
            }
            op::BINPUT => {
                let number = self.number::<1>()?;
                self.keep(number)?;
            }
            op::LONG_BINPUT => {
                let number = self.number::<4>()?;
                self.keep(number)?;
            }
            op::MEMOIZE => self.keep(self.memo.len() as u64)?,
            op::BINGET => {
                let number = self.number::<1>()?;
                self.recall(number)?;
            }
            op::LONG_BINGET => {
                let number = self.number::<4>()?;
                self.recall(number)?;
            }
            op::GLOBAL => {
                let name = format!("{} {}", self.line()?, self.line()?);
                self.name(&name)?;
            }
            op::STACK_GLOBAL => {
                let [module, name] = self.last()?;
                let name = format!("{} {}", self.text_of(module)?, self.text_of(name)?);
                self.name(&name)?;
            }
            op::BINPERSID => {
                let id = self.pop()?;
                let storage = self.storage(id)?;
                self.push(storage);
            }
            op::REDUCE => {
                let [callable, arguments] = self.last()?;
                self.call(callable, arguments)?;
            }
            op::BUILD => {
                let [of, attributes] = [self.pop()?, self.top()?];
                self.attributes(attributes, of)?;
            }
            other => return Err(op::refusal(other)),
        }
        Ok(None)
    }

    /// Attributes of a dictionary: the versions of modules, which `Module.state_dict` adds, say nothing of tensors.
    fn attributes(&self, of: Id, attributes: Id) -> Step<()> {
        if !matches!(self.objects[of], Object::Dict(_)) {
            return Err(format!("{} is given attributes, which only dictionaries have", self.objects[of].words()));
        }
        let Object::Dict(attributes) = &self.objects[attributes] else {
            return Err(format!("a dictionary's attributes are {}", self.objects[attributes].words()));
        };
        if attributes.len() > MOST_PROPERTIES {
            return Err(format!("a dictionary has {} attributes, of which '_metadata' is read", attributes.len()));
        }
        for (name, _) in attributes {
            let name = self.text_of(*name)?;
            if name != "_metadata" {
                return Err(format!("a dictionary has the attribute '{name}', which is not read; '_metadata' is"));
            }
        }
        Ok(())
    }

    /// Whether the seventh argument of `_rebuild_tensor_v2` asks for the other sign.
    fn negative(&self, metadata: Option<&Id>) -> Step<bool> {
        let items = match metadata.map(|id| &self.objects[*id]) {
            None | Some(Object::None) => return Ok(false),
            Some(Object::Dict(items)) => items,
            Some(other) => return Err(format!("a tensor's seventh argument is {}", other.words())),
        };
        if items.len() > MOST_PROPERTIES {
            return Err(format!("a tensor has {} properties, expected 'neg' and 'conj'", items.len()));
        }
        let mut negative = false;
        for (name, value) in items {
            match (self.text_of(*name)?, &self.objects[*value]) {
                ("neg", Object::Truth(set)) => negative = *set,
                ("conj", Object::Truth(false)) => {}
                (name, value) => {
                    return Err(format!("a tensor has the property '{name}' ({}), which is not read", value.words()));
                }
            }
        }
        Ok(negative)
    }

    /// Whether a tensor needs a gradient, and its hooks: of both only what changes no numbers is taken.
    fn plain_gradient(&self, requires_grad: Id, hooks: Id) -> Step<()> {
        if !matches!(self.objects[requires_grad], Object::Truth(_) | Object::None) {
            return Err(format!("requires_grad is {}", self.objects[requires_grad].words()));
        }
        match &self.objects[hooks] {
            Object::None => Ok(()),
            Object::Dict(hooks) if hooks.is_empty() => Ok(()),
            other => Err(format!("a tensor has hooks ({}), which are not read", other.words())),
        }
    }

    fn name(&mut self, name: &str) -> Step<()> {
        let known = GLOBALS.iter().find(|(known, _)| *known == name).map(|(_, global)| *global);
        let global = known.ok_or_else(|| {
            format!("asks for '{}', which is not read: tensors and dictionaries alone are", name.replace(' ', "."))
        })?;
        self.push(Object::Global(global));
        Ok(())
    }

    fn text_of(&self, id: Id) -> Step<&str> {
        match &self.objects[id] {
            Object::Text(text) => Ok(text),
            other => Err(format!("has {}, expected a text", other.words())),
        }
    }

    /// `('storage', class, key, device, elements)`.
    fn storage(&self, id: Id) -> Step<Object> {
        let &[kind, class, key, device, elements] = tuple_of(&self.objects, id)? else {
            return Err("a storage is not made of five parts".into());
        };
        [key, device].iter().try_for_each(|id| self.text_of(*id).map(drop))?;
        match &self.objects[class] {
            Object::Global(Global::Storage(dtype)) if self.text_of(kind)? == "storage" => {
                Ok(Object::Storage { dtype: *dtype, key, elements: size_of(&self.objects, elements)? })
            }
            _ => Err("a storage is not made of numbers".into()),
        }
    }

    fn call(&mut self, callable: Id, arguments: Id) -> Step<()> {
        let objects = &self.objects;
        let Object::Global(callable) = objects[callable] else {
            return Err(format!("{} is called", objects[callable].words()));
        };
        let made = match (callable, tuple_of(objects, arguments)?) {
            (Global::OrderedDict, []) => Object::Dict(Vec::new()),
            (Global::RebuildTensor, &[storage, offset, shape, strides, requires_grad, hooks, ref more @ ..])
                if more.len() <= 1 =>
            {
                self.plain_gradient(requires_grad, hooks)?;
                let negative = self.negative(more.first())?;
                if !matches!(objects[storage], Object::Storage { .. }) {
                    return Err("a tensor is made of no storage".into());
                }
                [shape, strides].iter().try_for_each(|id| sizes_of(objects, *id).map(drop))?;
                Object::Tensor { storage, offset: size_of(objects, offset)?, shape, strides, negative }
            }
            // A parameter is its tensor.
            (Global::RebuildParameter, &[tensor, requires_grad, hooks])
                if matches!(objects[tensor], Object::Tensor { .. }) =>
            {
                self.plain_gradient(requires_grad, hooks)?;
                self.stack.push(tensor);
                return Ok(());
            }
            (callable, arguments) => {
                return Err(format!("{callable:?} is called with {} arguments that it does not take", arguments.len()));
            }
        };
        self.push(made);
        Ok(())
    }
}
