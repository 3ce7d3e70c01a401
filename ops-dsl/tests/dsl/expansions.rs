//! What declarations expand to. The inputs are the files in `declarations/`; review what changes in `snapshots/`.

use fulgurite_ops_dsl as dsl;
use proc_macro2::{TokenStream, TokenTree};

/// Expands the declaration in a file as its macro would, as formatted text.
fn expand(source: &str) -> String {
    let mut tokens = source.parse::<TokenStream>().expect("the file is Rust").into_iter().peekable();
    let mut before = TokenStream::new();
    while let Some(token) = tokens.next() {
        let hash = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '#');
        let Some(TokenTree::Group(group)) = tokens.peek() else {
            before.extend([token]);
            continue;
        };
        let inside: Vec<TokenTree> = group.stream().into_iter().collect();
        let arguments = match inside.get(1) {
            Some(TokenTree::Group(arguments)) => arguments.stream(),
            _ => TokenStream::new(),
        };
        let attribute = inside.first().filter(|_| hash).map(ToString::to_string);
        let expand: fn(TokenStream, TokenStream) -> TokenStream = match attribute.as_deref() {
            Some("operator") => dsl::operator,
            Some("implementation") => dsl::implementation,
            Some("executor") => dsl::executor,
            Some("rewrite") => dsl::rewrite,
            Some("derive") => |_, item| dsl::tree(item),
            // `operators! { ... }`
            None if before.to_string().starts_with("operators") => |_, item| dsl::operators(item),
            _ => {
                before.extend([token]);
                continue;
            }
        };
        let family = attribute.is_none();
        let item = match tokens.next() {
            Some(TokenTree::Group(group)) if family => group.stream(),
            _ => before.into_iter().chain(tokens).collect(),
        };
        let file = syn::parse2(expand(arguments, item)).expect("the expansion is Rust");
        return prettyplease::unparse(&file);
    }
    panic!("the file holds no declaration");
}

macro_rules! expansions {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            let source = include_str!(concat!("declarations/", stringify!($name), ".rs"));
            let expansion = expand(source);
            let file = concat!("declarations/", stringify!($name), ".rs");
            insta::with_settings!({ description => file, omit_expression => true, prepend_module_to_snapshot => false }, {
                insta::assert_snapshot!(stringify!($name), expansion);
            });
        }
    )*};
}

expansions! {
    prim args composite symbol comparison implementation precision executor executor_precisions rewrite executor_rewrite
    family tree wrong tuned devices
}
