//! Formulas of doc comments as MathML, which browsers draw without scripts or fonts from elsewhere.
//!
//! Doc comments write mathematics as text: `(eˣ - e⁻ˣ) / 2`, `Σ w (x - m)²`, `input · 2^other`. What does not parse as
//! a formula, or has nothing that only a formula has, is code and stays text.

use fulgurite_plots::escape_text;

/// Superscript characters, and what they raise.
const RAISED: &str = "⁰0¹1²2³3⁴4⁵5⁶6⁷7⁸8⁹9⁺+⁻−ˣxⁿnᵏkᵖpᵗtᵀT";
/// Subscript characters, and what they lower.
const LOWERED: &str = "₀0₁1₂2₃3₄4₅5₆6₇7₈8₉9₊+₋−ₖkₓxₙn";
/// Characters that are in formulas alone.
const SIGNS: &str = "√Σ∫·⊗^‖⌊⌈≤≥πΓφΦψσεβτρζλθ";
/// Names whose operand may follow without parentheses: `log x`.
const FUNCTIONS: [&str; 11] = ["log", "ln", "sin", "cos", "tan", "exp", "tanh", "erf", "erfc", "lgamma", "trunc"];
/// Brackets, and those that close them.
const BRACKETS: [(char, char); 6] = [('(', ')'), ('[', ']'), ('|', '|'), ('‖', '‖'), ('⌊', '⌋'), ('⌈', '⌉')];
/// Formulas within formulas are read to this depth.
const MOST_DEPTH: usize = 24;

#[derive(Debug, Clone, PartialEq)]
enum Token {
    /// A name, with whether `(` or `[` follows at once.
    Name(String, bool),
    Number(String),
    /// Superscript characters, as what they raise.
    Raised(String),
    Lowered(String),
    Sign(char),
    /// `=`, `≤`, `-=`: what is between sides.
    Relation(&'static str),
    Dots,
}

/// The character that one of a list of pairs is written for.
fn paired(pairs: &str, c: char) -> Option<char> {
    let mut all = pairs.chars();
    while let (Some(from), Some(to)) = (all.next(), all.next()) {
        if from == c {
            return Some(to);
        }
    }
    None
}

const RELATIONS: [(&str, &str); 9] =
    [("+=", "+="), ("-=", "−="), ("<=", "≤"), (">=", "≥"), ("≤", "≤"), ("≥", "≥"), ("=", "="), ("<", "<"), (">", ">")];

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let taken = |is: &dyn Fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
        let word = |at: usize| rest[..at].to_owned();
        let length = if c.is_whitespace() {
            c.len_utf8()
        } else if rest.starts_with("...") {
            found.push(Token::Dots);
            3
        } else if let Some((sign, shown)) = RELATIONS.iter().find(|(sign, _)| rest.starts_with(sign)) {
            found.push(Token::Relation(shown));
            sign.len()
        } else if let Some(length) = number(rest) {
            found.push(Token::Number(word(length)));
            length
        } else if paired(RAISED, c).is_some() {
            let at = taken(&|c| paired(RAISED, c).is_some());
            found.push(Token::Raised(rest[..at].chars().filter_map(|c| paired(RAISED, c)).collect()));
            at
        } else if paired(LOWERED, c).is_some() {
            let at = taken(&|c| paired(LOWERED, c).is_some());
            found.push(Token::Lowered(rest[..at].chars().filter_map(|c| paired(LOWERED, c)).collect()));
            at
        } else if c.is_alphabetic() && !"Σ∫√".contains(c) {
            let letter = |c: char| {
                (c.is_alphanumeric() || c == '_') && paired(RAISED, c).is_none() && paired(LOWERED, c).is_none()
            };
            let at = taken(&letter);
            found.push(Token::Name(word(at), rest[at..].starts_with(['(', '['])));
            at
        } else if "+-/^!'·⊗Σ∫√,()[]|‖⌊⌋⌈⌉".contains(c) {
            found.push(Token::Sign(c));
            c.len_utf8()
        } else {
            return None;
        };
        rest = &rest[length..];
    }
    Some(found)
}

