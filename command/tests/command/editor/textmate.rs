//! As much of TextMate's grammars as those of the repository use: `match`, `begin` and `end`, `captures`, `include`.

use std::collections::HashMap;
use std::ops::Range;

use fancy_regex::{Captures, Regex};
use serde_json::Value;

/// A piece of text with the innermost scope that a grammar gives it.
#[derive(Debug)]
pub struct Token {
    pub range: Range<usize>,
    pub scope: String,
}

/// Grammars that include each other.
pub struct Grammar {
    by_scope: HashMap<String, Value>,
    expressions: HashMap<String, Regex>,
}

/// A rule that is inside of its `begin` and `end`.
struct Open<'a> {
    rule: &'a Value,
    grammar: &'a str,
}

impl Grammar {
    pub fn new(texts: &[&str]) -> Grammar {
        let mut grammar = Grammar { by_scope: HashMap::new(), expressions: HashMap::new() };
        for text in texts {
            let parsed: Value = serde_json::from_str(text).unwrap();
            grammar.compile(&parsed);
            grammar.by_scope.insert(parsed["scopeName"].as_str().unwrap().to_owned(), parsed);
        }
        grammar
    }

    pub fn expressions(&self) -> usize {
        self.expressions.len()
    }

    fn compile(&mut self, value: &Value) {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    match value.as_str().filter(|_| matches!(key.as_str(), "match" | "begin" | "end")) {
                        Some(text) => {
                            let compiled = Regex::new(&format!("(?m){text}"));
                            let compiled = compiled.unwrap_or_else(|error| panic!("{text}: {error}"));
                            self.expressions.insert(text.to_owned(), compiled);
                        }
                        None => self.compile(value),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.compile(item)),
            _ => {}
        }
    }

    /// The rules that `patterns` are, with those that they include.
    fn rules<'a>(&'a self, patterns: &'a Value, grammar: &'a str) -> Vec<(&'a Value, &'a str)> {
        let mut found = Vec::new();
        for pattern in patterns.as_array().into_iter().flatten() {
            let Some(include) = pattern["include"].as_str() else {
                match pattern.get("match").or(pattern.get("begin")) {
                    Some(_) => found.push((pattern, grammar)),
                    None => found.extend(self.rules(&pattern["patterns"], grammar)),
                }
                continue;
            };
            let (scope, name) = include.split_once('#').unwrap_or((include, ""));
            let scope = if scope.is_empty() { grammar } else { scope };
            let Some((scope, of)) = self.by_scope.get_key_value(scope) else { continue };
            if name.is_empty() {
                found.extend(self.rules(&of["patterns"], scope));
                continue;
            }
            let rule = &of["repository"][name];
            assert!(rule.is_object(), "no rule is called {include}");
            match rule.get("match").or(rule.get("begin")) {
                Some(_) => found.push((rule, scope)),
                None => found.extend(self.rules(&rule["patterns"], scope)),
            }
        }
        found
    }

    /// The tokens of a text, line by line.
    pub fn tokens(&self, scope: &str, text: &str) -> Vec<Token> {
        let (grammar, root) = self.by_scope.get_key_value(scope).unwrap();
        let mut open: Vec<Open> = Vec::new();
        let mut tokens = Vec::new();
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let end = start + line.trim_end_matches('\n').len();
            // What is before the line is no beginning of the text: `\A` is the first line's.
            self.line(&text[..end], start, (root, grammar), &mut open, &mut tokens);
            start += line.len();
        }
        tokens
    }

    fn line<'a>(
        &'a self,
        text: &str,
        mut at: usize,
        (root, grammar): (&'a Value, &'a str),
        open: &mut Vec<Open<'a>>,
        tokens: &mut Vec<Token>,
    ) {
        // What an expression finds remains found until it is passed, and what it does not find it never does.
        let mut found: HashMap<&str, Option<Captures<str>>> = HashMap::new();
        loop {
            let (patterns, inside) = match open.last() {
                Some(open) => (&open.rule["patterns"], open.grammar),
                None => (&root["patterns"], grammar),
            };
            let end = open.last().and_then(|open| Some((open.rule["end"].as_str()?, open.rule, open.grammar, true)));
            let rules = self.rules(patterns, inside).into_iter().filter_map(|(rule, grammar)| {
                Some((rule.get("match").or(rule.get("begin"))?.as_str()?, rule, grammar, false))
            });
            let candidates: Vec<(&str, &Value, &str, bool)> = end.into_iter().chain(rules).collect();
            let start = |captures: &Captures<str>| captures.get(0).unwrap().start();
            for (expression, ..) in &candidates {
                let passed = |known: &Option<Captures<str>>| known.as_ref().is_some_and(|known| start(known) < at);
                if found.get(expression).is_none_or(passed) {
                    let next = self.expressions[*expression].captures_from_pos(text, at).unwrap();
                    found.insert(*expression, next);
                }
            }
            let found = |expression: &str| found.get(expression).and_then(Option::as_ref);
            let best = candidates.iter().filter(|(expression, ..)| found(expression).is_some());
            // Of those that begin together the first counts.
            let best = best.min_by_key(|(expression, ..)| found(expression).map(start));
            let Some(&(expression, rule, of, ends)) = best else { return };
            let Some(captures) = found(expression) else { return };
            let whole = captures.get(0).unwrap();
            let scopes = match (ends, rule.get("begin")) {
                (true, _) => &rule["endCaptures"],
                (false, Some(_)) => &rule["beginCaptures"],
                (false, None) => &rule["captures"],
            };
            // Of tokens that begin together the innermost comes first.
            let mut captured: Vec<(usize, &Value)> = scopes
                .as_object()
                .into_iter()
                .flatten()
                .map(|(number, rule)| (number.parse().unwrap(), rule))
                .collect();
            captured.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
            for (number, capture) in captured {
                let Some(found) = captures.get(number) else { continue };
                match capture["name"].as_str() {
                    Some(scope) => tokens.push(Token { range: found.start()..found.end(), scope: scope.to_owned() }),
                    None => self.line(&text[..found.end()], found.start(), (capture, of), &mut Vec::new(), tokens),
                }
            }
            if let Some(name) = rule["name"].as_str().filter(|_| !ends) {
                tokens.push(Token { range: whole.start()..whole.end(), scope: name.to_owned() });
            }
            if ends {
                open.pop();
            } else if rule.get("begin").is_some() {
                open.push(Open { rule, grammar: of });
            } else if whole.end() == whole.start() {
                return;
            }
            at = whole.end();
        }
    }
}
