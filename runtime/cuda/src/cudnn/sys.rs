//! cuDNN's graph interface as it is: the functions that are called, and the numbers of its enumerations.
//!
//! Reference: <https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/cudnn-graph-library.html>.

use std::ffi::{c_char, c_int, c_void};

use crate::function_table::functions;

/// `cudnnHandle_t`
pub(super) type Handle = *mut c_void;
/// `cudnnBackendDescriptor_t`
pub(super) type RawDescriptor = *mut c_void;
/// `cudnnStatus_t`: 0 is success.
pub(super) type Status = c_int;

functions! {
    cudnnGetErrorString(status: Status) -> *const c_char;
    cudnnGetLastErrorString(message: *mut c_char, bytes: usize);
    cudnnCreate(handle: *mut Handle) -> Status;
    cudnnDestroy(handle: Handle) -> Status;
    cudnnSetStream(handle: Handle, stream: *mut c_void) -> Status;
    cudnnBackendCreateDescriptor(kind: c_int, descriptor: *mut RawDescriptor) -> Status;
    cudnnBackendDestroyDescriptor(descriptor: RawDescriptor) -> Status;
    cudnnBackendFinalize(descriptor: RawDescriptor) -> Status;
    cudnnBackendSetAttribute(
        descriptor: RawDescriptor, attribute: c_int, kind: c_int, count: i64, values: *const c_void
    ) -> Status;
    cudnnBackendGetAttribute(
        descriptor: RawDescriptor, attribute: c_int, kind: c_int, room: i64, count: *mut i64, values: *mut c_void
    ) -> Status;
    cudnnBackendExecute(handle: Handle, plan: RawDescriptor, pack: RawDescriptor) -> Status;
}

/// Declares an enumeration of which the numbers matter to the library alone.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($(#[$of_member:meta])* $member:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub(super) enum $name {
            $($(#[$of_member])* $member = $number,)*
        }
    };
}

numbers! {
    /// `cudnnBackendDescriptorType_t`
    Kind {
        Pointwise = 0,
        Convolution = 1,
        Engine = 2,
        EngineConfiguration = 3,
        EngineHeuristics = 4,
        ExecutionPlan = 5,
        KnobChoice = 7,
        OperationConvolutionForward = 10,
        OperationConvolutionBackwardFilter = 11,
        OperationConvolutionBackwardData = 12,
        OperationPointwise = 13,
        OperationGraph = 15,
        VariantPack = 16,
        Tensor = 17,
        Matmul = 18,
        OperationMatmul = 19,
        Reduction = 21,
        OperationReduction = 22,
        OperationReshape = 31,
    }
}

