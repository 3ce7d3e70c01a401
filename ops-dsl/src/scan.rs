//! What bodies mention, found by looking at their tokens: bodies are never parsed.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};

/// Calls `f` with every group of tokens, as a list, outermost first.
fn each_group(tokens: TokenStream, f: &mut impl FnMut(&[TokenTree])) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    f(&tokens);
    for token in &tokens {
        if let TokenTree::Group(group) = token {
            each_group(group.stream(), f);
        }
    }
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn parenthesized(token: Option<&TokenTree>) -> Option<&Group> {
    match token {
        Some(TokenTree::Group(group)) if group.delimiter() != Delimiter::None => Some(group),
        _ => None,
    }
}

/// The codes of `require!(condition, Code, ...)`, and those that are named as `Code::X`, in order, each once.
pub fn required_codes(tokens: TokenStream) -> Vec<Ident> {
    let mut codes: Vec<Ident> = Vec::new();
    each_group(tokens, &mut |tokens| {
        for (i, token) in tokens.iter().enumerate() {
            let TokenTree::Ident(name) = token else { continue };
            if let (true, Some(TokenTree::Ident(code))) = (name == "Code", tokens.get(i + 3)) {
                let path = is_punct(tokens.get(i + 1), ':') && is_punct(tokens.get(i + 2), ':');
                codes.extend((path && code.to_string().starts_with(char::is_uppercase)).then(|| code.clone()));
            }
            if name != "require" || !is_punct(tokens.get(i + 1), '!') {
                continue;
            }
            let Some(group) = parenthesized(tokens.get(i + 2)) else { continue };
            let inside: Vec<TokenTree> = group.stream().into_iter().collect();
            let code = inside.windows(3).find_map(|three| match three {
                [TokenTree::Punct(before), TokenTree::Ident(code), TokenTree::Punct(after)]
                    if before.as_char() == ',' && after.as_char() == ',' =>
                {
                    Some(code)
                }
                _ => None,
            });
            codes.extend(code.cloned());
        }
    });
    let mut unique: Vec<Ident> = Vec::new();
    for code in codes {
        if !unique.contains(&code) {
            unique.push(code);
        }
    }
    unique
}

/// The codes of `e.case(Code, ...)`: identifiers in camel case that come first (`Code::X` counts as `X`).
pub fn sampled_codes(tokens: TokenStream) -> Vec<Ident> {
    let mut codes = Vec::new();
    each_group(tokens, &mut |tokens| {
        for (i, token) in tokens.iter().enumerate() {
            if !matches!(token, TokenTree::Ident(name) if name == "case") {
                continue;
            }
            let Some(group) = parenthesized(tokens.get(i + 1)) else { continue };
            let first = group.stream().into_iter().take_while(|token| !is_punct(Some(token), ','));
            if let Some(TokenTree::Ident(code)) = first.last()
                && code.to_string().starts_with(char::is_uppercase)
                && !codes.contains(&code)
            {
                codes.push(code);
            }
        }
    });
    codes
}

/// Whether a reference or a lifetime occurs.
pub fn has_reference(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Punct(punct) => matches!(punct.as_char(), '&' | '\''),
        TokenTree::Group(group) => has_reference(group.stream()),
        _ => false,
    })
}

/// Whether `name` occurs, also as `{name}` inside of a string.
pub fn mentions(tokens: TokenStream, name: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == name,
        TokenTree::Group(group) => mentions(group.stream(), name),
        TokenTree::Literal(literal) => {
            let text = literal.to_string();
            text.contains(&format!("{{{name}}}")) || text.contains(&format!("{{{name}:"))
        }
        TokenTree::Punct(_) => false,
    })
}

/// A pullback: `move |parameters| body`, the last part of a tuple.
#[derive(Debug)]
pub struct Pullback {
    /// Names of its parameters, with those that are `_`.
    pub cotangents: Vec<Ident>,
    /// Its body.
    pub body: TokenStream,
}