/// The length of a number at the beginning: `0.044715`, `1e-7`, `10_000`.
fn number(text: &str) -> Option<usize> {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let mut length = digits(text);
    if length == 0 {
        return None;
    }
    if let Some(rest) = text[length..].strip_prefix('.')
        && digits(rest) > 0
    {
        length += 1 + digits(rest);
    }
    if let Some(rest) = text[length..].strip_prefix('e') {
        let sign = usize::from(rest.starts_with('-'));
        if digits(&rest[sign..]) > 0 {
            length += 1 + sign + digits(&rest[sign..]);
        }
    }
    Some(length)
}

/// A part of a formula.
struct Part {
    markup: String,
    /// The same without the parentheses around all of it, if there are any.
    bare: Option<String>,
}

impl Part {
    fn of(markup: String) -> Part {
        Part { markup, bare: None }
    }

    /// As a numerator, a denominator or an exponent, which need no parentheses.
    fn alone(&self) -> String {
        row(self.bare.as_ref().unwrap_or(&self.markup))
    }
}

fn row(markup: &str) -> String {
    format!("<mrow>{markup}</mrow>")
}

fn sign(text: &str) -> String {
    format!("<mo>{}</mo>", escape_text(text))
}

/// A name; what follows `_` as an index if both are letters.
fn name(text: &str) -> String {
    if let Some((base, index)) = text.split_once('_')
        && base.chars().count() == 1
        && index.chars().count() == 1
    {
        return format!("<msub><mi>{}</mi><mi>{}</mi></msub>", escape_text(base), escape_text(index));
    }
    format!("<mi>{}</mi>", escape_text(text))
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    /// The brackets that are open, by what closes them.
    open: Vec<char>,
}

