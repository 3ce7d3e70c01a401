//! Where windows of images are, in the form that kernels of largest elements take.

use fulgurite_runtime::rules::{Failure, Precondition};

use super::Placement;
use super::placement::addressable_windows;

/// The lists that place windows, with a number for each dimension of images.
#[derive(Clone, Copy)]
pub struct Windows<'a> {
    /// How many windows there are.
    pub counts: &'a [usize],
    /// Elements of a window.
    pub sizes: &'a [usize],
    /// Elements from one window to the next.
    pub steps: &'a [usize],
    /// Elements of padding before images.
    pub low: &'a [usize],
    /// Elements from one element of a window to the next.
    pub dilations: &'a [usize],
}

impl Windows<'_> {
    /// The windows of images with these extents.
    pub fn of(&self, extents: &[usize]) -> Vec<Placement> {
        let placed = |i: usize| Placement {
            extent: extents[i],
            low: self.low[i],
            size: self.sizes[i],
            step: self.steps[i],
            // There is no distance between the elements of a window of one.
            dilation: if self.sizes[i] == 1 { 1 } else { self.dilations[i] },
            count: self.counts[i],
        };
        (0..extents.len()).map(placed).collect()
    }

    /// For metas: fails with the first code unless there are as many numbers in each list as images have dimensions,
    /// with the second if a size, a step or a dilation is zero.
    pub(super) fn check(&self, dimensions: usize, [lists, positive]: [Precondition; 2]) -> Result<(), Failure> {
        let Windows { counts, sizes, steps, low, dilations } = *self;
        if [counts, sizes, steps, low, dilations].iter().any(|list| list.len() != dimensions) {
            return Err(lists.unmet(format_args!(
                "counts, sizes, steps, low and dilations have {}, {}, {}, {} and {} numbers, expected {dimensions} \
                 each",
                counts.len(),
                sizes.len(),
                steps.len(),
                low.len(),
                dilations.len()
            )));
        }
        if [sizes, steps, dilations].iter().any(|list| list.contains(&0)) {
            return Err(positive.unmet(format_args!(
                "sizes are {sizes:?}, steps {steps:?}, dilations {dilations:?}, expected positive numbers"
            )));
        }
        Ok(())
    }

    /// For metas: fails with the first code unless all windows reach into images with these extents, with the second if
    /// memory holds no such windows; `leading` are the extents of batch and channels.
    pub(super) fn check_reach(
        &self,
        (leading, extents): (&[usize], &[usize]),
        [reach, memory]: [Precondition; 2],
    ) -> Result<(), Failure> {
        let Windows { counts, sizes, steps, low, dilations } = *self;
        let placed = self.of(extents);
        if !addressable_windows(leading, &placed) {
            return Err(memory.unmet(format_args!(
                "windows of images {extents:?}, counts {counts:?}, sizes {sizes:?}, dilations {dilations:?}, are too \
                 large"
            )));
        }
        let reaches = |placed: &Placement| {
            let last = (placed.count.max(1) - 1).saturating_mul(placed.step);
            placed.count == 0 || (placed.span() > placed.low && last < placed.low.saturating_add(placed.extent))
        };
        if !placed.iter().all(reaches) {
            return Err(reach.unmet(format_args!(
                "images are {extents:?}, counts {counts:?}, sizes {sizes:?}, steps {steps:?}, low {low:?}: expected \
                 windows that reach into it"
            )));
        }
        Ok(())
    }
}

/// The extents L1, ... of images [N, C, L1, ...], or [N, L1, ..., C].
pub fn placed_extents(shape: &[usize], channels_innermost: bool) -> &[usize] {
    let first = if channels_innermost { 1 } else { 2 };
    &shape[first..shape.len() - usize::from(channels_innermost)]
}