/// The closures that a `grad` rule returns: `(..., move |cotangents| body)`.
pub fn pullbacks(tokens: TokenStream) -> Vec<Pullback> {
    let mut found = Vec::new();
    look_for_pullbacks(tokens, false, &mut found);
    found
}

fn look_for_pullbacks(tokens: TokenStream, tuple: bool, found: &mut Vec<Pullback>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    if tuple {
        let start = tokens.iter().rposition(is_closure).filter(|i| *i > 0 && is_punct(tokens.get(i - 1), ','));
        if let Some(pullback) = start.and_then(|start| closure(&tokens[start..])) {
            found.push(pullback);
            return;
        }
    }
    for (i, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        // A group in parentheses is a tuple unless it is the arguments of a call.
        let called = match i.checked_sub(1).map(|before| &tokens[before]) {
            Some(TokenTree::Ident(word)) => word != "return" && word != "else" && word != "in" && word != "break",
            Some(TokenTree::Punct(punct)) => punct.as_char() == '!',
            Some(TokenTree::Group(_)) | None => false,
            Some(TokenTree::Literal(_)) => false,
        };
        look_for_pullbacks(group.stream(), group.delimiter() == Delimiter::Parenthesis && !called, found);
    }
}

fn is_closure(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Ident(word) if word == "move")
}

/// Reads `move |a, (b, c): T| body`.
fn closure(tokens: &[TokenTree]) -> Option<Pullback> {
    if !is_punct(tokens.get(1), '|') {
        return None;
    }
    let close = 2 + tokens[2..].iter().position(|token| is_punct(Some(token), '|'))?;
    let mut cotangents = Vec::new();
    names_of_pattern(&tokens[2..close], &mut cotangents);
    Some(Pullback { cotangents, body: tokens[close + 1..].iter().cloned().collect() })
}

fn names_of_pattern(tokens: &[TokenTree], names: &mut Vec<Ident>) {
    let mut in_type = false;
    for token in tokens {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ':' => in_type = true,
            TokenTree::Punct(punct) if punct.as_char() == ',' => in_type = false,
            TokenTree::Ident(word) if !in_type && word != "mut" && word != "ref" => names.push(word.clone()),
            TokenTree::Group(group) if !in_type => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                names_of_pattern(&inner, names);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    fn words(idents: &[Ident]) -> Vec<String> {
        idents.iter().map(Ident::to_string).collect()
    }

    #[test]
    fn codes() {
        let tokens = quote! {
            require!(a.f::<usize>(b, c), Rank, "text {}", Other, 3);
            if x { require!(a, Dim, "text") }
            require!(a, Dim, "again");
            return Err(Failure::new(Code::Index.name(), "text"));
        };
        assert_eq!(words(&required_codes(tokens)), ["Rank", "Dim", "Index"]);
        let tokens = quote! {
            e.case(Rank, with(3), "text");
            for code in all { e.case(code, with(3), "text"); }
            e.case(Code::Dim, with(3), "text");
        };
        assert_eq!(words(&sampled_codes(tokens)), ["Rank", "Dim"]);
    }

    #[test]
    fn closures() {
        let found = pullbacks(quote! {
            let y = f(x, move |z| z);
            (y, move |d_out| Grads { input: d_out * y })
        });
        assert_eq!(found.len(), 1);
        assert_eq!(words(&found[0].cotangents), ["d_out"]);
        assert!(mentions(found[0].body.clone(), "d_out"));

        let found = pullbacks(quote! {
            if cond { return ((a, b), move |(d_a, _): (Tensor, Option<Tensor>)| { Grads { x: d_a } }); }
            (result, move |d: Tensor| Grads { x: d.map(|v| (1, v)) })
        });
        assert_eq!(found.len(), 2);
        assert_eq!(words(&found[0].cotangents), ["d_a", "_"]);
        assert_eq!(words(&found[1].cotangents), ["d"]);
    }
}
