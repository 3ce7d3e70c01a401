//! An operator, an executor and a host kernel, declared in a crate that depends on Fulgurite alone.
//!
//! [`mod@squareplus`] is written like any operator of the library. [`handmade`] is an executor with one kernel of its
//! own, which takes `squareplus` ahead of the host's default executor wherever this crate is linked, forward and
//! backward. [`forward_only`] must be named, or be measured as the fastest: its kernel for a GPU has tuned
//! parameters. What proves it all is `tests/generated.rs`. [`training`] has a model with it; the crate's command shows
//! the traces of its step.

pub mod training;

fulgurite::operator_files! {
    forward_only,
    handmade,
    squareplus,
}