impl Reader {
    fn next(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn takes(&mut self, wanted: char) -> bool {
        let there = self.next() == Some(&Token::Sign(wanted));
        self.at += usize::from(there);
        there
    }

    /// Sums and what relates them.
    fn relation(&mut self) -> Option<String> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return None;
        }
        let mut text = self.sum()?;
        while let Some(Token::Relation(shown)) = self.next() {
            text += &sign(shown);
            self.at += 1;
            text += &self.sum()?;
        }
        self.depth -= 1;
        Some(text)
    }

    fn sum(&mut self) -> Option<String> {
        let mut text = String::new();
        if self.takes('-') {
            text += &sign("−");
        }
        text += &self.term()?;
        loop {
            if self.takes('+') {
                text += &sign("+");
            } else if self.takes('-') {
                text += &sign("−");
            } else {
                return Some(text);
            }
            text += &self.term()?;
        }
    }

    /// Factors side by side or with a sign between them, and quotients of two of them.
    fn term(&mut self) -> Option<String> {
        let mut text = String::new();
        let mut last = self.factor()?;
        loop {
            if self.takes('/') {
                let below = self.factor()?;
                last = Part::of(format!("<mfrac>{}{}</mfrac>", last.alone(), below.alone()));
                continue;
            }
            text += &last.markup;
            if self.takes('·') {
                text += &sign("·");
            } else if self.takes('⊗') {
                text += &sign("⊗");
            } else if self.begins_factor() {
                text += "<mo>&#x2062;</mo>";
            } else {
                return Some(text);
            }
            last = self.factor()?;
        }
    }

    fn begins_factor(&self) -> bool {
        match self.next() {
            Some(Token::Name(..) | Token::Number(_) | Token::Dots) => true,
            Some(Token::Sign(c)) => {
                self.open.last().is_none_or(|close| close != c)
                    && (BRACKETS.iter().any(|(open, _)| open == c) || "Σ∫√".contains(*c))
            }
            _ => false,
        }
    }

    /// A primary with what is raised, lowered and written behind it.
    fn factor(&mut self) -> Option<Part> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return None;
        }
        let part = self.raised_primary();
        self.depth -= 1;
        part
    }

    fn raised_primary(&mut self) -> Option<Part> {
        let function = match self.next()? {
            Token::Name(name, false) => FUNCTIONS.contains(&name.as_str()),
            _ => false,
        };
        let called = matches!(self.next()?, Token::Name(_, true));
        let mut part = self.primary()?;
        if called {
            let inner = self.brackets()?;
            part = Part::of(format!("{}<mo>&#x2061;</mo>{}", part.markup, inner.markup));
        }
        loop {
            let base = || row(&part.markup);
            part = match self.next() {
                Some(Token::Raised(above)) => {
                    let made = format!("<msup>{}{}</msup>", base(), row(&small(above)));
                    self.at += 1;
                    Part::of(made)
                }
                Some(Token::Lowered(below)) => {
                    let made = format!("<msub>{}{}</msub>", base(), row(&small(below)));
                    self.at += 1;
                    Part::of(made)
                }
                Some(Token::Sign(c @ ('!' | '\''))) => {
                    let made = format!("{}{}", part.markup, sign(if *c == '!' { "!" } else { "′" }));
                    self.at += 1;
                    Part::of(made)
                }
                Some(Token::Sign('^')) => {
                    self.at += 1;
                    let minus = if self.takes('-') { sign("−") } else { String::new() };
                    let above = self.factor()?;
                    Part::of(format!("<msup>{}{}</msup>", base(), row(&(minus + &above.alone()))))
                }
                _ => break,
            };
        }
        // The operand belongs to the function: `log σ(x) / 2` is half of a logarithm.
        if function && self.begins_factor() {
            let operand = self.factor()?;
            return Some(Part::of(format!(
                "{}<mo>&#x2061;</mo><mspace width=\"0.15em\"/>{}",
                part.markup, operand.markup
            )));
        }
        Some(part)
    }

    fn primary(&mut self) -> Option<Part> {
        let token = self.next()?.clone();
        if matches!(&token, Token::Sign(c) if BRACKETS.iter().any(|(open, _)| open == c)) {
            return self.brackets();
        }
        self.at += 1;
        Some(Part::of(match token {
            Token::Name(text, _) => name(&text),
            Token::Number(text) => format!("<mn>{}</mn>", escape_text(&text)),
            Token::Dots => sign("…"),
            Token::Sign('√') => {
                let under = self.factor()?;
                format!("<msqrt>{}</msqrt>", under.alone())
            }
            // What is summed is the rest of the term.
            Token::Sign(c @ ('Σ' | '∫')) => {
                let mut head = sign(&if c == 'Σ' { '∑' } else { c }.to_string());
                let below = self.limits(|token| matches!(token, Token::Lowered(_)));
                let above = self.limits(|token| matches!(token, Token::Raised(_)));
                head = match (below, above) {
                    (Some(below), Some(above)) => format!("<msubsup>{head}{below}{above}</msubsup>"),
                    (Some(below), None) => format!("<msub>{head}{below}</msub>"),
                    (None, Some(above)) => format!("<msup>{head}{above}</msup>"),
                    (None, None) => head,
                };
                format!("<mrow>{head}{}</mrow>", self.term()?)
            }
            _ => return None,
        }))
    }

    /// The small characters that are next, if they are of this kind.
    fn limits(&mut self, is: impl Fn(&Token) -> bool) -> Option<String> {
        let token = self.next().filter(|token| is(token))?;
        let (Token::Lowered(text) | Token::Raised(text)) = token else { return None };
        let made = row(&small(text));
        self.at += 1;
        Some(made)
    }

    /// What is in brackets, with commas between its parts.
    fn brackets(&mut self) -> Option<Part> {
        let Some(Token::Sign(open)) = self.next().cloned() else { return None };
        let (_, close) = BRACKETS.iter().find(|(begin, _)| *begin == open)?;
        self.at += 1;
        self.open.push(*close);
        let mut inner = self.relation()?;
        let mut several = false;
        while self.takes(',') {
            several = true;
            inner += &sign(",");
            inner += &self.relation()?;
        }
        self.open.pop();
        if !self.takes(*close) {
            return None;
        }
        let fence = |c: char| format!("<mo stretchy=\"true\" fence=\"true\">{c}</mo>");
        let markup = format!("<mrow>{}{inner}{}</mrow>", fence(open), fence(*close));
        let bare = (open == '(' && !several).then_some(inner);
        Some(Part { markup, bare })
    }
}

