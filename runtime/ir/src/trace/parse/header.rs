//! A whole trace: version, history, name, target, inputs and outputs.

use super::super::implied::{MAX_RELATIVE, deletes, first_pass, scope_of};
use super::super::print::VERSION;
use super::super::word::word_length;
use super::super::{Input, InputRole, Output, Trace, ValueId};
use super::lines::End;
use super::marks::Naming;
use super::memory::follow;
use super::messages::quote;
use super::{Parser, Scope, Typed};
use crate::error::Result;
use crate::mesh::Mesh;
use crate::meta::Target;

impl Parser<'_> {
    pub(super) fn trace(&mut self) -> Result<Trace> {
        let version = self.rest().trim_start();
        self.at = self.text.len() - version.len();
        let Some(version) = version.strip_prefix("# fulgurite trace ") else {
            return self.fail(self.at, format!("expected the first line '# fulgurite trace {VERSION}'"));
        };
        self.at = self.text.len() - version.len();
        let version = version.lines().next().unwrap_or("").trim_end();
        if version != VERSION.to_string() {
            let message = format!(
                "this is version {} of the text, only {VERSION} is read; print the trace again with this version",
                quote(version)
            );
            return self.fail(self.at, message);
        }
        self.at += version.len();
        let history = self.history()?;
        self.deletes = deletes(&history);
        if !self.eat_word("trace") {
            return self.expected("'trace' and a name");
        }
        let name = self.label("the name of the trace")?;
        self.expect_word("for")?;
        let target = self.target()?;
        self.home = self.kind_of_device(target.kind())?;
        let mut scope = Scope { number: self.open_marked(None, false), ..Scope::default() };
        self.expect('(', "and the inputs")?;
        let inputs = self.inputs(&mut scope)?;
        self.pass = first_pass(&inputs);
        let arena = if self.eat_word("arena") { Some(self.integer("a size in bytes")?) } else { None };
        self.expect('{', "and the lines of the trace")?;
        self.symbols(&mut scope, End::Program, 0)?;
        let mut returned: Vec<(Output, ValueId)> = Vec::new();
        self.results(|p, _: Option<&()>| p.output(&mut scope, &mut returned))?;
        let (outputs, results): (Vec<Output>, Vec<ValueId>) = returned.into_iter().unzip();
        scope.block.results = results;
        let told = self.memory(&mut scope)?;
        self.expect('}', "after 'return'")?;
        if let Some(marks) = &mut self.marks {
            marks.close(scope.number, self.at - 1);
        }
        if self.peek().is_some() {
            return self.expected("the end of the text");
        }
        let mut block = scope.block;
        if arena.is_some() {
            follow(&mut block, &inputs, &outputs, &told);
        }
        Ok(Trace { name, target, history, inputs, outputs, arena, block })
    }

    /// The inputs, after `(`.
    fn inputs(&mut self, scope: &mut Scope) -> Result<Vec<Input>> {
        let mut inputs: Vec<Input> = Vec::new();
        self.list(')', |p| {
            if let Some((root, at)) = p.star() {
                return p.inputs_like(scope, root, at, &mut inputs);
            }
            p.follow_value(scope, scope.block.parameters.last().copied(), &"".into());
            let typed = p.typed();
            p.scope = "".into();
            let typed = typed?;
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
            p.input(scope, typed)?;
            inputs.push(Input { role, donated, strides });
            Ok(())
        })?;
        Ok(inputs)
    }

    fn input(&mut self, scope: &mut Scope, typed: Typed) -> Result<()> {
        let id = self.define(scope, typed)?;
        scope.block.parameters.push(id);
        self.trees.add(&scope.block.value(id).name);
        Ok(())
    }

    /// `root.* like model.*`, after its first star.
    fn inputs_like(&mut self, scope: &mut Scope, root: &str, at: usize, inputs: &mut Vec<Input>) -> Result<()> {
        self.expect_word("like")?;
        let Some((model, start)) = self.star() else { return self.expected("inputs like 'params.*'") };
        let Some((range, rests)) = self.trees.rests(model) else {
            return self.fail(start, format!("no inputs that follow one another are below {}", quote(model)));
        };
        let names: Vec<String> = rests.map(|rest| format!("{root}.{rest}")).collect();
        self.expands(names.len(), start)?;
        for (i, name) in range.zip(names) {
            let like = scope.block.value(scope.block.parameters[i]).name.clone();
            self.mark(scope, &like, start, Naming::Mention);
            if name.len() > MAX_RELATIVE {
                return self.fail(at, format!("a name below another has at most {MAX_RELATIVE} bytes"));
            }
            let meta = scope.block.meta(scope.block.parameters[i]).clone();
            self.input(scope, Typed { name, at, meta })?;
            inputs.push(inputs[i].clone());
        }
        Ok(())
    }

    /// `# made by acquire, dce` on the line after the version. After a comma the list may go on in the next line, which
    /// is a comment too.
    pub(super) fn history(&mut self) -> Result<Vec<String>> {
        let rest = self.rest();
        let trimmed = rest.trim_start();
        let Some(list) = trimmed.strip_prefix("# made by ") else { return Ok(Vec::new()) };
        self.at = self.text.len() - list.len();
        // Each line is read as if it were the end of the text.
        let whole = self.text;
        let end_of_line = |at: usize| at + whole[at..].find('\n').unwrap_or(whole.len() - at);
        self.text = &whole[..end_of_line(self.at)];
        let mut history = Vec::new();
        let read = loop {
            match self.label("the name of a transform") {
                Ok(name) => history.push(name),
                Err(error) => break Err(error),
            }
            if !self.eat(',') {
                break if self.peek().is_none() { Ok(()) } else { self.expected("',' or the end of the line") };
            }
            let next = whole[self.text.len()..].strip_prefix("\n#");
            if let (None, Some(next)) = (self.peek(), next) {
                self.at = whole.len() - next.len();
                self.text = &whole[..end_of_line(self.at)];
            }
        };
        self.text = whole;
        read.map(|()| history)
    }

    pub(super) fn target(&mut self) -> Result<Target> {
        self.skip();
        let rest = self.rest();
        let length = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':')).count();
        let target: Target = match rest[..length].parse() {
            Ok(target) => target,
            Err(_) => return self.expected("a target like 'cpu' or 'cuda:sm_90a'"),
        };
        self.at += length;
        if !self.eat_word("x") {
            return Ok(target);
        }
        self.skip();
        let rest = self.rest();
        let length = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'=' | b' ')).count();
        match rest[..length].parse() {
            Ok(mesh) if mesh != Mesh::ONE => {
                self.at += length;
                Ok(target.on_mesh(mesh))
            }
            _ => self.expected("the axes of a mesh, like 'data=4'"),
        }
    }

    /// `loss = value`, `params.* = sgd.*.new`, or just a value. A path may be below the scope of the one before it.
    fn output(&mut self, scope: &mut Scope, returned: &mut Vec<(Output, ValueId)>) -> Result<()> {
        self.skip();
        let start = self.at;
        if let Some((root, at)) = self.star() {
            return self.outputs_below(scope, root, at, returned);
        }
        let path = if self.peek() == Some('.') {
            self.scope = scope_of(returned.last().map_or("", |(output, _)| &output.path)).into();
            let path = self.relative_name();
            self.scope = "".into();
            path?.0
        } else {
            self.label("a value")?
        };
        if self.eat('=') {
            returned.push((Output { path }, self.value(scope)?));
            return Ok(());
        }
        self.at = start;
        returned.push((Output { path: String::new() }, self.value(scope)?));
        Ok(())
    }

    /// `params.* = sgd.*.new`, after its first star.
    fn outputs_below(
        &mut self,
        scope: &mut Scope,
        root: &str,
        start: usize,
        returned: &mut Vec<(Output, ValueId)>,
    ) -> Result<()> {
        self.expect('=', "and the values' names after the paths")?;
        let Some((before, at)) = self.star() else { return self.expected("names like 'sgd.*.new'") };
        // The end of the values' names is right behind the star.
        let mut behind = "";
        if let Some(rest) = self.rest().strip_prefix('.') {
            behind = &self.rest()[..1 + word_length(rest)];
            self.at += behind.len();
        }
        for path in self.names_of(root, start)? {
            let name = format!("{before}.{}{behind}", &path[root.len() + 1..]);
            if name.len() > MAX_RELATIVE {
                return self.fail(at, format!("a name below another has at most {MAX_RELATIVE} bytes"));
            }
            let value = self.look_up(scope, &name, at)?;
            returned.push((Output { path }, value));
        }
        Ok(())
    }
}
