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
    ($(#[$doc:meta])* $name:ident { $($member:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub(super) enum $name {
            $($member = $number,)*
        }
    };
}

numbers! {
    /// `cudnnBackendDescriptorType_t`
    Kind {
        Pointwise = 0,
        Engine = 2,
        EngineConfiguration = 3,
        EngineHeuristics = 4,
        ExecutionPlan = 5,
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
        HeuristicsMode = 200,
        HeuristicsGraph = 201,
        HeuristicsResults = 202,
        ConfigurationEngine = 300,
        PlanHandle = 400,
        PlanConfiguration = 401,
        PlanWorkspace = 402,
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
        Pointer = 6,
        HeuristicsMode = 8,
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

/// `CUDNN_HEUR_MODE_A`
pub(super) const HEURISTICS_MODE_A: c_int = 3;

/// `CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC`
pub(super) const NOTE_NONDETERMINISTIC: c_int = 4;

/// `CUDNN_NUMERICAL_NOTE_TYPE_COUNT`, with room for notes of later versions.
pub(super) const MOST_NOTES: usize = 32;
