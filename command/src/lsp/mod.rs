//! `lsp`: a language server for the text of traces, over the standard streams.
//!
//! `message` reads and writes messages, `lines` converts positions, `document` is what is known of an open text,
//! `faults`, `names`, `hover`, `outline` and `completion` answer one kind of question each, `server` dispatches them.
//!
//! The protocol is read here and not by a crate: `lsp-server` reads no further after the first message that is no JSON,
//! where the protocol has an error for it, and `lsp-types` is unmaintained: its users keep copies of their own.

mod completion;
pub(super) mod document;
mod faults;
mod hover;
pub(super) mod lines;
mod message;
mod names;
mod outline;
mod server;

use std::io::{BufReader, stdin, stdout};
use std::process::ExitCode;

use clap::Args;

use super::outcome::{Failed, Outcome};
use server::serve;

/// Arguments of `lsp`.
#[derive(Args)]
#[command(after_help = "\
Editors start it; it speaks the Language Server Protocol over standard input and output. It answers for the text of
traces (.trace) and for snapshots of them (.snap): definitions, references, types, memory, refusals, faults.

Example, for Neovim:
  vim.lsp.start({ name = 'fulgurite', cmd = { 'fulgurite', 'lsp' } })")]
pub struct Arguments {
    /// Accepted and ignored: some editors pass it, and standard streams are all that there is.
    #[arg(long, hide = true)]
    stdio: bool,
}

/// Serves one editor until it says `exit`, or closes the connection. Fails if it does so without `shutdown`.
pub fn run(_: &Arguments) -> Outcome {
    match serve(BufReader::new(stdin()), &mut stdout().lock()) {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Err(Failed("the connection ended without a request for 'shutdown'".into())),
        Err(error) => Err(Failed(format!("standard output: {error}"))),
    }
}
