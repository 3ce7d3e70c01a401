//! Operands with their strides, and how a result looks into an operand's memory.

use crate::argument::Arg;
use crate::meta::TensorMeta;
use crate::operator::RuleSet;

/// Shape, element type and strides of an operand when a program is prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strided {
    /// Shape, element type, device.
    pub meta: TensorMeta,
    /// Strides in elements.
    pub strides: Vec<isize>,
}

/// How a result looks into the memory of the first operand: strides, and the offset of the first element, in elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// One for each dimension of the result.
    pub strides: Vec<isize>,
    /// From the operand's first element.
    pub offset: isize,
}

/// The view that replaces a call, or `None` if the operand's strides do not allow one.
pub type ViewRule = &'static (dyn Fn(&[Arg<Strided>]) -> Option<View> + Send + Sync);

/// The shapes that the kernel of an implementation would rather have its tensors in, in their order, if others than
/// these: with zeros behind the elements of each. What it computes of these begins with what it computes of the tensors
/// as they are. `None` where nothing is gained, or less than the copies take.
pub type PaddedRule = &'static (dyn Fn(&[Arg<Strided>]) -> Option<Vec<Vec<usize>>> + Send + Sync);

/// That a kernel takes and gives images with their channels innermost as well: where its attribute
/// [`CHANNELS_INNERMOST`] is true, they are [N, L1, ..., C] in place of [N, C, L1, ...].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channels {
    /// Of its tensors, and then of its results, in their order: whether each is one of images. Others, as weights, stay
    /// as they are.
    pub images: &'static [bool],
    /// Whether it gains more than copies of its images take. One that does not has channels innermost as well, where
    /// another of the program gains.
    pub gains: bool,
}

/// The attribute, false by default, of an operator with a rule [`LayoutRules::channels`].
pub const CHANNELS_INNERMOST: &str = "channels_innermost";

/// What of these tensors the kernel would rather have with channels innermost, if any.
pub type ChannelsRule = &'static (dyn Fn(&[Arg<TensorMeta>]) -> Option<Channels> + Send + Sync);

/// How an operator may look at memory, and how it would rather have it: what the passes `layout` and `channels` ask.
#[derive(Clone, Copy)]
pub struct LayoutRules {
    /// The result as a view of its first operand's memory, if that is possible.
    pub view: Option<ViewRule>,
    /// Whether its kernel would rather have channels innermost.
    pub channels: Option<ChannelsRule>,
}

impl LayoutRules {
    /// It cannot be a view.
    pub const EMPTY: LayoutRules = LayoutRules { view: None, channels: None };
}

impl RuleSet for LayoutRules {
    const NONE: &'static LayoutRules = &LayoutRules::EMPTY;
}
