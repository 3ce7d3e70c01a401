//! Signs that the kept rates of a device are too low: they were measured while something else used it, say.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use fulgurite_kernels::machine;
use fulgurite_runtime::Device;
use fulgurite_runtime::device::find_kind;
use fulgurite_runtime::kernels::cuda;
use fulgurite_runtime::program::{Ceiling, Profile, Source, Span};
use serde::Serialize;

/// Factors by which a symbol may exceed the measured rate of a copy: measured again, and reading only: a device turns
/// between reading and writing, and a host reads the lines that a copy writes, which are not counted.
const COPIES: [f64; 2] = [1.15, 1.6];
/// The same for operations a second of products.
const PRODUCTS: f64 = 1.15;
/// Shorter times say little.
const LEAST: Duration = Duration::from_micros(20);
/// Symbols that read all that they are given: fused lines do, while a kernel of its own may read a part of a cache.
const READ_ALL: [&str; 4] = ["region", "prims::matmul", "linear", "matmul"];
/// Symbols whose arithmetic is all to be done, while attention leaves out what is hidden.
const COMPUTE_ALL: [&str; 3] = ["prims::matmul", "linear", "matmul"];

/// A rate that is kept, and something that was faster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TooLow {
    /// The device.
    pub device: String,
    /// Which rate: `copy`, in bytes a second, or `products`, in operations a second.
    pub rate: &'static str,
    /// The recorded rate.
    pub kept: f64,
    /// What was measured now.
    pub measured: f64,
    /// The symbol or copy that was measured.
    pub by: String,
}

impl TooLow {
    /// `bytes` that `by` moved in `seconds` on `device`, where a copy is kept as `kept` bytes a second, if that is too
    /// low. Caches may have held what was read, and may hold what was written.
    pub fn by_bytes(device: Device, kept: f64, bytes: f64, seconds: f64, by: &str) -> Option<TooLow> {
        let moved = bytes - 2.0 * in_caches(device);
        let limit = COPIES[usize::from(device.is_cpu())];
        TooLow::found((device, "copy"), kept, limit, moved / seconds, by)
    }

    /// `flops` that `by` computed in `seconds` on `device`, where products are kept as `kept` operations a second, if
    /// that is too low.
    pub fn by_flops(device: Device, kept: f64, flops: f64, seconds: f64, by: &str) -> Option<TooLow> {
        TooLow::found((device, "products"), kept, PRODUCTS, flops / seconds, by)
    }

    fn found((device, rate): (Device, &'static str), kept: f64, limit: f64, now: f64, by: &str) -> Option<TooLow> {
        let low = now.is_finite() && now > kept * limit;
        low.then(|| TooLow { device: device.to_string(), rate, kept, measured: now, by: by.to_owned() })
    }

    /// The rates of `device` that symbols of a profile exceed, each with the fastest symbol. Ceilings that were not
    /// measured are none of its record.
    pub fn of_profile(profile: &Profile, device: Device) -> Vec<TooLow> {
        let measured = |ceiling: Option<Ceiling>| {
            ceiling.filter(|ceiling| ceiling.source == Source::Measured).map(|ceiling| ceiling.per_second)
        };
        let spans = |names: &'static [&str]| {
            profile.spans.iter().filter(move |span| span.time >= LEAST && names.contains(&&*span.symbol))
        };
        let name = |span: &Span| format!("{} by {}", span.symbol, span.executor);
        let seconds = |span: &Span| span.time.as_secs_f64();
        let fastest = |all: &mut dyn Iterator<Item = TooLow>| all.max_by(|a, b| a.measured.total_cmp(&b.measured));
        let copy = measured(profile.ceilings.bytes).and_then(|kept| {
            let of = |span: &Span| TooLow::by_bytes(device, kept, span.bytes as f64, seconds(span), &name(span));
            fastest(&mut spans(&READ_ALL).filter_map(of))
        });
        let products = measured(profile.ceilings.flops).and_then(|kept| {
            let of = |span: &Span| TooLow::by_flops(device, kept, span.flops? as f64, seconds(span), &name(span));
            fastest(&mut spans(&COMPUTE_ALL).filter_map(of))
        });
        copy.into_iter().chain(products).collect()
    }
}

