//! What a call takes at least: its bytes and its arithmetic at the device's rates.

use std::time::Duration;

use super::call::Purpose;
use super::entry::DECOMPOSED;
use super::ranking::Question;
use crate::cost::{bytes_of, flops};
use crate::device::{Rates, find_kind};
use crate::meta::Device;
use crate::trace::Trace;

/// Rates of a fast host: what they say takes long does so on any.
const HOST: Rates = Rates { bytes_per_second: 1e11, flops_per_second: 2e12 };
/// A gradient reads and writes about twice what the call does.
const WITH_GRADIENT: f64 = 3.0;

/// The part of its rate of products that a device may reach where a call is opened to its definition: its kernels for
/// all operators have no tensor cores.
const OPENED: f64 = 1.0 / 16.0;

/// What a call takes at least by the first of its candidates, which are `names`; `None` if the kind does not know its
/// devices' rates. `trace` is the call's.
pub(super) fn floor(question: &Question<'_>, names: &[&str], trace: &Trace) -> Option<Duration> {
    let target = question.target;
    let opened = names.first() == Some(&DECOMPOSED) && !Device::is_host(target.kind());
    let part = if opened { OPENED } else { 1.0 };
    let rates = match Device::is_host(target.kind()) {
        true => HOST,
        false => find_kind(target.kind()).ok()?.rates(target.architecture())?,
    };
    let block = &trace.block;
    let arithmetic: f64 = block.symbols.iter().map(|symbol| flops(block, symbol) as f64).sum();
    let seconds = (bytes_of(block) as f64 / rates.bytes_per_second).max(arithmetic / (rates.flops_per_second * part));
    let times = if question.purpose == Purpose::Differentiated { WITH_GRADIENT } else { 1.0 };
    Some(Duration::from_secs_f64(seconds * times))
}
