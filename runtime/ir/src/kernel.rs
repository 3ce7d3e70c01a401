//! What an executor's own kernel of one operator declares: of a kernel symbol, or of an implementation.

use crate::device::PlanRule;
pub use crate::host_kernel::HostRule;
use crate::meta::Device;
use crate::operator::RuleSet;

/// The kernels of an operator, and what they may be given.
#[derive(Clone, Copy)]
pub struct KernelRules {
    /// Host kernel.
    pub cpu: Option<HostRule>,
    /// Device work.
    pub plan: Option<PlanRule>,
    /// Whether the kernel takes operands of any strides; otherwise it gets contiguous ones.
    pub strided: bool,
    /// If results may have strides: how many of their last dimensions must be as they would be in a contiguous tensor
    /// (1: rows without gaps, at any distance from each other). Otherwise results are contiguous.
    pub strided_results: Option<usize>,
    /// Whether a result may be written over an operand: the kernel has read the elements of an operand at a place
    /// before it writes that place of a result. The n-th tensor of a list belongs to the n-th result alone.
    pub in_place: bool,
    /// The parameters over which alone a result may be written; empty if over any.
    pub in_place_over: &'static [&'static str],
}

impl KernelRules {
    /// No kernel.
    pub const EMPTY: KernelRules = KernelRules {
        cpu: None,
        plan: None,
        strided: false,
        strided_results: None,
        in_place: false,
        in_place_over: &[],
    };

    /// Whether there is a kernel for this kind of device.
    pub fn runs_on(&self, device: &str) -> bool {
        if Device::is_host(device) { self.cpu.is_some() } else { self.plan.is_some() }
    }
}

impl RuleSet for KernelRules {
    const NONE: &'static KernelRules = &KernelRules::EMPTY;
}