numbers! {
    /// `cudnnBackendAttributeName_t`
    Attribute {
        PointwiseMode = 0,
        PointwisePrecision = 1,
        PointwiseAxis = 9,
        ConvolutionPrecision = 100,
        ConvolutionMode = 101,
        ConvolutionDilations = 102,
        ConvolutionStrides = 103,
        ConvolutionPaddingsAfter = 104,
        ConvolutionPaddingsBefore = 105,
        ConvolutionDimensions = 106,
        HeuristicsMode = 200,
        HeuristicsGraph = 201,
        HeuristicsResults = 202,
        ConfigurationEngine = 300,
        ConfigurationKnobs = 302,
        PlanHandle = 400,
        PlanConfiguration = 401,
        PlanWorkspace = 402,
        KnobType = 600,
        KnobValue = 601,
        OperationConvolutionForwardAlpha = 700,
        OperationConvolutionForwardBeta = 701,
        OperationConvolutionForwardDescriptor = 702,
        OperationConvolutionForwardW = 703,
        OperationConvolutionForwardX = 704,
        OperationConvolutionForwardY = 705,
        OperationConvolutionBackwardDataAlpha = 706,
        OperationConvolutionBackwardDataBeta = 707,
        OperationConvolutionBackwardDataDescriptor = 708,
        OperationConvolutionBackwardDataW = 709,
        OperationConvolutionBackwardDataX = 710,
        OperationConvolutionBackwardDataY = 711,
        OperationConvolutionBackwardFilterAlpha = 712,
        OperationConvolutionBackwardFilterBeta = 713,
        OperationConvolutionBackwardFilterDescriptor = 714,
        OperationConvolutionBackwardFilterW = 715,
        OperationConvolutionBackwardFilterX = 716,
        OperationConvolutionBackwardFilterY = 717,
        OperationPointwiseDescriptor = 750,
        OperationPointwiseX = 751,
        OperationPointwiseB = 752,
        OperationPointwiseY = 753,
        OperationPointwiseT = 758,
        GraphHandle = 800,
        GraphOperations = 801,
        TensorAlignment = 900,
        TensorType = 901,
        TensorDimensions = 902,
        TensorStrides = 903,
        TensorId = 906,
        TensorIsVirtual = 907,
        TensorIsByValue = 908,
        PackIds = 1000,
        PackPointers = 1001,
        PackWorkspace = 1003,
        EngineIndex = 1301,
        EngineNumericalNotes = 1303,
        MatmulPrecision = 1500,
        OperationMatmulA = 1520,
        OperationMatmulB = 1521,
        OperationMatmulC = 1522,
        OperationMatmulDescriptor = 1523,
        ReductionOperator = 1600,
        ReductionPrecision = 1601,
        ReductionIsDeterministic = 1602,
        OperationReductionX = 1610,
        OperationReductionY = 1611,
        OperationReductionDescriptor = 1612,
        OperationReshapeX = 2200,
        OperationReshapeY = 2201,
    }
}

numbers! {
    /// `cudnnBackendAttributeType_t`
    ValueKind {
        Handle = 0,
        DataType = 1,
        Boolean = 2,
        Int64 = 3,
        Float = 4,
        Double = 5,
        Pointer = 6,
        ConvolutionMode = 7,
        HeuristicsMode = 8,
        KnobType = 9,
        NumericalNote = 11,
        PointwiseMode = 14,
        Descriptor = 15,
        ReductionOperator = 18,
    }
}

numbers! {
    /// `cudnnDataType_t`
    DataType {
        F32 = 0,
        F64 = 1,
        F16 = 2,
        I32 = 4,
        BF16 = 9,
        Boolean = 11,
    }
}

numbers! {
    /// `cudnnPointwiseMode_t`
    PointwiseMode {
        Add = 0,
        Mul = 1,
        Div = 6,
        Sub = 9,
        Exp = 13,
        Log = 15,
        GreaterEqual = 303,
        Index = 501,
        Select = 601,
    }
}

numbers! {
    /// `cudnnReduceTensorOp_t`
    ReductionOperator {
        Add = 0,
        Max = 3,
    }
}

numbers! {
    /// `cudnnConvolutionMode_t`
    ConvolutionMode {
        CrossCorrelation = 1,
    }
}

numbers! {
    /// `cudnnBackendHeurMode_t`
    HeuristicsMode {
        /// Engines that take the graph whatever its sizes are, where the others do not.
        Fallback = 2,
        A = 3,
    }
}

/// `cudnnBackendNumericalNote_t`: what an engine says of its numbers.
pub(super) mod notes {
    use std::ffi::c_int;

    pub(in super::super) const TENSOR_CORE: c_int = 0;
    pub(in super::super) const DOWN_CONVERTED_INPUTS: c_int = 1;
    pub(in super::super) const REDUCED_PRECISION_SUMS: c_int = 2;
    pub(in super::super) const FFT: c_int = 3;
    pub(in super::super) const NONDETERMINISTIC: c_int = 4;
    /// Winograd's transform, for each size of its tiles.
    pub(in super::super) const WINOGRAD: [c_int; 4] = [5, 6, 7, 8];
}

/// `CUDNN_NUMERICAL_NOTE_TYPE_COUNT`, with room for notes of later versions.
pub(super) const MOST_NOTES: usize = 32;

/// `CUDNN_KNOB_TYPE_COUNTS`, with room for knobs of later versions.
pub(super) const MOST_KNOBS: usize = 64;