/// Small characters as a row.
fn small(text: &str) -> String {
    let each = |c: char| match c {
        '+' | '−' => sign(&c.to_string()),
        c if c.is_ascii_digit() => format!("<mn>{c}</mn>"),
        c => name(&c.to_string()),
    };
    text.chars().map(each).collect()
}

/// Whether a text has something that only formulas have.
fn is_mathematical(text: &str) -> bool {
    let spaced = [" + ", " - ", " / ", " = ", " -= ", " += ", " < ", " > "];
    text.chars().any(|c| SIGNS.contains(c) || paired(RAISED, c).is_some() || paired(LOWERED, c).is_some())
        || spaced.iter().any(|sign| text.contains(sign))
        || (text.contains('/') && text.chars().any(|c| c.is_ascii_digit()))
}

/// The formula as MathML; `None` for what is code.
pub fn mathml(text: &str) -> Option<String> {
    if !is_mathematical(text) {
        return None;
    }
    let mut reader = Reader { tokens: tokens(text)?, at: 0, depth: 0, open: Vec::new() };
    let markup = reader.relation()?;
    let whole = reader.at == reader.tokens.len() && !markup.is_empty();
    whole.then(|| format!("<math><mrow>{markup}</mrow></math>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tags as brackets of their letters, to be read at a glance.
    fn outline(text: &str) -> String {
        let markup = mathml(text).unwrap_or_else(|| panic!("{text} is no formula"));
        let mut short = markup;
        for (tag, word) in [("mfrac", "F"), ("msup", "P"), ("msub", "B"), ("msqrt", "Q")] {
            short = short.replace(&format!("<{tag}>"), &format!("{word}{{")).replace(&format!("</{tag}>"), "}");
        }
        short = short.replace("<mspace width=\"0.15em\"/>", " ").replace("&#x2062;", "*").replace("&#x2061;", "@");
        let mut plain = String::new();
        let mut inside = false;
        for c in short.chars() {
            match c {
                '<' => inside = true,
                '>' => inside = false,
                c if !inside => plain.push(c),
                _ => {}
            }
        }
        plain
    }

    #[test]
    fn formulas_of_doc_comments_are_read() {
        for (text, expected) in [
            ("(eˣ - e⁻ˣ) / 2", "F{P{ex}−P{e−x}2}"),
            ("1 / (1 + e⁻ˣ)", "F{11+P{e−x}}"),
            ("e^(x - max) / Σ e^(x - max)", "F{P{ex−max}∑P{ex−max}}"),
            ("log(1 + eˣ)", "log@(1+P{ex})"),
            ("-log σ(beta a) / 2", "−F{log@ σ@(beta*a)2}"),
            ("x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))", "F{x2}*(1+tanh@(Q{F{2π}}*(x+0.044715*P{x3})))"),
            ("|x| + |y|", "|x|+|y|"),
            ("e^-|x|", "P{e−|x|}"),
            ("p -= lr · g", "p−=lr·g"),
            ("input · 2^other", "input·P{2other}"),
            ("a - b ⌊a/b⌋", "a−b*⌊F{ab}⌋"),
            ("w_t + weight_decay", "B{wt}+weight_decay"),
            ("∫₀ˣ e^(-t²) dt", "∫0xP{e−P{t2}}*dt"),
            ("max(0, margin - x)", "max@(0,margin−x)"),
            ("1e-7 + x", "1e-7+x"),
        ] {
            assert_eq!(outline(text), expected, "{text}");
        }
    }

    #[test]
    fn code_is_no_formula() {
        for text in
            ["dim", "[N, C, H, W]", "Option<f64>", "eps = {x}", "a::b", "x.shape()", "\"sum\"", "(a + b", "1 +", "f(x)"]
        {
            assert_eq!(mathml(text), None, "{text}");
        }
        let deep = format!("{}x + 1{}", "(".repeat(100), ")".repeat(100));
        assert_eq!(mathml(&deep), None);
        assert!(mathml("x < <script>").is_none());
        assert!(mathml("x < y").unwrap().contains("<mo>&lt;</mo>"));
    }
}
