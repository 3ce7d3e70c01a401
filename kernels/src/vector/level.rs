//! Which instruction set the machine has, and functions compiled once for each.

use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set that loops are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Level {
    /// What every machine of the architecture has.
    Baseline = 1,
    /// AVX2 and FMA.
    Avx2 = 2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512 = 3,
}

static LEVEL: AtomicU8 = AtomicU8::new(0);

/// The best level of this machine, asked once.
#[inline]
pub(crate) fn level() -> Level {
    match LEVEL.load(Ordering::Relaxed) {
        3 => Level::Avx512,
        2 => Level::Avx2,
        1 => Level::Baseline,
        _ => detect(),
    }
}

#[cold]
fn detect() -> Level {
    let level = best();
    LEVEL.store(level as u8, Ordering::Relaxed);
    level
}

#[cfg(target_arch = "x86_64")]
fn best() -> Level {
    if !(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")) {
        return Level::Baseline;
    }
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    if avx512 { Level::Avx512 } else { Level::Avx2 }
}

#[cfg(not(target_arch = "x86_64"))]
fn best() -> Level {
    Level::Baseline
}

/// `a·b + c`, fused where the instruction set has it (a call of a library function would cost fifty times as much).
#[inline(always)]
pub(crate) fn multiply_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// Defines a function whose body is compiled for every [`Level`]; the body sees a constant (named in brackets) that
/// says whether fused multiply-add is an instruction.
macro_rules! multiversion {
    ($(#[$meta:meta])* $visibility:vis fn $name:ident[$fma:ident]($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $visibility fn $name($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments, clippy::needless_range_loop)]
            fn body<const $fma: bool>($($argument: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
                #[allow(clippy::too_many_arguments)]
                fn avx512($($argument: $type),*) $(-> $result)? { body::<true>($($argument),*) }
                #[target_feature(enable = "avx2,fma")]
                #[allow(clippy::too_many_arguments)]
                fn avx2($($argument: $type),*) $(-> $result)? { body::<true>($($argument),*) }

                match $crate::vector::level::level() {
                    // SAFETY: the level says that the machine has these instructions.
                    $crate::vector::level::Level::Avx512 => unsafe { avx512($($argument),*) },
                    // SAFETY: as above.
                    $crate::vector::level::Level::Avx2 => unsafe { avx2($($argument),*) },
                    $crate::vector::level::Level::Baseline => body::<false>($($argument),*),
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            body::<{ cfg!(target_arch = "aarch64") }>($($argument),*)
        }
    };
}
pub(crate) use multiversion;
