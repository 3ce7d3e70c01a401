//! Characters, words, strings and lists.

use std::str::FromStr;

use super::super::implied::MAX_RELATIVE;
use super::super::print::{is_numeric, is_reserved};
use super::super::word::word_length;
use super::Parser;
use super::messages::quote;
use crate::error::Result;

impl<'a> Parser<'a> {
    pub(super) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    /// Moves over white space and comments.
    pub(super) fn skip(&mut self) {
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

    pub(super) fn peek(&mut self) -> Option<char> {
        self.skip();
        self.rest().chars().next()
    }

    pub(super) fn eat(&mut self, symbol: char) -> bool {
        let here = self.peek() == Some(symbol);
        if here {
            self.at += symbol.len_utf8();
        }
        here
    }

    pub(super) fn expect(&mut self, symbol: char, context: &str) -> Result<()> {
        if self.eat(symbol) { Ok(()) } else { self.expected(&format!("'{symbol}' {context}")) }
    }

    pub(super) fn peek_word(&mut self) -> &'a str {
        self.skip();
        let rest = self.rest();
        &rest[..word_length(rest)]
    }

    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let here = self.peek_word() == word;
        if here {
            self.at += word.len();
        }
        here
    }

    pub(super) fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.eat_word(word) { Ok(()) } else { self.expected(&format!("'{word}'")) }
    }

    /// A string with the escapes of Rust's.
    pub(super) fn string(&mut self) -> Result<String> {
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
                        // The string goes on in the next line, behind the white space that it begins with.
                        '\n' | '\r' => {
                            let rest = self.rest();
                            self.at += rest.len() - rest.trim_start().len();
                            continue;
                        }
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

    /// A name where only a name is allowed.
    pub(super) fn label(&mut self, what: &str) -> Result<String> {
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

    /// A name where a number or a keyword is allowed too, and its offset. It may be below the scope.
    pub(super) fn name(&mut self, what: &str) -> Result<(String, usize)> {
        self.skip();
        let at = self.at;
        match self.peek() {
            Some('.') => return self.relative_name(),
            Some('"') => {}
            _ => {
                if let Some(name) = self.name_of_each()? {
                    return Ok(name);
                }
                let word = self.peek_word();
                if is_numeric(word) || is_reserved(word) {
                    return self
                        .fail(at, format!("expected {what}, found {}; a name like this is quoted", quote(word)));
                }
            }
        }
        Ok((self.label(what)?, at))
    }

    /// `.rest`: a name below the scope.
    pub(super) fn relative_name(&mut self) -> Result<(String, usize)> {
        self.skip();
        let at = self.at;
        if !self.eat('.') {
            return self.name("a name");
        }
        let word = &self.rest()[..word_length(self.rest())];
        if word.is_empty() {
            return self.fail(at, "expected the rest of a name behind its dot");
        }
        if self.scope.is_empty() {
            return self.fail(at, format!("'.{word}' is below a scope, and there is none here"));
        }
        let name = format!("{}.{word}", self.scope);
        if name.len() > MAX_RELATIVE {
            return self.fail(at, format!("a name below a scope has at most {MAX_RELATIVE} bytes; write it in full"));
        }
        self.at += word.len();
        Ok((name, at))
    }

    /// A word that may have a sign in front.
    pub(super) fn number_word(&mut self) -> &'a str {
        self.skip();
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        &rest[..sign + word_length(&rest[sign..])]
    }

    pub(super) fn integer<N: FromStr>(&mut self, what: &str) -> Result<N> {
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
    pub(super) fn list<T>(&mut self, end: char, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
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
}
