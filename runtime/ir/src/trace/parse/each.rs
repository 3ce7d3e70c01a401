//! Lines that are written once for each input below a name: `for params.*: new.* = sgd(params.*, grad.*, lr)`.

use std::collections::{HashMap, HashSet};

use super::super::implied::MAX_RELATIVE;
use super::super::trees::{LINE_BYTES, counted};
use super::super::word::word_length;
use super::lines::End;
use super::marks::Naming;
use super::messages::quote;
use super::{Each, Exceptions, Parser, Scope};
use crate::argument::Attribute;
use crate::error::Result;
use crate::operator::{ParamDef, ParamKind};

impl<'a> Parser<'a> {
    /// `for params.*`: what is before the star.
    pub(super) fn at_each(&mut self) -> Option<(&'a str, usize)> {
        let start = self.at;
        let found = if self.eat_word("for") { self.star() } else { None };
        if found.is_none() {
            self.at = start;
        }
        found
    }

    /// The lines behind `for root.*`.
    pub(super) fn lines_of_each(
        &mut self,
        scope: &mut Scope,
        (root, start): (&str, usize),
        end: End,
        depth: usize,
    ) -> Result<()> {
        let Some((_, rests)) = self.trees.rests(root) else {
            return self.fail(start, format!("no inputs that follow one another are below {}", quote(root)));
        };
        let rests: Vec<String> = rests.map(str::to_owned).collect();
        self.expands(rests.len(), start)?;
        if self.marks.is_some() {
            rests.iter().for_each(|rest| self.mark(scope, &format!("{root}.{rest}"), start, Naming::Mention));
        }
        self.expect(':', "and a line")?;
        let (line, count) = (self.at, rests.len());
        self.each = Some(Box::new(Each { rests, at: 0, exceptions: HashMap::new() }));
        for at in 0..count {
            self.at = line;
            if let Some(each) = &mut self.each {
                each.at = at;
            }
            let yields = end == End::Body && self.eat_word("yield");
            let heads = self.results_of_line(end)?;
            if heads.is_empty() {
                return self.fail(line, "a line for each input has results");
            }
            let results = self.symbol(scope, heads, depth)?;
            if yields {
                scope.block.results.extend(results);
            }
            if at == 0 {
                let exceptions = self.each.iter().flat_map(|each| &each.exceptions);
                let once: usize = exceptions.map(|(start, exceptions)| exceptions.end - start).sum();
                self.expands(count.saturating_mul((self.at - line).saturating_sub(once) / LINE_BYTES), start)?;
            }
        }
        self.each = None;
        Ok(())
    }

    /// `new.*.mean` in a line for each input: the name for this one, and where it is.
    pub(super) fn name_of_each(&mut self) -> Result<Option<(String, usize)>> {
        let word = self.peek_word();
        let (start, behind) = (self.at, self.at + word.len());
        let Some(each) = self.each.as_ref().filter(|_| word.ends_with('.') && self.text[behind..].starts_with('*'))
        else {
            return Ok(None);
        };
        let rest = &self.text[behind + 1..];
        // The end of the name is right behind the star.
        let end = rest.strip_prefix('.').map_or("", |word| &rest[..1 + word_length(word)]);
        let name = format!("{word}{}{end}", each.rests[each.at]);
        if name.len() > MAX_RELATIVE {
            return self.fail(start, format!("a name below another has at most {MAX_RELATIVE} bytes"));
        }
        self.at = behind + 1 + end.len();
        Ok(Some((name, start)))
    }

    /// `to .9` behind `name` in a line for each input: the name for this one.
    pub(super) fn counted_for_each(&mut self, name: String) -> Result<String> {
        let Some((at, count)) = self.each.as_ref().map(|each| (each.at, each.rests.len())) else { return Ok(name) };
        let start = self.at;
        let Some((first, last)) = self.counter_to(&name)? else { return Ok(name) };
        if (last - first) as usize + 1 != count {
            return self.fail(start, format!("these are {} names for {count} inputs", last - first + 1));
        }
        Ok(if at == 0 { name } else { format!("{}.{}", counted(&name).0, first as usize + at) })
    }

    /// `but 0.1 for [a, b]` behind `attribute` in a line for each input: the attribute for this one.
    pub(super) fn attribute_for_each(&mut self, param: &ParamDef, attribute: Attribute) -> Result<Attribute> {
        if self.each.is_none() || self.peek_word() != "but" {
            return Ok(attribute);
        }
        let start = self.at;
        if !self.each.as_ref().is_some_and(|each| each.exceptions.contains_key(&start)) {
            let exceptions = self.exceptions(param)?;
            if let Some(each) = &mut self.each {
                each.exceptions.insert(start, exceptions);
            }
        }
        let Some(each) = &self.each else { return Ok(attribute) };
        let Exceptions { of, end } = &each.exceptions[&start];
        self.at = *end;
        Ok(of.get(&each.rests[each.at]).cloned().unwrap_or(attribute))
    }

    fn exceptions(&mut self, param: &ParamDef) -> Result<Exceptions> {
        let mut of: HashMap<String, Attribute> = HashMap::new();
        let mut left: HashSet<String> = self.each.iter().flat_map(|each| each.rests.iter().cloned()).collect();
        while self.eat_word("but") {
            let attribute = match param.kind {
                ParamKind::Operand(_) => match self.scalar()? {
                    Some(scalar) => Attribute::Scalar(scalar),
                    None => return self.expected("a number"),
                },
                _ => self.attribute_of(param)?,
            };
            self.expect_word("for")?;
            self.expect('[', "and names of inputs")?;
            self.list(']', |p| {
                p.skip();
                let at = p.at;
                let rest = p.label("the name of an input")?;
                if !left.remove(&rest) {
                    let message = format!("{} is no input that the line is for, or is listed twice", quote(&rest));
                    return p.fail(at, message);
                }
                of.insert(rest, attribute.clone());
                Ok(())
            })?;
        }
        Ok(Exceptions { of, end: self.at })
    }
}
