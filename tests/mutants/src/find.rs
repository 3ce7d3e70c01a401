//! Finds mutants: places of a source where one thing could be another.

use std::collections::BTreeSet;
use std::ops::Range;

use proc_macro2::{TokenStream, TokenTree};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprCall, ExprMethodCall, FieldValue, ItemFn, Lit, Macro, Token, UnOp};

use crate::reach::{ESTIMATES, FAMILY_RULES, NOT_CHANGED, holds_helpers, is_helper, of_tests};
use crate::table::{Table, readable};

/// One change of a source.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// Its number in the build; 0 is no mutant.
    pub id: usize,
    /// The file, from the repository's root.
    pub file: String,
    pub line: usize,
    /// The function it is in, after the modules around that.
    pub function: String,
    /// Its number among those of this function that change the same text in the same way, from 1.
    pub ordinal: usize,
    /// What kind of change.
    pub kind: &'static str,
    /// Bytes of the expression that is changed.
    pub range: Range<usize>,
    pub original: String,
    pub replacement: String,
}

impl Mutant {
    /// What `equivalent.txt` calls it: it stays the same when other lines of the file change, and fits no other place.
    pub fn key(&self) -> String {
        let Mutant { file, function, ordinal, original, replacement, .. } = self;
        format!("{file} {function} #{ordinal} | {original} | {replacement}")
    }
}

/// Where, what, and what it became.
impl std::fmt::Display for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Mutant { file, line, function, ordinal, kind, original, replacement, .. } = self;
        write!(f, "{file}:{line} {function} #{ordinal} | {kind} | {original} | {replacement}")
    }
}

/// Functions of traced code and of scalar expressions, and what each could be mistaken for.
const EXCHANGED: [(&str, &str); 28] = [
    ("add", "sub"),
    ("sub", "add"),
    ("mul", "div"),
    ("div", "mul"),
    ("maximum", "minimum"),
    ("minimum", "maximum"),
    ("amax", "amin"),
    ("amin", "amax"),
    ("sum", "amax"),
    ("lt", "le"),
    ("le", "lt"),
    ("gt", "ge"),
    ("ge", "gt"),
    ("eq", "ne"),
    ("ne", "eq"),
    ("exp", "sin"),
    ("log", "sqrt"),
    ("sqrt", "exp"),
    ("rsqrt", "reciprocal"),
    ("reciprocal", "rsqrt"),
    ("sin", "cos"),
    ("cos", "sin"),
    ("tanh", "sin"),
    ("erf", "tanh"),
    ("floor", "ceil"),
    ("ceil", "floor"),
    ("max", "min"),
    ("min", "max"),
];

/// Functions whose two last arguments could be exchanged.
const ORDERED: [&str; 9] = ["sub", "div", "pow", "lt", "le", "gt", "ge", "select", "matmul"];

/// Macros whose first argument is a condition, without which a wrong call is accepted.
const CONDITIONS: [&str; 2] = ["require", "refuse_unless"];

/// The mutants of a source, without numbers. Rules of family macros (`scalar |x| ...;`, `grad |...| ...;`) are looked
/// into, and so are tables of operators: what is changed in a template is changed for all rows. Helpers of references
/// are what the rules are compared with: those in `reached`, which rules call, have mutants.
pub fn find(file: &str, source: &str, reached: &BTreeSet<String>) -> Vec<Mutant> {
    let Ok(parsed) = syn::parse_file(&readable(source)) else { return Vec::new() };
    let all_help = holds_helpers(source);
    let of_tests = of_tests(&parsed);
    let mut finder = Finder { file, source, reached, all_help, of_tests, function: String::new(), found: Vec::new() };
    finder.visit_file(&parsed);
    finder.found
}

struct Finder<'a> {
    file: &'a str,
    source: &'a str,
    /// Helpers of references that rules call.
    reached: &'a BTreeSet<String>,
    /// Whether the file holds such helpers alone.
    all_help: bool,
    /// Functions that only references, samples and errors call.
    of_tests: BTreeSet<String>,
    function: String,
    found: Vec<Mutant>,
}