impl fmt::Display for TooLow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooLow { device, rate, kept, measured, by } = self;
        let (unit, size, does) = match *rate {
            "copy" => ("GB/s", 1e9, "moves"),
            _ => ("TFLOP/s", 1e12, "computes"),
        };
        write!(
            f,
            "the kept rate of {rate} on {device} is too low, so that floors and shares are too high: {by} {does} {:.4} \
             {unit}, {:.4} {unit} is kept; measure again while nothing else runs: `fulgurite profile gelu --device \
             {device} --measure`",
            measured / size,
            kept / size,
        )
    }
}

/// Bytes that the caches of a device hold at most.
fn in_caches(device: Device) -> f64 {
    let bytes = match device.kind() {
        kind if Device::is_host(kind) => machine::last_level_cache() * last_level_caches(),
        "cuda" => cuda::device(device.index() as usize).map_or(usize::MAX, |device| device.l2_bytes),
        kind => find_kind(kind).map_or(usize::MAX, |kind| kind.beyond_caches()),
    };
    bytes as f64
}

/// How many last-level caches the host has: processors that share one name the same processors.
fn last_level_caches() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    let shared = |processor: usize| {
        std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{processor}/cache/index3/shared_cpu_list")).ok()
    };
    (0..processors).filter_map(shared).collect::<HashSet<String>>().len().max(1)
}

#[cfg(test)]
mod tests {
    use fulgurite_runtime::device::StreamKind;
    use fulgurite_runtime::program::Ceilings;

    use super::*;

    const CPU: Device = Device::CPU;

    fn span(symbol: &str, millis: u64, bytes: u64, flops: Option<u64>) -> Span {
        let text = String::new;
        Span {
            symbol: symbol.into(),
            executor: "cpu".into(),
            result: text(),
            line: text(),
            stream: StreamKind::Compute,
            start: Duration::ZERO,
            time: Duration::from_millis(millis),
            bytes,
            flops,
        }
    }

    fn profile(source: Source, spans: Vec<Span>) -> Profile {
        let ceiling = |per_second| Some(Ceiling { per_second, source });
        Profile {
            function: "f".into(),
            target: "cpu".into(),
            spans,
            timeline: Vec::new(),
            ceilings: Ceilings { bytes: ceiling(1e10), flops: ceiling(1e11) },
        }
    }

    #[test]
    fn what_is_faster_than_a_kept_rate_by_more_than_the_noise_is_found() {
        let flops = |flops| TooLow::by_flops(CPU, 1e11, flops, 1.0, "matmul").map(|low| low.measured);
        assert_eq!([flops(1e11), flops(1.14e11), flops(1.3e11)], [None, None, Some(1.3e11)]);
        // What caches may hold does not count, nor do lines that a host reads before it writes them.
        let beside = 2.0 * in_caches(CPU);
        let bytes = |bytes: f64| TooLow::by_bytes(CPU, 1e10, bytes, 1.0, "region").is_some();
        assert_eq!([bytes(1.5e10 + beside), bytes(1.7e10 + beside)], [false, true]);
        assert!(TooLow::by_bytes(CPU, 1.0, beside, 1e-9, "region").is_none());
        assert!(TooLow::by_flops(CPU, 1e11, 1e12, 0.0, "matmul").is_none(), "no time was measured");
    }

    #[test]
    fn symbols_of_a_profile_prove_it() {
        let beside = 2 * in_caches(CPU) as u64;
        let spans = vec![
            // Twice the kept rate of copies, three times that, and what may have read a part alone.
            span("region", 1000, 20_000_000_000 + beside, None),
            span("region", 1000, 30_000_000_000 + beside, None),
            span("cached_attention", 1000, 90_000_000_000 + beside, Some(900_000_000_000)),
            span("prims::matmul", 1000, 1, Some(150_000_000_000)),
            span("prims::matmul", 0, 1, Some(1)),
        ];
        let found = TooLow::of_profile(&profile(Source::Measured, spans.clone()), CPU);
        let told: Vec<(&str, f64)> = found.iter().map(|low| (low.rate, (low.measured / 1e10).round())).collect();
        assert_eq!(told, [("copy", 3.0), ("products", 15.0)]);
        let text = found[1].to_string();
        assert!(
            text.contains("products on cpu is too low") && text.contains("prims::matmul by cpu computes"),
            "{text}"
        );
        assert!(text.contains("0.1500 TFLOP/s, 0.1000 TFLOP/s is kept; measure again"), "{text}");
        assert!(text.contains("`fulgurite profile gelu --device cpu --measure`"), "{text}");
        assert!(TooLow::of_profile(&profile(Source::DataSheet, spans), CPU).is_empty());
    }
}