impl Finder<'_> {
    /// Looks into an item whose name is part of the path of what is found there.
    fn within(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        let outer = self.function.clone();
        self.function = if outer.is_empty() { name } else { format!("{outer}::{name}") };
        visit(self);
        self.function = outer;
    }

    /// Whether the documentation says that it helps references or samples alone.
    fn is_helper(&self, attributes: &[syn::Attribute]) -> bool {
        attributes.iter().any(|attribute| is_helper(self.text(attribute)))
    }

    fn text(&self, node: &impl Spanned) -> &str {
        &self.source[node.span().byte_range()]
    }

    fn add(&mut self, kind: &'static str, node: &impl Spanned, replacement: String) {
        let range = node.span().byte_range();
        let original = self.source[range.clone()].to_owned();
        // A comment would swallow what follows it on the line that the replacement is put into.
        if range.is_empty() || original.contains("//") || replacement.contains("//") {
            return;
        }
        let line = node.span().start().line;
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (original, replacement) = (flat(&original), flat(&replacement));
        // Of a cell alone an error of types would be one of the cell, which no mutant is to blame for.
        let is_cell =
            |text: &str| text.starts_with('$') && !text[1..].contains(|c: char| !c.is_alphanumeric() && c != '_');
        if is_cell(&replacement) {
            return;
        }
        let (file, function) = (self.file.to_owned(), self.function.clone());
        self.found.push(Mutant { id: 0, file, line, function, ordinal: 0, kind, range, original, replacement });
    }

    /// The opposite of a condition that binds nothing.
    fn condition(&mut self, condition: &Expr) {
        let text = self.text(condition).to_owned();
        if !text.contains("let ") {
            self.add("condition", condition, format!("!({text})"));
        }
    }

    /// The call of another function, or with other arguments.
    fn call(&mut self, node: &Expr, name: &str, callee: &str, arguments: Vec<String>) {
        let list = |arguments: &[String]| arguments.join(", ");
        if let Some((_, other)) = EXCHANGED.iter().find(|(own, _)| *own == name) {
            let changed = format!("{}{other}", &callee[..callee.len() - name.len()]);
            self.add("function", node, format!("{changed}({})", list(&arguments)));
        }
        if let [first, second] = &arguments[..]
            && ["add", "sub", "mul", "div"].contains(&name)
        {
            self.add("dropped term", node, first.clone());
            if (name == "add" || name == "mul") && first != second {
                self.add("dropped term", node, second.clone());
            }
        }
        if ORDERED.contains(&name) && arguments.len() >= 2 {
            let mut swapped = arguments;
            let last = swapped.len() - 1;
            // Of equal arguments the call is the same.
            if swapped[last] != swapped[last - 1] {
                swapped.swap(last, last - 1);
                self.add("swapped arguments", node, format!("{callee}({})", list(&swapped)));
            }
        }
    }

    /// Expressions in the tokens of a macro, separated by commas.
    fn expressions(&mut self, tokens: TokenStream) -> Vec<Expr> {
        let list = Punctuated::<Expr, Token![,]>::parse_terminated;
        list.parse2(tokens).map(|list| list.into_iter().collect()).unwrap_or_default()
    }

    /// The template and the cells of `operators! { ... }`. A cell of gradients could have the other sign.
    fn table(&mut self, tokens: TokenStream) {
        let Some(table) = Table::read(tokens) else { return };
        self.of_tests.extend(of_tests(&table.template));
        self.visit_file(&table.template);
        for row in &table.rows {
            for cell in row.cells.iter().filter(|cell| cell.column != "name") {
                self.within(format!("{}::{}", row.name, cell.column), |finder| {
                    if cell.of_grad && !matches!(cell.value, Expr::Closure(_) | Expr::Lit(_)) {
                        let value = finder.text(&cell.value).to_owned();
                        finder.add("sign", &cell.value, format!("crate::prims::neg({value})"));
                    }
                    finder.visit_expr(&cell.value);
                });
            }
        }
    }

    /// `scalar |x| EXPRESSION;` and `grad |a, b| EXPRESSION;` in the invocation of a family's macro, of the operator
    /// that is named before: `name, torch = ...` or `name(CLASS), torch = ...`.
    fn family(&mut self, tokens: TokenStream) {
        let mut operator = String::new();
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < trees.len() {
            let word = trees[at].to_string();
            let class = matches!(trees.get(at + 1), Some(TokenTree::Group(_)));
            let torch = trees.get(at + if class { 3 } else { 2 });
            if matches!(trees[at], TokenTree::Ident(_)) && torch.is_some_and(|torch| torch.to_string() == "torch") {
                operator.clone_from(&word);
            }
            let rule = FAMILY_RULES.contains(&word.as_str()) && trees.get(at + 1).is_some_and(|t| t.to_string() == "|");
            if !rule {
                at += 1;
                continue;
            }
            let close = (at + 2..trees.len()).find(|i| trees[*i].to_string() == "|").unwrap_or(trees.len() - 1);
            let end = (close..trees.len()).find(|i| trees[*i].to_string() == ";").unwrap_or(trees.len());
            let body: TokenStream = trees[close + 1..end].iter().cloned().collect();
            if let Ok(body) = syn::parse2::<Expr>(body) {
                self.within(format!("{operator}::{word}"), |finder| finder.visit_expr(&body));
            }
            at = end;
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, node: &'ast ItemFn) {
        let name = self.text(&node.sig.ident).to_owned();
        let helps = (self.all_help || self.is_helper(&node.attrs)) && !self.reached.contains(&name);
        let kept = NOT_CHANGED.contains(&name.as_str()) || ESTIMATES.contains(&name.as_str());
        if kept || self.of_tests.contains(&name) || helps || node.sig.constness.is_some() {
            return;
        }
        self.within(name, |finder| finder.visit_block(&node.block));
    }

    fn visit_item_mod(&mut self, node: &'ast syn::ItemMod) {
        let test = node.attrs.iter().any(|attribute| self.text(attribute).contains("cfg(test)"));
        if !test {
            let name = self.text(&node.ident).to_owned();
            self.within(name, |finder| visit::visit_item_mod(finder, node));
        }
    }

    fn visit_item_impl(&mut self, node: &'ast syn::ItemImpl) {
        if self.is_helper(&node.attrs) {
            return;
        }
        let name = self.text(&node.self_ty).to_owned();
        self.within(name, |finder| visit::visit_item_impl(finder, node));
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        if node.sig.constness.is_none() {
            self.within(node.sig.ident.to_string(), |finder| finder.visit_block(&node.block));
        }
    }

    // What is known when the program is compiled has no switch.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    /// Of a pattern the condition behind it alone.
    fn visit_pat(&mut self, node: &'ast syn::Pat) {
        if let syn::Pat::Guard(guarded) = node {
            self.condition(&guarded.guard);
            self.visit_expr(&guarded.guard);
        }
    }
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_expr_repeat(&mut self, node: &'ast syn::ExprRepeat) {
        self.visit_expr(&node.expr);
    }

    fn visit_expr(&mut self, node: &'ast Expr) {
        match node {
            Expr::Binary(binary) => {
                let (left, right) = (self.text(&binary.left).to_owned(), self.text(&binary.right).to_owned());
                let others: &[&str] = match binary.op {
                    BinOp::Add(_) => &["-"],
                    BinOp::Sub(_) => &["+"],
                    BinOp::Mul(_) => &["/", "+"],
                    BinOp::Div(_) => &["*"],
                    BinOp::Rem(_) => &["/"],
                    BinOp::Lt(_) => &["<=", ">"],
                    BinOp::Le(_) => &["<", ">="],
                    BinOp::Gt(_) => &[">=", "<"],
                    BinOp::Ge(_) => &[">", "<="],
                    BinOp::Eq(_) => &["!="],
                    BinOp::Ne(_) => &["=="],
                    BinOp::And(_) => &["||"],
                    BinOp::Or(_) => &["&&"],
                    _ => &[],
                };
                for other in others {
                    let kind = if "<>=!".contains(&other[..1]) { "bound" } else { "operator" };
                    self.add(kind, node, format!("({left}) {other} ({right})"));
                }
            }
            Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_) | UnOp::Not(_)) => {
                let inner = self.text(&unary.expr).to_owned();
                let kind = if matches!(unary.op, UnOp::Neg(_)) { "sign" } else { "condition" };
                self.add(kind, node, inner);
            }
            Expr::Lit(literal) => {
                let text = self.text(node).to_owned();
                match &literal.lit {
                    Lit::Int(_) => self.add("constant", node, format!("({text} + 1)")),
                    Lit::Float(_) => self.add("constant", node, format!("({text} * 1.25 + 0.25)")),
                    Lit::Bool(value) => self.add("constant", node, (!value.value).to_string()),
                    _ => {}
                }
            }
            Expr::If(conditional) => self.condition(&conditional.cond),
            _ => {}
        }
        visit::visit_expr(self, node);
    }

    fn visit_expr_call(&mut self, node: &'ast ExprCall) {
        if let Expr::Path(path) = &*node.func
            && let Some(last) = path.path.segments.last()
        {
            let callee = self.text(path).to_owned();
            let arguments = node.args.iter().map(|argument| self.text(argument).to_owned()).collect();
            self.call(&Expr::Call(node.clone()), &last.ident.to_string(), &callee, arguments);
        }
        visit::visit_expr_call(self, node);
    }

    fn visit_expr_method_call(&mut self, node: &'ast ExprMethodCall) {
        let name = node.method.to_string();
        if let Some((_, other)) = EXCHANGED.iter().find(|(own, _)| *own == name) {
            let receiver = self.text(&node.receiver).to_owned();
            let arguments: Vec<&str> = node.args.iter().map(|argument| self.text(argument)).collect();
            let changed = format!("{receiver}.{other}({})", arguments.join(", "));
            self.add("function", node, changed);
        }
        visit::visit_expr_method_call(self, node);
    }

    fn visit_field_value(&mut self, node: &'ast FieldValue) {
        // A cotangent of the other sign.
        let gradient = self.function.rsplit("::").next().is_some_and(|name| name.contains("grad"));
        if gradient && node.colon_token.is_some() {
            let value = self.text(&node.expr).to_owned();
            self.add("sign", &node.expr, format!("crate::prims::neg({value})"));
        }
        visit::visit_field_value(self, node);
    }

    fn visit_macro(&mut self, node: &'ast Macro) {
        let name = node.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        match name.as_str() {
            name if CONDITIONS.contains(&name) => {
                let arguments = self.expressions(node.tokens.clone());
                if let Some(condition) = arguments.first() {
                    let text = self.text(condition).to_owned();
                    self.add("dropped condition", condition, format!("true || ({text})"));
                    self.visit_expr(condition);
                }
            }
            "vec" => {
                for expression in self.expressions(node.tokens.clone()) {
                    self.visit_expr(&expression);
                }
            }
            // Outside of functions a macro declares a family of operators.
            "operators" if self.function.is_empty() => self.table(node.tokens.clone()),
            _ if self.function.is_empty() => self.family(node.tokens.clone()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
